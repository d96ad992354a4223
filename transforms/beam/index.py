"""BuildIndex: written units -> one index in segments that share a quantizer, with its recall.

An existing index is updated with the changes (`UpdateIndex`). If that is impossible, or its
quantizer no longer fits its rows, an index is trained and built (`TrainIndex`).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
from apache_beam.typehints import typehints

from sentence_beam.transforms.base.measures import Figures, Stopwatch, summarise_figures
from sentence_beam.transforms.beam.graph import (
    Merge,
    Outputs,
    Spread,
    Together,
    flat_map,
    keep_lease,
)
from sentence_beam.transforms.beam.metrics import StageMetrics
from sentence_beam.transforms.index.cells import PASSES
from sentence_beam.transforms.steps.index import (
    decisions,
    index_build,
    index_training,
    segments,
    training_sample,
)
from sentence_beam.transforms.steps.index import update_rows as rows
from sentence_beam.transforms.steps.index.decisions import RequestedIndex
from sentence_beam.transforms.steps.index.index_build import TrainingGroup
from sentence_beam.transforms.steps.index.update import ErasedFromIndex, IndexUpdateJob
from sentence_beam.transforms.steps.index.update_rows import (
    MatchedRows,
    Reader,
    Reading,
    SentRows,
    gather,
)
from sentence_beam.transforms.store.index_entries import IndexRequest
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.run_facts import RunFact

Hints = dict[str, str]
ByReader = typehints.Tuple[typehints.Tuple[str, int], typehints.Any]
DONE = "done"
RETRAIN = "retrain"
SENT = "sent"
METRICS = StageMetrics("index")
OUTPUTS: Outputs = {TrainingGroup: RETRAIN}


class BuildIndex(beam.PTransform):
    """The RunFact of `Settle` -> the RunFact of the index, or of why it cannot be built.

    If the run is to fail, or nothing has changed since the last snapshot, nothing is built. A
    `remembered` request was not made for this run; it becomes `auto` if the rows are too few for
    it. `retrain` says why the index is trained again, whatever changed. `hints` are Beam resource
    hints: `accelerator` for the steps that find its lists, `min_ram` for all steps. `erased` is
    what leaves the index beside the rows if a run erases rows.
    """

    def __init__(
        self,
        run: Run,
        request: IndexRequest | None = None,
        remembered: bool = False,
        hints: Hints | None = None,
        retrain: str = "",
        erased: ErasedFromIndex | None = None,
    ):
        super().__init__()
        self._hints = {**(hints or {})}
        ram = self._hints.pop("min_ram", None)
        if ram:
            self.with_resource_hints(min_ram=ram)
        self._run = run
        self._asked = RequestedIndex(request or IndexRequest(), remembered, retrain, erased)

    def expand(self, settled: beam.PCollection) -> beam.PCollection:
        chosen = (
            settled
            | "Choose"
            >> beam.FlatMap(
                keep_lease, self._run.key, decisions.choose_work, self._run, self._asked
            )
            | "SpreadWork" >> Spread()
            | "Which" >> flat_map(lambda work: [work], outputs=OUTPUTS, main="reads")
        )
        updated = chosen.reads | "Update" >> UpdateIndex(self._run.key)
        trained = (chosen[RETRAIN], updated[RETRAIN]) | "Train" >> TrainIndex(
            self._run.key, self._hints
        )
        done = (updated[DONE], trained) | "Index" >> beam.Flatten()
        done.element_type = RunFact
        return done


class UpdateIndex(beam.PTransform):
    """Rows to read -> on `done` the RunFact of the index, on `retrain` groups to train.

    The rows are spread over the workers already; a RunFact among them passes to `done`. `key` is
    the run's.
    """

    def __init__(self, key: tuple[str, str]):
        super().__init__()
        self._key = key

    def expand(self, reads: beam.PCollection) -> Any:
        read = (
            reads
            | "Elements" >> beam.Map(IndexElement.from_result)
            | "Read" >> self._send("rows_ms", rows.read)
        )
        decided = (
            (read.made, read[SENT] | "ToBuckets" >> GatherByKey(self._key, Reading()))
            | "AllRead" >> Merge()
            | "Reads" >> Together()
            | "Buckets"
            >> flat_map(
                time_or_retrain,
                self._key,
                "decide_ms",
                decisions.list_buckets_to_match,
                outputs=OUTPUTS,
                main="buckets",
            )
        )
        match = (
            decided.buckets
            | "SpreadBuckets" >> Spread()
            | "Match" >> self._send("match_ms", rows.match)
        )
        concluded = (
            (match.made, match[SENT] | "ToSegments" >> GatherByKey(self._key, MatchedRows.none()))
            | "AllMatched" >> Merge()
            | "Matched" >> Together()
            | "Decide" >> beam.FlatMap(time_together, self._key, "decide_ms", segments.decide)
            | "SpreadTargets" >> Spread()
            | "Build" >> beam.Map(time_step, self._key, "segment_ms", add_job, segments.build)
            | "Left" >> Together()
            | "Cut" >> beam.FlatMap(time_together, self._key, "decide_ms", segments.cut)
            | "SpreadRanges" >> Spread()
            | "Write" >> beam.Map(time_step, self._key, "segment_ms", add_job, segments.write)
            | "Built" >> Together()
            | "Conclude"
            >> flat_map(
                time_or_retrain,
                self._key,
                "recall_ms",
                decisions.conclude,
                outputs=OUTPUTS,
                main=DONE,
            )
        )
        retrained = (decided[RETRAIN], concluded[RETRAIN]) | "ToTrain" >> beam.Flatten()
        return {DONE: concluded[DONE] | "Facts" >> beam.FlatMap(list_facts), RETRAIN: retrained}

    def _send(self, figure: str, step: Callable[..., Any]) -> beam.PTransform:
        """Return a step whose results are `made`, and whose rows for other steps are sent."""
        outputs: Outputs = {SentRows: SENT}
        return flat_map(time_and_send, self._key, figure, step, outputs=outputs, main="made")


class GatherByKey(beam.PTransform):
    """SentRows -> an element for each reader's file, once it is written, with an empty result."""

    def __init__(self, key: tuple[str, str], result: Any):
        super().__init__()
        self._key = key
        self._result = result

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        return (
            rows
            | "ByReader" >> beam.Map(lambda part: (part.reader, part)).with_output_types(ByReader)
            | "Group" >> beam.GroupByKey()
            | "Write" >> beam.Map(keep_lease, self._key, gather_sent, self._result)
        )


