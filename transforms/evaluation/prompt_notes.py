"""Notes on the prompts that a model was trained with and that an evaluation does not give it."""

from collections.abc import Sequence

from sentence_beam.transforms.evaluation.evaluate_options import EvaluateOptions
from sentence_beam.transforms.evaluation.task import Task
from sentence_beam.transforms.space import resolve_model
from sentence_beam.transforms.space.trained_prompts import quote

NO_PROMPT = "or --prompt '' if none is wanted"


def prompt_notes(options: EvaluateOptions, tasks: Sequence[Task]) -> list[str]:
    """Return notes for tasks with queries and for others, if their texts lack prompts.

    Each names the options that give them.
    """
    trained = resolve_model(options.model, options.revision).trained_prompts
    if trained is None:
        return []
    notes = []
    missing = trained.missing(options.prompt, options.query_prompt)
    if missing is not None and any(task.queries for task in tasks):
        notes.append(f"{missing.request('documents')}: say {missing.options}, {NO_PROMPT}")
    if trained.other and options.prompt is None and not all(task.queries for task in tasks):
        of_others = f"{trained.source} asks for {trained.other!r} before texts of such tasks"
        notes.append(f"{of_others}: say --prompt {quote(trained.other)}, {NO_PROMPT}")
    return notes
