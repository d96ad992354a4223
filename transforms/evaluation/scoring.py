"""Scores of methods on tasks, from the options to rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.corpus.syntax import Syntax
from sentence_beam.transforms.evaluation import task_files
from sentence_beam.transforms.evaluation.compared_methods import Method
from sentence_beam.transforms.evaluation.evaluate_options import EvaluateOptions
from sentence_beam.transforms.evaluation.evaluation_plan import ScorePlan, make_plan
from sentence_beam.transforms.evaluation.intervals import Draws
from sentence_beam.transforms.evaluation.kinds.store_retrieval import POOLED, StoreRetrieval
from sentence_beam.transforms.evaluation.notes import find_texts_of_fit, note_prompts
from sentence_beam.transforms.evaluation.predict import predict_tasks
from sentence_beam.transforms.evaluation.prediction_cache import Cache
from sentence_beam.transforms.evaluation.score_rows import (
    DEV,
    Row,
    average_tasks,
    find_best_by_dev,
    note_undefined,
    score_task,
)
from sentence_beam.transforms.evaluation.similarity import COSINE
from sentence_beam.transforms.evaluation.task import PairTask, Predictions, Task
from sentence_beam.transforms.evaluation.tasks import read_tasks


@dataclass(frozen=True)
class Evaluation:
    """The rows of scores, notes for their reader, and the blocks and heads of `ditto:*`, if any."""

    rows: list[Row]
    notes: list[str]
    grid: tuple[int, int] | None = None


def _forget(_: list[Row]) -> None:
    """Keep no rows."""


def evaluate(options: EvaluateOptions, rescue: Callable[[list[Row]], None] = _forget) -> Evaluation:
    """Score the methods on the tasks.

    Rows have task, kind, metric, subset, pooler, calibration, dim, n; score, low, high (x100, with
    a 95 % interval); against, diff, diff_low, diff_high, p, p_holm (the difference from the first
    method); sentences_s and bytes_row. If a step fails, `rescue` gets the rows that were computed,
    before the error is raised. Raises OptionError for tasks, poolers and files that cannot be used.
    """
    rows: list[Row] = []
    try:
        return _evaluate(options, rows)
    except Exception:
        if rows:
            rescue(rows)
        raise


def _evaluate(options: EvaluateOptions, rows: list[Row]) -> Evaluation:
    """Add each row to `rows` once it is computed, and return all of them with their notes."""
    with progress.stage("reading the tasks"), task_files.reading_as(Syntax.from_options(options)):
        read = read_tasks(options.tasks, options.make, options.classifier, options.similarity)
    if not read:
        raise OptionError(f"no task is given; say {cite('task')} NAME=PATH")
    tasks: list[Task] = [task for task in read if not isinstance(task, StoreRetrieval)]
    stores = [task for task in read if isinstance(task, StoreRetrieval)]
    notes = [f"{task.name}: {note}" for task in read for note in task.notes]
    grid = None
    if tasks:
        plan = make_plan(options)
        grid = plan.grid
        notes += note_prompts(options, tasks)
        notes += _write_notes(plan, tasks)
        _add_rows_of_tasks(plan, tasks, Cache(options.cache), rows)
    for store in stores:
        rows += _score_store(store)
    notes = [*dict.fromkeys(notes), *note_undefined(rows)]
    best = find_best_by_dev(rows)
    if best is not None:
        notes.append(best)
    return Evaluation(rows, notes, grid)


def _write_notes(plan: ScorePlan, tasks: list[Task]) -> list[str]:
    """Return notes on texts that a calibration has seen, and on tasks of cross-encoders."""
    notes: list[str] = []
    for calibrations in plan.calibrations.values():
        for path, calibration in calibrations.items():
            notes += find_texts_of_fit(path, calibration, tasks)
    if plan.cross_encoders:
        notes += filter(None, map(note_cross_encoder, tasks))
    return notes


def note_cross_encoder(task: Task) -> str:
    """Return the note on what cross-encoders do with a task; empty if they score its pairs."""
    if not isinstance(task, PairTask):
        return f"{task.name}: it has no pairs of texts, so no cross-encoder is scored on it"
    if task.kind == "retrieval":
        return f"{task.name}: cross-encoders order the documents that the first method finds"
    return ""


def _add_rows_of_tasks(
    plan: ScorePlan, tasks: Sequence[Task], cache: Cache, rows: list[Row]
) -> None:
    """Add the rows of all tasks; if a method fails, those of the methods before it."""
    predictions: list[dict[Method, Predictions]] = [{} for _ in tasks]
    try:
        predict_tasks(plan, tasks, cache, predictions)
    except Exception:
        rows.extend(_make_rows(tasks, _order_predictions(plan, predictions)))
        raise
    rows.extend(_make_rows(tasks, _order_predictions(plan, predictions)))


def _order_predictions(
    plan: ScorePlan, predictions: Sequence[Mapping[Method, Predictions]]
) -> list[dict[Method, Predictions]]:
    """Return the predictions of each task in the order of the plan's methods."""
    return [
        {method: of_task[method] for method in plan.all_methods if method in of_task}
        for of_task in predictions
    ]


