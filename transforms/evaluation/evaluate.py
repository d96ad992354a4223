"""Scores of methods on tasks, from the options to rows."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from transforms.base import progress
from transforms.base.errors import OptionError, SentenceBeamError
from transforms.base.python_names import parameters_of, python_names
from transforms.calibration import Calibration
from transforms.evaluation.cache import Cache, key_of
from transforms.evaluation.encode_many import Encoded, ModelSettings, encode_many, groups
from transforms.evaluation.evidence import ALL
from transforms.evaluation.intervals import Draws
from transforms.evaluation.kinds.store_retrieval import StoreRetrieval
from transforms.evaluation.methods import Method, expand, matched, methods_of
from transforms.evaluation.options import EvaluateOptions
from transforms.evaluation.overlap import seen_in_fit
from transforms.evaluation.rows import DEV, Row, averaged, best_by_dev, scored, undefined
from transforms.evaluation.similarity import COSINE
from transforms.evaluation.task import (
    PairTask,
    Predictions,
    Task,
    TaskVectors,
    content_digest,
    quoted,
)
from transforms.evaluation.tasks import read_tasks
from transforms.evaluation.watch import Watch
from transforms.space import Space

if TYPE_CHECKING:
    from transforms.encoder.pair_scorer import PairScorer

SPILLED = 4 << 30  # bytes of vectors above which tasks are encoded one after the other


@dataclass(frozen=True)
class Evaluation:
    """The rows of scores, notes of what a reader of them has to know, and the blocks and heads of
    `ditto:*`, if any.
    """

    rows: list[Row]
    notes: list[str]
    grid: tuple[int, int] | None = None


@dataclass(frozen=True)
class _ScorePlan:
    """The methods to be compared, by pooler, with what makes their vectors."""

    model: ModelSettings
    spaces: Mapping[str, Space]
    calibrations: Mapping[str, Mapping[str, Calibration]]
    methods: Mapping[str, tuple[Method, ...]]
    grid: tuple[int, int] | None
    cross_encoders: Mapping[Method, "PairScorer"]

    @property
    def of_vectors(self) -> list[Method]:
        """The methods of all poolers."""
        return [method for found in self.methods.values() for method in found]

    @property
    def all(self) -> list[Method]:
        """All methods, in the order of the rows."""
        return [*self.of_vectors, *self.cross_encoders]


def _forget(_: list[Row]) -> None:
    """Keep no rows."""


@python_names(parameters_of(EvaluateOptions))
def evaluate(options: EvaluateOptions, rescue: Callable[[list[Row]], None] = _forget) -> Evaluation:
    """Scores of the methods on the tasks. Raises OptionError for tasks, poolers and files that do
    not work.

    Rows have task, kind, metric, subset, pooler, calibration, dim, n; score, low, high (x100, with
    a 95 % interval); against, diff, diff_low, diff_high, p, p_holm (the difference from the first
    method); sentences_s and bytes_row. If a step fails, `rescue` gets the rows that were computed,
    before the error is raised.
    """
    rows: list[Row] = []
    try:
        return _evaluated(options, rows)
    except Exception:
        if rows:
            rescue(rows)
        raise


def _evaluated(options: EvaluateOptions, rows: list[Row]) -> Evaluation:
    """Add each row to `rows` once it is computed, and return all of them with their notes."""
    with progress.stage("reading the tasks"):
        found = read_tasks(options.tasks, options.make, options.classifier, options.similarity)
    if not found:
        raise OptionError("no task is given; say --task NAME=PATH")
    tasks: list[Task] = [task for task in found if not isinstance(task, StoreRetrieval)]
    stores = [task for task in found if isinstance(task, StoreRetrieval)]
    notes = [f"{task.name}: {note}" for task in found for note in task.notes]
    grid = None
    if tasks:
        plan = _planned(options)
        grid = plan.grid
        for by_path in plan.calibrations.values():
            notes += [
                note
                for path, fitted in by_path.items()
                for note in seen_in_fit(path, fitted, tasks)
            ]
        if plan.cross_encoders:
            notes += filter(None, map(of_cross_encoders, tasks))
        _add_rows_of_tasks(plan, tasks, Cache(options.cache), rows)
    for store in stores:
        rows += _rows_of_store(store)
    best = best_by_dev(rows)
    return Evaluation(
        rows, [*dict.fromkeys(notes), *undefined(rows), *([best] if best else [])], grid
    )


def of_cross_encoders(task: Task) -> str:
    """The note on what cross-encoders do with a task."""
    if not isinstance(task, PairTask):
        return f"{task.name}: it has no pairs of texts, so no cross-encoder is scored on it"
    if task.kind == "retrieval":
        return f"{task.name}: cross-encoders order the documents that the first method finds"
    return ""


def _planned(options: EvaluateOptions) -> _ScorePlan:
    model = ModelSettings(
        options.model, options.revision, options.max_tokens, options.dtype, options.device
    )
    poolers, grid = expand(model, options.poolers)
    spaces = {pooler: model.space(pooler) for pooler in poolers}
    calibrations = matched(spaces, options.calibrations)
    methods = {
        pooler: tuple(methods_of(pooler, space, calibrations[pooler], options.truncate_dims))
        for pooler, space in spaces.items()
    }
    return _ScorePlan(model, spaces, calibrations, methods, grid, _cross_encoders(options))


def _cross_encoders(options: EvaluateOptions) -> dict[Method, "PairScorer"]:
    """The cross-encoders, loaded, by their methods."""
    if not options.cross_encoders:
        return {}
    from transforms.encoder.pair_scorer import PairScorer

    folders = dict.fromkeys(options.cross_encoders)
    flag = "--cross-encoder"
    return {
        Method.of_cross_encoder(folder): PairScorer.load(folder, flag, options.device)
        for folder in folders
    }


# --- predictions


def _add_rows_of_tasks(
    plan: _ScorePlan, tasks: Sequence[Task], cache: Cache, rows: list[Row]
) -> None:
    """Add the rows of all tasks. If a method fails, those that were done before are scored all the
    same.
    """
    predictions: list[dict[Method, Predictions]] = [{} for _ in tasks]
    try:
        _predict(plan, tasks, cache, predictions)
    except Exception:
        rows.extend(_rows_of_tasks(tasks, _in_order(plan, predictions)))
        raise
    rows.extend(_rows_of_tasks(tasks, _in_order(plan, predictions)))


def _predict(
    plan: _ScorePlan,
    tasks: Sequence[Task],
    cache: Cache,
    found: Sequence[dict[Method, Predictions]],
) -> None:
    """Add to each task's dictionary what each method makes of it, from the cache if that has it."""
    queries = plan.model.of_queries()
    keys = [
        {method: _key(plan, queries, task, method) for method in plan.of_vectors} for task in tasks
    ]
    for kept, by_method in zip(found, keys, strict=True):
        read = {method: cache.read(key) for method, key in by_method.items()}
        kept.update(
            {method: predictions for method, predictions in read.items() if predictions is not None}
        )
    missing = [[method for method in plan.of_vectors if method not in kept] for kept in found]
    for part in _parts(plan, tasks, missing):
        for place, method, predictions in _computed(
            plan, queries, tasks, {place: missing[place] for place in part}
        ):
            found[place][method] = predictions
            cache.write(keys[place][method], predictions)
    _add_cross_encoders(plan, tasks, cache, found)


