"""Predictions of each method for each task, from the cache or by encoding the texts."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import SentenceBeamError, cite
from sentence_beam.transforms.calibration import Calibration
from sentence_beam.transforms.evaluation.compared_methods import Method
from sentence_beam.transforms.evaluation.encode_many import (
    Encoded,
    ModelSettings,
    encode_many,
    group_poolers,
)
from sentence_beam.transforms.evaluation.evaluation_plan import ScorePlan
from sentence_beam.transforms.evaluation.evaluation_progress import Watch
from sentence_beam.transforms.evaluation.evidence import ALL
from sentence_beam.transforms.evaluation.prediction_cache import Cache
from sentence_beam.transforms.evaluation.task import (
    PairTask,
    Predictions,
    Task,
    TaskVectors,
    quote_texts,
)
from sentence_beam.transforms.space import PoolerSpec

SPILLED = 4 << 30  # bytes of vectors above which tasks are encoded one after the other

Missing = Mapping[int, Sequence[Method]]  # the methods without predictions, by place of the task


@dataclass(frozen=True)
class _DistinctTexts:
    """The distinct texts and queries of some tasks, each with its place.

    Without queries of their own, they are among the texts.
    """

    texts: Mapping[str, int]
    queries: Mapping[str, int]


def predict_tasks(
    plan: ScorePlan,
    tasks: Sequence[Task],
    cache: Cache,
    predictions: Sequence[dict[Method, Predictions]],
) -> None:
    """Add what each method predicts to each task's dictionary, from the cache if it is there.

    If a method fails, the dictionaries keep the predictions of the methods before it.
    """
    keys = [{method: plan.key(task, method) for method in plan.vector_methods} for task in tasks]
    for by_method, of_task in zip(keys, predictions, strict=True):
        of_task.update(_read_cached(cache, by_method))
    missing = [
        [method for method in plan.vector_methods if method not in of_task]
        for of_task in predictions
    ]
    for part in _split_tasks(plan, tasks, missing):
        of_part = {place: missing[place] for place in part}
        for place, method, predicted in _compute(plan, tasks, of_part):
            predictions[place][method] = predicted
            cache.write(keys[place][method], predicted)
    _predict_by_cross_encoders(plan, tasks, cache, predictions)


def _read_cached(cache: Cache, keys: Mapping[Method, str]) -> dict[Method, Predictions]:
    cached = {method: cache.read(key) for method, key in keys.items()}
    return {method: found for method, found in cached.items() if found is not None}


def _predict_by_cross_encoders(
    plan: ScorePlan,
    tasks: Sequence[Task],
    cache: Cache,
    predictions: Sequence[dict[Method, Predictions]],
) -> None:
    """Add what each cross-encoder predicts to the dictionary of each task of pairs."""
    pair_tasks = [
        (task, of_task)
        for task, of_task in zip(tasks, predictions, strict=True)
        if isinstance(task, PairTask)
    ]
    for method, scorer in plan.cross_encoders.items():
        title = f"scoring pairs with {scorer.folder}"
        for task, of_task in progress.count_over(pair_tasks, title, "tasks"):
            key = plan.make_cross_encoder_key(task, scorer)
            predicted = cache.read(key)
            if predicted is None:
                predicted = task.predict_pairs(scorer, of_task[plan.vector_methods[0]])
                cache.write(key, predicted)
            of_task[method] = predicted


def _split_tasks(
    plan: ScorePlan, tasks: Sequence[Task], missing: Sequence[Sequence[Method]]
) -> Iterator[list[int]]:
    """Yield the places of tasks with missing predictions, in parts of at most `SPILLED` bytes.

    A task whose vectors take more is a part of its own. The texts of a part are encoded alike.
    """
    for model in dict.fromkeys(map(plan.choose_model, tasks)):
        alike = [
            place
            for place, task in enumerate(tasks)
            if missing[place] and plan.choose_model(task) == model
        ]
        yield from _split_alike(plan, tasks, alike)


def _split_alike(
    plan: ScorePlan, tasks: Sequence[Task], places: Sequence[int]
) -> Iterator[list[int]]:
    width = 4 * sum(plan.spaces[pooler].dim for pooler in plan.methods)
    part: list[int] = []
    texts: set[str] = set()
    for place in places:
        task = tasks[place]
        more = texts | set(task.texts) | set(task.queries)
        if part and len(more) * width > SPILLED:
            yield part
            part = []
            more = {*task.texts, *task.queries}
        part = [*part, place]
        texts = more
    if part:
        yield part


def _compute(
    plan: ScorePlan, tasks: Sequence[Task], missing: Missing
) -> Iterator[tuple[int, Method, Predictions]]:
    """Yield missing predictions with their place and method; a text is encoded once a pooler.

    The texts of all tasks are encoded alike.
    """
    model = plan.choose_model(tasks[next(iter(missing))])
    distinct = _collect_texts(plan, [tasks[place] for place in missing])
    used = {method.pooler for methods in missing.values() for method in methods}
    poolers = {name: pooler for name, pooler in plan.poolers.items() if name in used}
    texts = len(distinct.texts) + len(distinct.queries)
    scores = sum(map(len, missing.values()))
    with Watch(texts * len(group_poolers(model, poolers)), scores) as watch:
        for encoded, encoded_queries in _encode(plan, model, poolers, distinct, watch):
            check_finite(encoded, distinct.texts)
            calibrations = plan.calibrations[encoded.pooler]
            for path, vectors, speed in _calibrate(
                calibrations, encoded, encoded_queries, distinct
            ):
                for place, method in _select_methods(missing, encoded.pooler, path):
                    predicted = dict(tasks[place].predict(vectors.cut(method.dim)))
                    predicted[f"{ALL}/sentences_s"] = np.array([speed])
                    yield place, method, predicted
                    watch.scored()


def _encode(
    plan: ScorePlan,
    model: ModelSettings,
    poolers: Mapping[str, PoolerSpec],
    distinct: _DistinctTexts,
    watch: Watch,
) -> Iterator[tuple[Encoded, Encoded | None]]:
    """Yield each pooler's vectors of the texts, and of the queries if they have their own."""
    queries: Iterable[Encoded | None] = repeat(None)
    if plan.queries is not None and distinct.queries:
        queries = encode_many(plan.queries, poolers, list(distinct.queries), watch.count_texts)
    texts = encode_many(model, poolers, list(distinct.texts), watch.count_texts)
    return zip(texts, queries, strict=False)


