"""Notes on missing prompts, and on test texts that a fitted calibration has seen."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.calibration import Calibration
from sentence_beam.transforms.evaluation.evaluate_options import EvaluateOptions
from sentence_beam.transforms.evaluation.task import Task, quote_texts
from sentence_beam.transforms.space import resolve_model, row_hashes
from sentence_beam.transforms.space.trained_prompts import quote
from sentence_beam.transforms.store import open_store

NO_PROMPT = "or --prompt '' if none is wanted"


def note_prompts(options: EvaluateOptions, tasks: Sequence[Task]) -> list[str]:
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


def find_texts_of_fit(path: str, calibration: Calibration, tasks: list[Task]) -> list[str]:
    """Return a note for each task that shares texts with the store of a calibration's fit.

    Returns no notes if that store, or that snapshot of it, no longer exists.
    """
    fitted = calibration.info["fitted_on"]
    try:
        hashes = (
            open_store(str(fitted["store"]), fitted["run"]).dataset().to_table(columns=["row_hash"])
        )
    except (SentenceBeamError, OSError, KeyError, pa.ArrowException):
        return []
    fit_hashes = hashes.column("row_hash").combine_chunks()
    notes = []
    for task in tasks:
        texts = list(dict.fromkeys([*task.texts, *task.queries]))
        seen = pc.is_in(pa.array(row_hashes(texts), pa.binary(16)), fit_hashes).to_pylist()
        both = [text for text, is_seen in zip(texts, seen, strict=True) if is_seen]
        if both:
            notes.append(
                f"{task.name}: {path} was fitted on {len(both)} of its {len(texts)} texts:"
                f" {quote_texts(both)}"
            )
    return notes