def _add_cross_encoders(
    plan: _ScorePlan,
    tasks: Sequence[Task],
    cache: Cache,
    found: Sequence[dict[Method, Predictions]],
) -> None:
    """Add to each task's dictionary what each cross-encoder makes of its pairs, from the cache if
    that has it.
    """
    readable = [
        (task, kept) for task, kept in zip(tasks, found, strict=True) if isinstance(task, PairTask)
    ]
    for method, scorer in plan.cross_encoders.items():
        for task, kept in progress.over(readable, f"scoring pairs with {scorer.folder}", "tasks"):
            first = plan.of_vectors[0]
            of_first = _key(plan, plan.model.of_queries(), task, first)
            key = key_of(content_digest(task), scorer.digest, of_first, None, 0)
            predictions = cache.read(key)
            if predictions is None:
                predictions = task.predict_pairs(scorer, kept[first])
                cache.write(key, predictions)
            kept[method] = predictions


def _in_order(
    plan: _ScorePlan, found: Sequence[Mapping[Method, Predictions]]
) -> list[dict[Method, Predictions]]:
    """The predictions of each task by the methods that were done, in the order of the plan."""
    return [
        {method: of_task[method] for method in plan.all if method in of_task} for of_task in found
    ]


def _key(plan: _ScorePlan, queries: ModelSettings | None, task: Task, method: Method) -> str:
    space = plan.spaces[method.pooler]
    asked = queries.space(method.pooler).id if queries and task.queries else space.id
    fitted = (
        plan.calibrations[method.pooler][method.calibration].digest if method.calibration else None
    )
    return key_of(content_digest(task), space.id, asked, fitted, method.dim)