class TrainIndex(beam.PTransform):
    """Groups of shards -> the RunFact of an index built over them, or of a damaged shard.

    `key` is the run's, `hints` are Beam resource hints for the steps that find the lists.
    """

    def __init__(self, key: tuple[str, str], hints: Hints | None = None):
        super().__init__()
        self._key = key
        self._hints = hints or {}

    def expand(self, groups: Any) -> beam.PCollection:
        sampled = (
            groups
            | "Groups" >> beam.Flatten()
            | "Elements" >> beam.Map(IndexElement.from_result)
            | "SpreadSample" >> Spread()
            | "Sample" >> beam.Map(time_step, self._key, "sample_ms", training_sample.sample)
        )
        trained = (
            sampled,
            sampled | "Lists" >> FindLists(self._key, self._hints),
        ) | "Sampled" >> Merge()
        return (
            trained
            | "Trained" >> Together()
            | "Finish" >> beam.FlatMap(time_together, self._key, "train_ms", index_training.finish)
            | "SpreadBuild" >> Spread()
            | "Build" >> beam.Map(time_step, self._key, "segment_ms", index_build.build)
            | "Built" >> Together()
            | "Cut" >> beam.FlatMap(time_together, self._key, "segment_ms", index_build.cut)
            | "SpreadRanges" >> Spread()
            | "Write" >> beam.Map(time_step, self._key, "segment_ms", index_build.write)
            | "Segments" >> Together()
            | "Conclude"
            >> beam.FlatMap(time_together, self._key, "recall_ms", index_build.conclude)
            | "Facts" >> beam.FlatMap(list_facts)
        )