def _select_methods(
    missing: Missing, pooler: str, calibration: str | None
) -> Iterator[tuple[int, Method]]:
    """Yield the missing methods of a pooler and a calibration, with the places of their tasks."""
    for place, methods in missing.items():
        for method in methods:
            if (method.pooler, method.calibration) == (pooler, calibration):
                yield place, method


def _calibrate(
    calibrations: Mapping[str, Calibration],
    encoded: Encoded,
    queries: Encoded | None,
    distinct: _DistinctTexts,
) -> Iterator[tuple[str | None, TaskVectors, float]]:
    """Yield a pooler's vectors without and with each calibration.

    Each has the calibration's path, the vectors, and the texts a second.
    """
    query_rows = queries.rows if queries is not None else None
    vectors = TaskVectors(encoded.rows, distinct.texts, query_rows, distinct.queries)
    yield None, vectors, encoded.speed
    for path, calibration in calibrations.items():
        began = time.monotonic()
        rows = calibration.apply(encoded.rows)
        seconds = (time.monotonic() - began) / max(1, len(rows))
        calibrated_queries = calibration.apply(query_rows) if query_rows is not None else None
        vectors = TaskVectors(rows, distinct.texts, calibrated_queries, distinct.queries)
        yield path, vectors, 1 / (1 / encoded.speed + seconds)


def _collect_texts(plan: ScorePlan, tasks: Sequence[Task]) -> _DistinctTexts:
    """Return the texts of some tasks, each once."""
    texts: dict[str, int] = {}
    queries: dict[str, int] = texts if plan.queries is None else {}
    for task in tasks:
        for text in task.texts:
            texts.setdefault(text, len(texts))
        for text in task.queries:
            queries.setdefault(text, len(queries))
    return _DistinctTexts(texts, {} if plan.queries is None else queries)


def check_finite(encoded: Encoded, texts: Mapping[str, int]) -> None:
    """Raise SentenceBeamError for a vector with a component that is NaN or infinite."""
    bad = np.flatnonzero(~np.isfinite(encoded.rows).all(axis=1))
    if bad.size:
        text = quote_texts([list(texts)[bad[0]]])
        raise SentenceBeamError(
            f"pooler {encoded.pooler}: the vector of {text} is not finite ({bad.size} of"
            f" {len(texts)} are not); say {cite('dtype')} float32, or leave such texts out"
        )