def _parts(
    plan: _ScorePlan, tasks: Sequence[Task], missing: Sequence[Sequence[Method]]
) -> Iterator[list[int]]:
    """The tasks, by place, that something is missing of, in parts whose vectors take no more than
    `SPILLED` bytes.

    A task that alone takes more is a part of its own.
    """
    width = 4 * sum(plan.spaces[pooler].dim for pooler in plan.methods)
    part: list[int] = []
    texts: set[str] = set()
    for place, task in enumerate(tasks):
        if not missing[place]:
            continue
        more = texts | set(task.texts) | set(task.queries)
        if part and len(more) * width > SPILLED:
            yield part
            part, more = [], {*task.texts, *task.queries}
        part, texts = [*part, place], more
    if part:
        yield part


def _computed(
    plan: _ScorePlan,
    queries: ModelSettings | None,
    tasks: Sequence[Task],
    missing: Mapping[int, Sequence[Method]],
) -> Iterator[tuple[int, Method, Predictions]]:
    """The predictions that are missing of some tasks, by place; each text goes through the model
    once.
    """
    texts, asked = (
        _distinct(tasks, missing, with_queries=queries is None),
        _asked(tasks, missing, queries),
    )
    poolers = [
        pooler
        for pooler, own in plan.methods.items()
        if any(m in own for some in missing.values() for m in some)
    ]
    passes = len(groups(plan.model, poolers))
    with Watch((len(texts) + len(asked)) * passes, sum(map(len, missing.values()))) as watch:
        encoded = encode_many(plan.model, poolers, list(texts), watch.encoded)
        of_queries: Iterable[Encoded | None] = repeat(None)
        if queries is not None and asked:
            of_queries = encode_many(queries, poolers, list(asked), watch.encoded)
        for rows, query_rows in zip(encoded, of_queries, strict=False):
            _check_finite(rows, texts)
            for path, vectors, speed in _calibrated(
                plan.calibrations[rows.pooler], rows, query_rows, (texts, asked)
            ):
                for place, some in missing.items():
                    for method in some:
                        if (method.pooler, method.calibration) == (rows.pooler, path):
                            predictions = dict(tasks[place].predict(vectors.cut(method.dim)))
                            yield (
                                place,
                                method,
                                {**predictions, f"{ALL}/sentences_s": np.array([speed])},
                            )
                            watch.scored()


def _calibrated(
    calibrations: Mapping[str, Calibration],
    rows: Encoded,
    queries: Encoded | None,
    places: tuple[Mapping[str, int], Mapping[str, int]],
) -> Iterator[tuple[str | None, TaskVectors, float]]:
    """A pooler's vectors as they are, and under each calibration: its path, the vectors, and texts
    a second.
    """
    texts, asked = places
    asked_rows = None if queries is None else queries.rows
    yield None, TaskVectors(rows.rows, texts, asked_rows, asked), rows.speed
    for path, calibration in calibrations.items():
        began = time.monotonic()
        final = calibration.apply(rows.rows)
        took = (time.monotonic() - began) / max(1, len(final))
        of_queries = None if asked_rows is None else calibration.apply(asked_rows)
        yield path, TaskVectors(final, texts, of_queries, asked), 1 / (1 / rows.speed + took)