class FindLists(beam.PTransform):
    """Sampled groups -> the cells, with their lists found; nothing without lists."""

    def __init__(self, key: tuple[str, str], hints: Hints):
        super().__init__()
        self._key = key
        self._hints = hints

    def expand(self, sampled: beam.PCollection) -> beam.PCollection:
        works = (
            sampled
            | "Alone" >> beam.Map(drop_figures)
            | "Samples" >> Together()
            | "Divide"
            >> self._add_hints(
                beam.FlatMap(time_together, self._key, "train_ms", index_training.divide)
            )
        )
        clustered = self._run_pass(works, 0)
        for turn in range(1, 1 + PASSES):
            works = (
                clustered
                | f"Clustered{turn}" >> Together()
                | f"Again{turn}"
                >> beam.FlatMap(time_together, self._key, "train_ms", index_training.again)
            )
            clustered = self._run_pass(works, turn)
        return clustered

    def _run_pass(self, works: beam.PCollection, turn: int) -> beam.PCollection:
        """Return parts, or the one cell -> cells whose lists have been found."""
        return (
            works
            | f"SpreadParts{turn}" >> Spread()
            | f"Assign{turn}" >> beam.Map(time_step, self._key, "train_ms", index_training.assign)
            | f"Assigned{turn}" >> Together()
            | f"Allot{turn}"
            >> beam.FlatMap(time_together, self._key, "train_ms", index_training.allot)
            | f"SpreadCells{turn}" >> Spread()
            | f"Cluster{turn}"
            >> self._add_hints(beam.Map(time_step, self._key, "train_ms", index_training.cluster))
        )

    def _add_hints(self, step: beam.PTransform) -> beam.PTransform:
        return step.with_resource_hints(**self._hints)


@dataclass(frozen=True)
class IndexElement:
    """An element between two steps of an index: work, or the fact that ended the index.

    A fact passes all further steps (`graph`: why it has no output of its own). `figures` are those
    of the steps before that no other element has.
    """

    work: Any = None
    fact: RunFact | None = None
    figures: tuple[Figures, ...] = ()

    @classmethod
    def from_result(cls, made: Any, figures: tuple[Figures, ...] = ()) -> "IndexElement":
        """Return the element for a result of a step."""
        if not isinstance(made, RunFact):
            return cls(made, figures=figures)
        if made.index is None or not figures:
            return cls(fact=made)
        return cls(fact=RunFact(index=replace(made.index, measures=summarise_figures(figures))))


def time_step(
    element: IndexElement,
    key: tuple[str, str],
    figure: str,
    step: Callable[..., Any],
    *arguments: Any,
) -> IndexElement:
    """Return what the step makes of an element, and renew the run's lease meanwhile."""
    if element.fact is not None:
        return element
    watch = Stopwatch()
    with watch.time(figure):
        made = keep_lease(element.work, key, step, *arguments)
    METRICS.update(watch.figures)
    return IndexElement(made, figures=(*element.figures, watch.figures))


def drop_figures(element: IndexElement) -> IndexElement:
    """Return the element without its figures, which another element has."""
    return IndexElement(element.work)


def time_together(
    elements: list[IndexElement],
    key: tuple[str, str],
    figure: str,
    step: Callable[[list[Any]], Iterator[Any]],
) -> Iterator[IndexElement]:
    """Yield what the step makes of all elements; the index's record has all figures."""
    ended = [element for element in elements if element.fact is not None]
    if ended:
        yield from ended
        return
    watch = Stopwatch()
    with watch.time(figure):
        made = keep_lease([element.work for element in elements], key, step)
    METRICS.update(watch.figures)
    figures = (*(each for element in elements for each in element.figures), watch.figures)
    for item in made:
        yield IndexElement.from_result(item, figures)
        figures = ()


def time_or_retrain(*arguments: Any) -> Iterator[Any]:
    """Yield as `time_together`; groups of an index to train come bare, for their output."""
    for element in time_together(*arguments):
        yield element.work if isinstance(element.work, TrainingGroup) else element


def list_facts(element: IndexElement) -> list[RunFact]:
    """Return the fact that an index ended with."""
    return [] if element.fact is None else [element.fact]


def gather_sent(rows: tuple[Reader, Iterable[SentRows]], result: Any) -> IndexElement:
    """Write the rows of a reader, and return the element that says so."""
    reader, sent = rows
    return IndexElement((gather(reader, sent), result))


def time_and_send(element: IndexElement, *arguments: Any) -> Iterator[IndexElement | SentRows]:
    """Yield as `time_step` what the step makes of an element, and the rows that it sends."""
    made = time_step(element, *arguments[:2], add_job, *arguments[2:])
    if made.fact is not None:
        yield made
        return
    job, (result, rows) = made.work
    yield replace(made, work=(job, result))
    yield from rows


def add_job(work: tuple[Any, ...], step: Callable[..., Any]) -> tuple[IndexUpdateJob, Any]:
    """Return the job of an element, which is its first item, and the step's result."""
    return work[0], step(*work)
