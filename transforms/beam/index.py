"""BuildIndex: written units -> one index in segments that share a quantizer, with its recall
measured.

An index that exists is updated with what has changed (`UpdateIndex`); where it cannot be, or its
quantizer serves its rows no longer, one is trained and built (`TrainIndex`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
from apache_beam.typehints import typehints

from transforms.base.measures import Figures, Stopwatch, summed
from transforms.beam.graph import Merge, Outputs, Spread, Together, flat_map, keeping_lease
from transforms.beam.metrics import StageMetrics
from transforms.index.cells import PASSES
from transforms.steps.index import (
    build as index_build,
)
from transforms.steps.index import (
    train as index_train,
)
from transforms.steps.index import (
    update_recall as index_update_recall,
)
from transforms.steps.index import (
    update_rows as index_update_rows,
)
from transforms.steps.index import (
    update_segments as index_update_segments,
)
from transforms.steps.index.build import TrainingGroup
from transforms.steps.index.files import IndexRecord
from transforms.steps.index.update import IndexUpdateJob
from transforms.steps.index.work import buckets_to_match, choose_work
from transforms.store.entries import IndexRequest
from transforms.store.records import Problem
from transforms.store.runs.commit import Run

Hints = dict[str, str]
DONE = "done"
RETRAIN = "retrain"
METRICS = StageMetrics("index")
OUTPUTS: Outputs = {TrainingGroup: RETRAIN}
# passes all further steps: an engine holds memory for each output of one
Done = IndexRecord | Problem


class BuildIndex(beam.PTransform):
    """What `Settle` gives -> an IndexRecord for the run's manifest, or the Problem that keeps it
    from being built.

    Where the run is to fail anyway, or nothing has changed since the last snapshot, nothing is
    built. `merge` makes one segment of an index that has several; a `remembered` request, which
    nobody made for this run, becomes `auto` where the rows are too few for it. `hints` are Beam
    resource hints (`accelerator`) for the steps that find its lists.
    """

    def __init__(
        self,
        run: Run,
        request: IndexRequest | None = None,
        merge: bool = False,
        remembered: bool = False,
        hints: Hints | None = None,
    ):
        super().__init__()
        self._hints = hints
        self._run, self._how = run, (request or IndexRequest(), merge, remembered)

    def expand(self, settled: beam.PCollection) -> beam.PCollection:
        chosen = (
            settled
            | "Choose"
            >> beam.FlatMap(keeping_lease, self._run.key, choose_work, self._run, *self._how)
            | "SpreadWork" >> Spread()
            | "Which" >> flat_map(lambda work: [work], outputs=OUTPUTS, main="reads")
        )
        updated = chosen.reads | "Update" >> UpdateIndex(self._run.key)
        trained = (chosen[RETRAIN], updated[RETRAIN]) | "Train" >> TrainIndex(
            self._run.key, self._hints
        )
        done = (updated[DONE], trained) | "Index" >> beam.Flatten()
        done.element_type = typehints.Union[IndexRecord, Problem]
        return done


class UpdateIndex(beam.PTransform):
    """Rows to read -> on `done` an IndexRecord or Problem, on `retrain` the groups of an index to
    train instead.

    What is given is spread over the workers already; an IndexRecord or a Problem among it comes out
    on `done`. `key` is the run's.
    """

    def __init__(self, key: tuple[str, str]):
        super().__init__()
        self._key = key

    def expand(self, reads: beam.PCollection) -> Any:
        decided = (
            reads
            | "Read" >> beam.Map(timed, self._key, "rows_ms", with_job, index_update_rows.read)
            | "Reads" >> Together()
            | "Buckets"
            >> flat_map(
                timed_together,
                self._key,
                "decide_ms",
                buckets_to_match,
                outputs=OUTPUTS,
                main="buckets",
            )
        )
        concluded = (
            decided.buckets
            | "SpreadBuckets" >> Spread()
            | "Match" >> beam.Map(timed, self._key, "match_ms", with_job, index_update_rows.match)
            | "Matched" >> Together()
            | "Decide"
            >> beam.FlatMap(timed_together, self._key, "decide_ms", index_update_segments.decide)
            | "SpreadTargets" >> Spread()
            | "Build"
            >> beam.Map(timed, self._key, "segment_ms", with_job, index_update_segments.build)
            | "Built" >> Together()
            | "Conclude"
            >> flat_map(
                timed_together,
                self._key,
                "recall_ms",
                index_update_recall.conclude,
                outputs=OUTPUTS,
                main=DONE,
            )
        )
        retrained = (decided[RETRAIN], concluded[RETRAIN]) | "ToTrain" >> beam.Flatten()
        return {DONE: concluded[DONE], RETRAIN: retrained}


class TrainIndex(beam.PTransform):
    """Groups of shards -> the IndexRecord of an index trained and built over them, or a damaged
    shard's Problem.

    `key` is the run's, `hints` are Beam resource hints for the steps that find the lists.
    """

    def __init__(self, key: tuple[str, str], hints: Hints | None = None):
        super().__init__()
        self._key, self._hints = key, hints or {}

    def expand(self, groups: Any) -> beam.PCollection:
        sampled = (
            groups
            | "Groups" >> beam.Flatten()
            | "SpreadSample" >> Spread()
            | "Sample" >> beam.Map(timed, self._key, "sample_ms", index_train.sample)
        )
        trained = (
            sampled,
            sampled | "Lists" >> FindLists(self._key, self._hints),
        ) | "Sampled" >> Merge()
        return (
            trained
            | "Trained" >> Together()
            | "Finish" >> beam.FlatMap(timed_together, self._key, "train_ms", index_train.finish)
            | "SpreadBuild" >> Spread()
            | "Build" >> beam.Map(timed, self._key, "segment_ms", index_build.build)
            | "Segments" >> Together()
            | "Conclude"
            >> beam.FlatMap(timed_together, self._key, "recall_ms", index_build.conclude)
        )


class FindLists(beam.PTransform):
    """Sampled groups -> the cells whose lists have been found by their rows; nothing where an index
    has no lists.
    """

    def __init__(self, key: tuple[str, str], hints: Hints):
        super().__init__()
        self._key, self._hints = key, hints

    def expand(self, sampled: beam.PCollection) -> beam.PCollection:
        works = (
            sampled
            | "Alone" >> beam.Map(without_figures)
            | "Samples" >> Together()
            | "Divide"
            >> self._hinted(beam.FlatMap(timed_together, self._key, "train_ms", index_train.divide))
        )
        clustered = self._pass(works, 0)
        for turn in range(1, 1 + PASSES):
            works = (
                clustered
                | f"Clustered{turn}" >> Together()
                | f"Again{turn}"
                >> beam.FlatMap(timed_together, self._key, "train_ms", index_train.again)
            )
            clustered = self._pass(works, turn)
        return clustered

    def _pass(self, works: beam.PCollection, turn: int) -> beam.PCollection:
        """Parts, or the one cell that is all -> cells whose lists have been found."""
        return (
            works
            | f"SpreadParts{turn}" >> Spread()
            | f"Assign{turn}" >> beam.Map(timed, self._key, "train_ms", index_train.assign)
            | f"Assigned{turn}" >> Together()
            | f"Allot{turn}"
            >> beam.FlatMap(timed_together, self._key, "train_ms", index_train.allot)
            | f"SpreadCells{turn}" >> Spread()
            | f"Cluster{turn}"
            >> self._hinted(beam.Map(timed, self._key, "train_ms", index_train.cluster))
        )

    def _hinted(self, step: beam.PTransform) -> beam.PTransform:
        return step.with_resource_hints(**self._hints)


@dataclass(frozen=True)
class Timed:
    """What one step of the index hands to the next, and what the steps before it took that no other
    element tells.
    """

    value: Any
    figures: tuple[Figures, ...] = ()


def timed(
    element: Any, key: tuple[str, str], figure: str, step: Callable[..., Any], *arguments: Any
) -> Any:
    """What the step makes of an element; the run's lease is renewed meanwhile."""
    if isinstance(element, Done):
        return element
    given = element if isinstance(element, Timed) else Timed(element)
    watch = Stopwatch()
    with watch.time(figure):
        made = keeping_lease(given.value, key, step, *arguments)
    METRICS.update(watch.figures)
    return Timed(made, (*given.figures, watch.figures))


def without_figures(element: Timed) -> Timed:
    """The element alone: its figures are told by another."""
    return Timed(element.value)


def timed_together(
    given: list[Any], key: tuple[str, str], figure: str, step: Callable[[list[Any]], Any]
) -> Iterator[Any]:
    """What the step makes of all elements; the index's record tells what everything took."""
    elements = [item for item in given if isinstance(item, Timed)]
    if len(elements) < len(given):
        yield from (item for item in given if isinstance(item, Done))
        return
    watch = Stopwatch()
    with watch.time(figure):
        made = keeping_lease([element.value for element in elements], key, step)
        found = made if isinstance(made, list) else [made]
    METRICS.update(watch.figures)
    figures = (*(each for element in elements for each in element.figures), watch.figures)
    for place, item in enumerate(found):
        if isinstance(item, IndexRecord):
            yield replace(item, measures=summed(figures))
        elif isinstance(item, Problem | TrainingGroup):
            yield item
        else:
            yield Timed(item, figures if place == 0 else ())


def with_job(work: tuple[Any, ...], step: Callable[..., Any]) -> tuple[IndexUpdateJob, Any]:
    """The job of an element, which comes first in it, and what the step makes of the element."""
    return work[0], step(*work)