def _distinct(tasks: Sequence[Task], places: Iterable[int], with_queries: bool) -> dict[str, int]:
    """The texts of some tasks, each once, with their places."""
    found: dict[str, int] = {}
    for place in places:
        for text in (*tasks[place].texts, *(tasks[place].queries if with_queries else ())):
            found.setdefault(text, len(found))
    return found


def _asked(
    tasks: Sequence[Task], places: Iterable[int], queries: ModelSettings | None
) -> dict[str, int]:
    """The queries of some tasks, each once, with their places; none where queries are encoded as
    texts are.
    """
    found: dict[str, int] = {}
    for place in places if queries is not None else ():
        for text in tasks[place].queries:
            found.setdefault(text, len(found))
    return found


def _check_finite(found: Encoded, texts: Mapping[str, int]) -> None:
    """Raise SentenceBeamError for a vector with a component that is no number, or infinite."""
    bad = np.flatnonzero(~np.isfinite(found.rows).all(axis=1))
    if bad.size:
        text = quoted([list(texts)[bad[0]]])
        raise SentenceBeamError(
            f"pooler {found.pooler}: the vector of {text} is not finite ({bad.size} of {len(texts)}"
            " are not); say --dtype float32, or leave such texts out"
        )


# --- rows


def _rows_of_tasks(
    tasks: Sequence[Task], predictions: Sequence[Mapping[Method, Predictions]]
) -> Iterator[Row]:
    """The rows of the tasks that any method was done for, then those of the averages."""
    draws: dict[tuple[str, str], list[tuple[Draws, int]]] = {}
    done = [(task, found) for task, found in zip(tasks, predictions, strict=True) if found]
    for task, found in progress.over(done, "intervals and tests", "tasks"):
        evidence = task.evidence(list(found.values()))
        more, drawn = scored(task.name, task.kind, evidence, found)
        compared = _similarity(task)
        for row in more:
            yield {**row, **(compared if row["dim"] else {}), "bytes_row": 4 * row["dim"]}
        if task.name != DEV:
            metric = next(iter(evidence))
            draws.setdefault((task.kind, metric), []).append((drawn, sum(evidence[metric].strata)))
    methods = {task.kind: list(found) for task, found in done}
    of_tasks = zip(tasks, predictions, strict=True)
    if all(list(found) == methods.get(task.kind) for task, found in of_tasks):
        yield from _averages(draws, methods)


def _similarity(task: Task) -> Row:
    """The similarity by which vectors are compared, if it is not the cosine."""
    named = getattr(task, "similarity", COSINE)
    return {} if named == COSINE else {"similarity": named}


def _averages(
    draws: Mapping[tuple[str, str], Sequence[tuple[Draws, int]]],
    methods: Mapping[str, Sequence[Method]],
) -> Iterator[Row]:
    """The rows of the average of each kind that has several tasks besides `dev`."""
    for (kind, metric), several in draws.items():
        if len(several) > 1:
            n = sum(items for _, items in several)
            yield from averaged(kind, metric, [drawn for drawn, _ in several], methods[kind], n)


def _rows_of_store(task: StoreRetrieval) -> list[Row]:
    """The rows of a store: a method for each way to search it."""
    pooler, kept = task.store.manifest.options.pooler, task.store.manifest.calibration
    calibration = kept.path if kept else None
    found = {}
    for search in task.methods:
        method = Method(
            pooler, None if search == "pooled" else calibration, task.dim(search), search
        )
        found[method] = task.predict(search)
    rows, _ = scored(task.name, task.kind, task.evidence(list(found.values())), found)
    return [{**row, "bytes_row": round(task.bytes_row(str(row["search"])), 3)} for row in rows]
