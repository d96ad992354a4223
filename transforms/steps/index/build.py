"""Building an index over a store's shards: plan, segments, recall."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow import as_keys
from sentence_beam.transforms.base.pairs import group_by_size
from sentence_beam.transforms.index import (
    Candidates,
    ExactNeighbours,
    IndexPlan,
    nprobe_grid,
    sample_threshold,
)
from sentence_beam.transforms.index.budgets import MOST_LISTS
from sentence_beam.transforms.index.choose import depth_for
from sentence_beam.transforms.index.recall import tuned
from sentence_beam.transforms.index.refine import RefineWriter
from sentence_beam.transforms.index.segment import SegmentWriter
from sentence_beam.transforms.index.upkeep import imbalance
from sentence_beam.transforms.index.vectors import scored_by
from sentence_beam.transforms.steps.index import choice as index_choice
from sentence_beam.transforms.steps.index import held_out, scratch
from sentence_beam.transforms.steps.index.answers import keep_answers
from sentence_beam.transforms.steps.index.files import (
    DEEP,
    Folder,
    K,
    closeness_of,
    layout_of,
    leave_recall,
    locate,
    most_rows,
    recall_grid,
    take_recall,
)
from sentence_beam.transforms.steps.index.listed import ListedSource, leave_listed
from sentence_beam.transforms.steps.index.ranges import (
    RangeSpan,
    leave_exact,
    leave_range_recall,
    spans,
    write_range,
)
from sentence_beam.transforms.steps.index.update import IndexUpdateJob, ShardRows
from sentence_beam.transforms.store.index_entries import (
    ChangeEntry,
    ChoiceEntry,
    IndexEntry,
    IndexFileEntry,
    IndexRequest,
    SegmentEntry,
    TrainedEntry,
    TunedRecallEntry,
)
from sentence_beam.transforms.store.index_files import files as index_files
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.facts import IndexRecord, RunFact

PREFIX = "index"


@dataclass(frozen=True)
class IndexJob:
    """An index build: place, plan, reason, and thresholds for sampled and held-out rows.

    `times` counts the trainings up to this one, so that a rebuilt index equals none before it.
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
    why: str
    times: int = 1
    unit: bool = True
    required: bool = False
    choice: ChoiceEntry | None = None
    most_lists: int = MOST_LISTS

    @property
    def folder(self) -> Folder:
        """The files that the steps read and write."""
        return Folder(self.root, self.run, PREFIX, self.metric)

    @property
    def held_out_below(self) -> int:
        """The threshold on `held_out_keys` under which a text is held out."""
        return held_out.held_out_below(self.rows)

    def refine_writer(self) -> RefineWriter | None:
        """Return the writer of a segment's vectors; None if the plan needs none."""
        return RefineWriter(self.plan.dim) if self.plan.rerank else None

    @property
    def sample_below(self) -> int:
        """The threshold on `sample_keys` under which a row is sampled.

        It allows some more rows, because held-out ones are left out.
        """
        wanted = self.plan.train_rows
        if wanted:
            return sample_threshold(wanted + wanted // 5 + 1, self.rows)
        return 0


@dataclass(frozen=True)
class ShardGroup:
    """Shards that make one segment: their paths relative to the store, and the sha256 of each."""

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

    path: str
    sha256: str
    rows: int
    held_out: SegmentEntry | None


@dataclass(frozen=True)
class BuildWork:
    """A group of a build whose quantizer is trained, to be built."""

    job: IndexJob
    trained: Trained
    group: ShardGroup


@dataclass(frozen=True)
class BuiltGroup:
    """A built group: a segment without lists, or rows left by list; neither if it has no rows."""

    work: BuildWork
    segment: SegmentEntry | None = None
    listed: ListedSource | None = None


@dataclass(frozen=True)
class RangeWork:
    """A segment of a build, or a range that is to be written; neither if there are no rows."""

    job: IndexJob
    trained: Trained
    segment: SegmentEntry | None = None
    span: RangeSpan | None = None


def begin(
    job: IndexUpdateJob,
    shards: list[ShardRows],
    request: IndexRequest,
    last: IndexEntry | None,
    why: str,
    *,
    unit: bool,
    required: bool = False,
) -> list[TrainingGroup]:
    """Return the groups of a build: shards in order, cut into segments of even size.

    `why` says in one line why the `last` index is not updated, if there is one, `unit` that all
    rows are of length 1, `required` that the run fails if a requested recall is not reached.
    """
    rows = sum(n for _, n, _ in shards)
    plan = index_choice.plan_of(request, rows, job.dim, scored_by(job.metric), unit)
    times = 1 + last.trained.times if last else 1
    found = IndexJob(job.root, job.run, plan, rows, request, job.metric, why, times, unit, required)
    cut = group_by_size(shards, lambda shard: shard[1], most_rows(plan, rows, request.merge))
    groups = [
        ShardGroup(
            number, tuple(path for path, _, _ in part), tuple(sha256 for _, _, sha256 in part)
        )
        for number, part in enumerate(cut)
    ]
    return [TrainingGroup(found, group) for group in groups]


def build(work: BuildWork) -> BuiltGroup:
    """Code the rows of a group that are not held out, and leave its neighbours of the queries.

    The group's segment is written if it has no lists; else its rows are left by list.
    """
    job = work.job
    trained = work.trained
    group = work.group
    folder = job.folder
    base = group.number << 32
    exact = ExactNeighbours(folder.take(scratch.QUERIES), DEEP, job.plan.metric)
    texts = as_keys(folder.take(scratch.TEXTS))
    locator = locators.LocatorBuilder()
    writer = SegmentWriter(index_files.read(folder.stored(trained.path), trained.sha256))
    refine = job.refine_writer()
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
        source = ListedSource(
            group.number, writer.rows, writer.code_size, (writer.closeness or 0.0) * writer.rows
        )
        kept = refine.rows() if refine else None
        leave_listed(
            folder, group.number, writer.by_list(), 0, job.plan.nlist, locator.table(), kept
        )
        folder.put(scratch.listed_exact(group.number), exact.to_bytes())
        return BuiltGroup(work, listed=source)
    segment = folder.segment(group.number, "base", writer.finish(), locator.table(), refine)
    leave_recall(
        folder, segment, writer.trained, exact, None, depth_for(DEEP, job.plan.rerank), _grid(job)
    )
    return BuiltGroup(work, segment)


def _grid(job: IndexJob) -> list[int]:
    return nprobe_grid(job.plan.nlist, job.most_lists)


def cut(built: list[BuiltGroup]) -> Iterator[RangeWork]:
    """Yield the segments without lists, or the ranges to write of the rows left by list."""
    built = sorted(built, key=lambda group: group.work.group.number)
    job = built[0].work.job
    trained = built[0].work.trained
    sources = [group.listed for group in built if group.listed is not None]
    segments = [group.segment for group in built if group.segment is not None]
    if sources:
        leave_exact(job.folder, sources, job.plan.metric)
        held = trained.held_out.number if trained.held_out else -1
        numbers = (number for number in itertools.count() if number != held)
        found = spans(job.folder, job.plan, sources, (), numbers)
        yield from (RangeWork(job, trained, span=span) for span in found)
    elif segments:
        yield from (RangeWork(job, trained, segment) for segment in segments)
    else:
        yield RangeWork(job, trained)


@progress.stage("index: writing ranges")
def write(work: RangeWork) -> RangeWork:
    """Write a range, and leave its neighbours of the queries; a segment passes."""
    if work.span is None:
        return work
    job = work.job
    written = write_range(job.folder, work.span, job.plan)
    depth = depth_for(DEEP, job.plan.rerank)
    trained = (work.trained.path, work.trained.sha256)
    leave_range_recall(job.folder, written, trained, job.plan.metric, depth, _grid(job))
    return RangeWork(job, work.trained, written.segment)


def conclude(built: list[RangeWork]) -> Iterator[RunFact]:
    """Yield the index of all segments, with recall over all; a problem if it misses the request."""
    first = built[0]
    segments = [work.segment for work in built if work.segment is not None]
    with progress.stage("index: measuring recall"):
        entry = index_entry(first.job, first.trained, segments)
    missed = None
    if first.job.required:
        missed = index_choice.missed(first.job.request, entry)
    if missed is not None:
        yield RunFact(problem=Problem.of(missed))
    else:
        yield RunFact(index=IndexRecord(entry))


def index_entry(job: IndexJob, trained: Trained, built: list[SegmentEntry]) -> IndexEntry:
    """Return the manifest's entry of the index, with recall measured over all segments."""
    segments = sorted(built, key=lambda segment: segment.number)
    folder = job.folder
    texts = folder.take(scratch.TEXTS)
    exact, found, sizes = take_recall(
        folder, folder.take(scratch.QUERIES), job.plan.metric, segments, job.plan.nlist
    )
    target = job.request.target
    half = held_out.tuning_half(texts)
    recall = None
    deep = None
    nprobe = job.plan.nprobe
    rerank = job.plan.rerank
    if found is not None:
        recall = tuned_recall(exact.at(K), found, job.plan.rerank, target, half)
        deep = tuned_recall(exact.at(DEEP), found, job.plan.rerank, target, half)
    if recall is not None:
        nprobe = recall.nprobe
        rerank = recall.rerank
    reported = held_out.reporting_half(texts)
    gains, positions, bound = (array[reported] for array in exact.lists())
    known = held_out.KnownQueries(
        texts[reported], gains, positions, bound, folder.take(scratch.CROWDED)
    )
    listed = list(segments)
    if trained.held_out is not None:
        listed.append(trained.held_out)
    entry = IndexEntry(
        request=job.request,
        factory=job.plan.factory,
        metric=job.metric,
        nprobe=nprobe,
        rerank=rerank,
        rows=sum(segment.rows for segment in listed),
        segments=tuple(listed),
        trained=TrainedEntry(
            path=trained.path,
            sha256=trained.sha256,
            times=job.times,
            rows=trained.rows,
            corpus=job.rows,
            held_out_below=f"{job.held_out_below:x}",
            recall=recall.value if recall else None,
            imbalance=imbalance(sizes),
            closeness=closeness_of(segments),
        ),
        queries=IndexFileEntry(*folder.write(known.to_bytes(), "parquet")),
        recall=recall,
        recall_100=deep,
        change=ChangeEntry("trained", job.why, added=job.rows, deleted=0, moved=0),
        layout=layout_of(listed),
    )
    entry = replace(entry, segments=_with_answers(folder, entry, texts, reported))
    if job.choice:
        return replace(entry, choice=index_choice.settled(job.choice, job.plan, entry))
    return entry


def _with_answers(
    folder: Folder, entry: IndexEntry, texts: np.ndarray, reported: np.ndarray
) -> tuple[SegmentEntry, ...]:
    """Return the segments of an index; each range keeps its answers to the reported queries."""
    grid = recall_grid(entry)
    found = []
    for segment in entry.segments:
        if segment.lists:
            answers = keep_answers(folder, segment, texts, reported, grid)
            segment = replace(segment, answers=answers)
        found.append(segment)
    return tuple(found)


def tuned_recall(
    exact: ExactNeighbours, found: Candidates, rerank: int, target: float, tuning: np.ndarray
) -> TunedRecallEntry | None:
    """Return recall at one k, with the nprobe tuned for it on some of the queries."""
    measured = tuned(exact, found, rerank, target, tuning)
    return TunedRecallEntry(**measured) if measured else None
