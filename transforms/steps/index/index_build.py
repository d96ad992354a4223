"""Building an index over a store's shards: groups of them are coded, then segments written."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow_arrays import as_keys
from sentence_beam.transforms.base.errors import DataGateError, cite
from sentence_beam.transforms.base.pairing import group_by_size
from sentence_beam.transforms.index import (
    Candidates,
    ExactNeighbours,
    IndexPlan,
    nprobe_grid,
    sample_threshold,
)
from sentence_beam.transforms.index.budgets import MOST_LISTS, query_bytes
from sentence_beam.transforms.index.exact_vectors import RefineWriter
from sentence_beam.transforms.index.segment import SegmentWriter
from sentence_beam.transforms.index.upkeep import REWRITTEN, imbalance
from sentence_beam.transforms.steps.index import held_out, scratch
from sentence_beam.transforms.steps.index.index_folder import (
    Folder,
    ShardRows,
    average_closeness,
    choose_layout,
    choose_most_rows,
    locate,
)
from sentence_beam.transforms.steps.index.index_recall import (
    DEEP,
    Asking,
    K,
    Measurement,
    count_answers,
    leave_recall,
    measure_tuned_recall,
)
from sentence_beam.transforms.steps.index.written_ranges import (
    ListedSource,
    RangeSpan,
    cut_spans,
    leave_written,
    write_range,
)
from sentence_beam.transforms.store.index_entries import (
    ChangeEntry,
    ChoiceEntry,
    IndexEntry,
    IndexFileEntry,
    IndexRequest,
    SegmentEntry,
    TrainedEntry,
)
from sentence_beam.transforms.store.index_files import checked_files as index_files
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.run_facts import IndexRecord, RunFact

PREFIX = "index"
TRAINED = "trained"


@dataclass(frozen=True)
class IndexJob:
    """An index build: place, plan, reason, and thresholds for sampled and held-out rows.

    `times` counts the builds up to this one, so that a rebuilt index equals none before it.
    `again` is the quantizer of the last index, if all is built with that once more.
    `required`: the run fails if the requested recall is not reached. `choice` and the `most_lists`
    that a search may look into are known when kinds were compared; `unit` says that all rows are of
    length 1.
    """

    root: str
    run: str
    plan: IndexPlan
    rows: int
    request: IndexRequest
    metric: str
    why: str = ""
    times: int = 1
    unit: bool = True
    required: bool = False
    again: TrainedEntry | None = None
    choice: ChoiceEntry | None = None
    most_lists: int = MOST_LISTS

    @property
    def folder(self) -> Folder:
        """The files that the steps read and write."""
        return Folder(self.root, self.run, PREFIX, self.metric)

    @property
    def held_out_below(self) -> int:
        """The threshold on `held_out_keys` under which a text is held out."""
        if self.again is not None:
            return int(self.again.held_out_below, 16)
        return held_out.held_out_below(self.rows)

    def make_refine_writer(self) -> RefineWriter | None:
        """Return the writer of a segment's vectors; None if the plan needs none."""
        return RefineWriter(self.plan.dim) if self.plan.rerank else None

    @property
    def sample_below(self) -> int:
        """The threshold on `sample_keys` under which a row is sampled.

        It allows some more rows, because held-out ones are left out.
        """
        wanted = self.plan.train_rows
        if wanted and self.again is None:
            return sample_threshold(wanted + wanted // 5 + 1, self.rows)
        return 0


@dataclass(frozen=True)
class ShardGroup:
    """Shards that are coded together: their paths relative to the store, and the sha256 of each."""

    number: int
    shards: tuple[str, ...]
    sha256s: tuple[str | None, ...]


@dataclass(frozen=True)
class TrainingGroup:
    """A group of a build, to be sampled."""

    job: IndexJob
    group: ShardGroup


@dataclass(frozen=True)
class Trained:
    """The trained quantizer and the held-out segment (None if nothing is held out)."""

    file: IndexFileEntry
    rows: int
    held_out: SegmentEntry | None


@dataclass(frozen=True)
class BuildWork:
    """A group of a build whose quantizer is trained, to be built."""

    job: IndexJob
    trained: Trained
    group: ShardGroup

    @property
    def asking(self) -> Asking:
        """How its segments are asked, at every nprobe that is tried."""
        plan = self.job.plan
        grid = nprobe_grid(plan.nlist, self.job.most_lists)
        return Asking(self.trained.file, plan.metric, count_answers(plan.rerank), tuple(grid))


@dataclass(frozen=True)
class BuiltGroup:
    """A built group: a segment without lists, or rows left by list; neither if it has no rows."""

    work: BuildWork
    segment: SegmentEntry | None = None
    listed: ListedSource | None = None


@dataclass(frozen=True)
class SegmentWork:
    """A segment of a build, or a range that is to be written; neither if there are no rows."""

    work: BuildWork
    segment: SegmentEntry | None = None
    span: RangeSpan | None = None


def begin(job: IndexJob, shards: list[ShardRows]) -> list[TrainingGroup]:
    """Return the groups of a build: shards in order, cut into groups of even size."""
    cut = group_by_size(shards, lambda shard: shard[1], choose_most_rows(job.plan, job.rows))
    groups = [
        ShardGroup(
            number, tuple(path for path, _, _ in part), tuple(sha256 for _, _, sha256 in part)
        )
        for number, part in enumerate(cut)
    ]
    return [TrainingGroup(job, group) for group in groups]


def build(work: BuildWork) -> BuiltGroup:
    """Code the rows of a group that are not held out, and leave its neighbours of the queries.

    The group's segment is written if it has no lists; else its rows are left by list.
    """
    job = work.job
    group = work.group
    folder = job.folder
    base = group.number << 32
    exact = ExactNeighbours(folder.take(scratch.QUERIES), DEEP, job.plan.metric)
    texts = as_keys(folder.take(scratch.TEXTS))
    locator = locators.LocatorBuilder()
    trained = work.trained.file
    writer = SegmentWriter(index_files.read(folder.stored(trained.path), trained.sha256))
    refine = job.make_refine_writer()
    with progress.stage("index: adding rows", job.rows, "rows"):
        for block in folder.blocks(group.shards):
            rows = np.flatnonzero(~np.isin(as_keys(block.hashes), texts))
            vectors = np.ascontiguousarray(block.vectors[rows])
            exact.add(vectors, base + writer.rows)
            locate(locator, block, rows)
            writer.add(vectors)
            if refine:
                refine.add(vectors)
            progress.step(len(block.vectors))
    if not writer.rows:
        return BuiltGroup(work)
    if job.plan.nlist:
        nlist = job.plan.nlist
        source = leave_written(folder, group.number, nlist, writer, locator.table(), refine, exact)
        return BuiltGroup(work, listed=source)
    segment = folder.segment(group.number, "base", writer.finish(), locator.table(), refine)
    leave_recall(folder, segment, work.asking, exact)
    return BuiltGroup(work, segment)


def cut(built: list[BuiltGroup]) -> Iterator[SegmentWork]:
    """Yield the segments without lists, or the ranges to write of the rows left by list."""
    built = sorted(built, key=lambda group: group.work.group.number)
    work = built[0].work
    sources = [group.listed for group in built if group.listed is not None]
    segments = [group.segment for group in built if group.segment is not None]
    if sources:
        held = work.trained.held_out.number if work.trained.held_out else -1
        numbers = (number for number in itertools.count() if number != held)
        most_bytes = work.job.request.range_bytes
        ranges = cut_spans(work.job.folder, work.job.plan, most_bytes, sources, numbers)
        yield from (SegmentWork(work, span=span) for span in ranges)
    elif segments:
        yield from (SegmentWork(work, segment) for segment in segments)
    else:
        yield SegmentWork(work)


@progress.stage("index: writing ranges")
def write(item: SegmentWork) -> SegmentWork:
    """Write a range, and leave its neighbours of the queries; a segment passes."""
    if item.span is None:
        return item
    job = item.work.job
    segment = write_range(job.folder, item.span, job.plan, item.work.asking)
    return SegmentWork(item.work, segment)


def conclude(built: list[SegmentWork]) -> Iterator[RunFact]:
    """Yield the index of all segments, with recall over all; a problem if it misses the request."""
    work = built[0].work
    segments = [item.segment for item in built if item.segment is not None]
    with progress.stage("index: measuring recall"):
        entry = make_index_entry(work, segments)
    missed = _explain_miss(work.job.request, entry) if work.job.required else None
    if missed is not None:
        yield RunFact(problem=Problem.from_error(missed))
    else:
        yield RunFact(index=IndexRecord(entry))


def make_index_entry(work: BuildWork, built: list[SegmentEntry]) -> IndexEntry:
    """Return the manifest's entry of the index, with recall measured over all segments."""
    job = work.job
    made = work.trained
    folder = job.folder
    segments = sorted(built, key=lambda segment: segment.number)
    texts = folder.take(scratch.TEXTS)
    measured = Measurement.none(folder.take(scratch.QUERIES), work.asking)
    measured = measured.add_written(folder, segments)
    half = held_out.select_tuning_half(texts)
    recall, deep = (
        measure_tuned_recall(measured, k, job.plan.rerank, job.request.target, half)
        for k in (K, DEEP)
    )
    tuned = recall or job.plan
    listed = [*segments, made.held_out] if made.held_out is not None else segments
    entry = IndexEntry(
        request=job.request,
        factory=job.plan.factory,
        metric=job.metric,
        nprobe=tuned.nprobe,
        rerank=tuned.rerank,
        rows=sum(segment.rows for segment in listed),
        segments=tuple(listed),
        trained=TrainedEntry(
            path=made.file.path,
            sha256=made.file.sha256,
            times=job.times,
            rows=made.rows,
            corpus=job.rows,
            held_out_below=f"{job.held_out_below:x}",
            recall=recall.value if recall else None,
            imbalance=imbalance(measured.count_rows_of_lists(job.plan.nlist)),
            closeness=average_closeness(segments),
        ),
        recall=recall,
        recall_100=deep,
        change=ChangeEntry(TRAINED, job.why, added=job.rows, deleted=0, moved=0),
        choice=job.choice,
        layout=choose_layout(job.plan),
    )
    if job.again is not None:
        change = ChangeEntry(REWRITTEN, job.why, added=0, deleted=0, moved=0)
        trained = replace(job.again, times=job.times)
        entry = replace(entry, trained=trained, change=change)
    if job.choice is not None:
        entry = replace(entry, choice=_count_query_bytes(job.choice, job.plan, entry))
    return replace(entry, queries=_leave_known(work, entry, measured))


def _leave_known(work: BuildWork, entry: IndexEntry, measured: Measurement) -> IndexFileEntry:
    """Write what the next run is to know of the texts on which recall is reported."""
    folder = work.job.folder
    texts = folder.take(scratch.TEXTS)
    queries = measured.known(texts, folder.take(scratch.CROWDED))
    queries = queries.of(np.flatnonzero(held_out.select_reporting_half(texts)))
    asking = Asking.from_index(entry, work.job.plan.metric)
    if entry.recall is None:  # nothing was found, at any nprobe
        answers = Candidates.none(len(queries.texts), asking.depth, asking.nprobes)
    else:
        answers = queries.found.narrow(asking.nprobes)
    queries = replace(queries, found=answers)
    return IndexFileEntry(*folder.write(queries.to_bytes(), "queries"))


def _count_query_bytes(choice: ChoiceEntry, plan: IndexPlan, entry: IndexEntry) -> ChoiceEntry:
    """Return the choice with the bytes that a query reads, as tuned over all rows."""
    uneven = entry.trained.imbalance or 1.0
    read = query_bytes(plan, entry.rows, entry.nprobe, entry.rerank, uneven)
    return replace(choice, query_bytes=round(read))


def _explain_miss(request: IndexRequest, entry: IndexEntry) -> DataGateError | None:
    """Return the error of a built index that misses its target recall by more than chance."""
    recall = entry.recall
    if recall is None or recall.high >= request.target:
        return None
    lists = f" in {entry.nprobe} lists" if entry.nprobe else ""
    reached = (
        f"{entry.factory} reaches recall@{recall.k} {recall.value:.4f} ({recall.low:.4f} to"
        f" {recall.high:.4f}){lists}"
    )
    return DataGateError(
        f"{cite('target_recall')} {request.target:g}: {reached}; ask for less, or for another"
        f" {cite('index')}"
    )