def _make_rows(
    tasks: Sequence[Task], predictions: Sequence[Mapping[Method, Predictions]]
) -> Iterator[Row]:
    """Yield the rows of the tasks with predictions, then those of the averages."""
    draws: dict[tuple[str, str], list[tuple[Draws, int]]] = {}
    methods: dict[str, list[Method]] = {}
    predicted = [pair for pair in zip(tasks, predictions, strict=True) if pair[1]]
    for task, by_method in progress.count_over(predicted, "intervals and tests", "tasks"):
        evidence = task.evidence(list(by_method.values()))
        rows, drawn = score_task(task.name, task.kind, evidence, by_method)
        yield from _add_costs(rows, task)
        if task.name != DEV:
            metric = next(iter(evidence))
            items = sum(evidence[metric].strata)
            draws.setdefault((task.kind, metric), []).append((drawn, items))
        methods[task.kind] = list(by_method)
    complete = all(
        list(by_method) == methods.get(task.kind)
        for task, by_method in zip(tasks, predictions, strict=True)
    )
    if complete:
        yield from _average_kinds(draws, methods)


def _add_costs(rows: Sequence[Row], task: Task) -> Iterator[Row]:
    """Add the bytes of a vector to each row, and the similarity, if it is not the cosine."""
    similarity = getattr(task, "similarity", COSINE)
    for row in rows:
        compared = {"similarity": similarity} if row["dim"] and similarity != COSINE else {}
        yield {**row, **compared, "bytes_row": 4 * row["dim"]}


def _average_kinds(
    draws: Mapping[tuple[str, str], Sequence[tuple[Draws, int]]],
    methods: Mapping[str, Sequence[Method]],
) -> Iterator[Row]:
    """Yield the rows of the average of each kind that has several tasks besides `dev`."""
    for (kind, metric), several in draws.items():
        if len(several) > 1:
            n = sum(items for _, items in several)
            yield from average_tasks(
                kind, metric, [drawn for drawn, _ in several], methods[kind], n
            )


def _score_store(task: StoreRetrieval) -> list[Row]:
    """Return the rows of a store: a method for each way to search it."""
    manifest = task.store.manifest
    predictions = {}
    for search in task.methods:
        fitted = None if search == POOLED else manifest.calibration
        calibration = fitted.path if fitted else None
        method = Method(manifest.options.pooler, calibration, task.dim(search), search)
        predictions[method] = task.predict(search)
    evidence = task.evidence(list(predictions.values()))
    rows, _ = score_task(task.name, task.kind, evidence, predictions)
    return [
        {**row, "bytes_row": round(task.count_row_bytes(str(row["search"])), 3)} for row in rows
    ]
