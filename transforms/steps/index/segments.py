"""Writing the segments of an updated index, and the locators of those that stay.

A segment's file is never written again. If segments are joined or rewritten, their codes are copied
into new ones.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow_arrays import as_hashes, as_keys
from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.index import ExactNeighbours, SegmentFile, train
from sentence_beam.transforms.index.exact_vectors import RefineWriter, row_type
from sentence_beam.transforms.index.index_kinds import make_plan
from sentence_beam.transforms.index.index_spec import FLAT
from sentence_beam.transforms.index.segment import (
    SegmentWriter,
    read_flat_vectors,
    read_rows_by_list,
)
from sentence_beam.transforms.steps.index import index_recall, matching, scratch
from sentence_beam.transforms.steps.index.index_folder import choose_most_rows
from sentence_beam.transforms.steps.index.target_segments import (
    KEPT,
    SAME_RANGE,
    WRITTEN,
    TargetSegment,
    decide_segments,
)
from sentence_beam.transforms.steps.index.update import HELD_OUT, IndexUpdate, IndexUpdateJob
from sentence_beam.transforms.steps.index.update_rows import HELD, MOVED, NEW, MatchedRows, take
from sentence_beam.transforms.steps.index.written_ranges import (
    ListedSource,
    RangeSpan,
    cut_spans,
    keep_spans,
    leave_listed,
    leave_written,
    write_range,
)
from sentence_beam.transforms.store.index_entries import SegmentEntry
from sentence_beam.transforms.store.index_files import checked_files as index_files
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.shards.shard_reading import take_rows

BLOCK_ROWS = 10_000
LOCAL = 0xFFFFFFFF  # the bits of a position that are the row in its segment


@dataclass(frozen=True)
class SegmentBuild:
    """A segment, rows left by list, or the line that names a damaged file of the last index.

    None of these if there are no rows. A segment that was `kept` has the file of the last index.
    """

    segment: SegmentEntry | None = None
    kept: bool = False
    listed: ListedSource | None = None
    damaged: str | None = None


@dataclass(frozen=True)
class RangeTarget:
    """A segment that was built before, or a range to write."""

    built: SegmentBuild | None = None
    span: RangeSpan | None = None


def decide(
    matches: list[tuple[IndexUpdateJob, MatchedRows]],
) -> Iterator[tuple[IndexUpdateJob, TargetSegment]]:
    """Yield the segments of the updated index, each to be built.

    Leaves the queries, and the counts of the change.
    """
    job = matches[0][0]
    update = job.update()
    matched = MatchedRows.from_matches(update, [match for _, match in matches])
    decision = decide_segments(update, matched, choose_most_rows(job.plan(update), update.rows))
    leave_held_out_queries(job, update, matched.crowded)
    change = json.dumps(decision.change.to_json(), sort_keys=True)
    job.folder.put(scratch.CHANGE, change.encode())
    yield from ((job, target) for target in decision.targets)


def leave_held_out_queries(
    job: IndexUpdateJob, update: IndexUpdate, crowded: Sequence[str]
) -> None:
    """Leave the held-out texts to report on; `crowded` texts (hex) are so from now on."""
    queries = job.read_known_queries()
    vectors = np.empty((0, job.dim), np.float32)
    hashes = np.empty((0, 16), np.uint8)
    if update.held_out is not None:
        state = SegmentState(job, update.held_out)
        with job.folder.on_disk(update.held_out) as path:
            vectors = read_flat_vectors(path)[state.keep]
        hashes = as_hashes(state.table.column("row_hash").combine_chunks())[state.keep]
    before = queries.crowded
    if update.erased is not None:
        before = before[~np.isin(as_keys(before), as_keys(_parse_hashes(update.erased.crowded)))]
    every = np.concatenate([before, _parse_hashes(crowded)])
    index_recall.leave_queries(job.folder, queries, vectors, hashes, every)


def _parse_hashes(texts: Sequence[str]) -> np.ndarray:
    """Return hashes, given in hex, as uint8 [n, 16]."""
    return np.frombuffer(bytes.fromhex("".join(texts)), np.uint8).reshape(-1, 16)


@dataclass(frozen=True)
class SegmentState:
    """A current segment after the rows were matched."""

    job: IndexUpdateJob
    segment: SegmentEntry

    @cached_property
    def _moves(self) -> pa.Table:
        return take(self.job, MOVED, self.segment.number)

    @property
    def touched(self) -> bool:
        """Whether any of its rows moved or was deleted."""
        return len(self._moves) > 0

    @property
    def gone(self) -> np.ndarray:
        """The local rows that are deleted in this run, int64."""
        shard = self._moves.column("shard").to_numpy()
        return self._moves.column("local").to_numpy()[shard < 0]

    @cached_property
    def table(self) -> pa.Table:
        """Its locator, with the moves applied."""
        locator = locators.from_bytes(self.job.folder.locator(self.segment))
        if not self.touched:
            return locator
        local, shard, row = (
            self._moves.column(name).to_numpy() for name in ("local", "shard", "row")
        )
        ids = self._moves.column("id").combine_chunks()
        shards = self.job.update().added_shards
        return locators.moved(locator, locators.Moves(local, shard, row, ids, shards))

    @cached_property
    def keep(self) -> np.ndarray:
        """bool [n], False if a row is deleted."""
        if not self.touched and not self.segment.deleted:
            return np.ones(self.segment.rows, bool)
        alive: np.ndarray = self.table.column("shard").is_valid().to_numpy()
        return alive


@progress.stage("index: writing segments")
def build(job: IndexUpdateJob, target: TargetSegment) -> SegmentBuild:
    """Write the changes of a segment, and leave its part of the recall measurement."""
    update = job.update()
    sources = [SegmentState(job, update.segments[number]) for number in target.sources]
    try:
        if target.work == KEPT:
            return SegmentBuild(_keep(job, sources[0]), kept=True)
        if target.work == WRITTEN:
            return SegmentBuild(_write_segment(job, target, sources))
        if not sources:
            return SegmentBuild(listed=_list_new_rows(job, target))
        listed = _list_segment(job, sources[0])
        if target.work == SAME_RANGE:
            segment = sources[0].segment
            assert segment.lists is not None
            listed = replace(listed, same=(*segment.lists, segment.first_id))
        return SegmentBuild(listed=listed)
    except DamagedIndexError as error:
        return SegmentBuild(damaged=job.folder.relative(error))


def _list_segment(job: IndexUpdateJob, source: SegmentState) -> ListedSource:
    """Leave the live rows of a segment by list."""
    update = job.update()
    segment = source.segment
    with job.folder.on_disk(segment) as path:
        listed = read_rows_by_list(path).only(source.keep)
    vectors = None
    if update.current.rerank:
        vectors = np.zeros(segment.rows, row_type(job.dim))
        vectors[source.keep] = _read_vectors_beside(job, source)
    first = segment.lists[0] if segment.lists else 0
    nlist = job.plan(update).nlist
    leave_listed(job.folder, segment.number, listed, first, nlist, source.table, vectors)
    numbers = np.where(source.keep, np.arange(segment.rows), -1)
    exact = _find_known_neighbours(job, segment.number, {segment.number: numbers}, source.table)
    job.folder.put(scratch.listed_exact(segment.number), exact.to_bytes())
    rows = len(listed.rows)
    closeness = (segment.closeness or 0.0) * rows
    return ListedSource(segment.number, rows, listed.codes.shape[1], closeness)


def _list_new_rows(job: IndexUpdateJob, target: TargetSegment) -> ListedSource:
    """Leave the new rows of groups by list."""
    update = job.update()
    writer = SegmentWriter(_read_trained(job))
    locator = locators.LocatorBuilder()
    refine = RefineWriter(job.dim) if update.current.rerank else None
    exact = _find_known_neighbours(job, target.number, {}, locators.SCHEMA.empty_table())
    _add_new(job, target, (writer, refine, locator), exact)
    nlist = job.plan(update).nlist
    source = leave_written(job.folder, target.number, nlist, writer, locator.table(), refine, exact)
    return replace(source, is_new=True)


def _keep(job: IndexUpdateJob, state: SegmentState) -> SegmentEntry:
    """Return a segment whose file stays; its locator too, if none of its rows changed."""
    segment = job.folder.located(state.segment, state.table) if state.touched else state.segment
    if segment.kind != HELD_OUT:
        index_recall.leave_gone(job.folder, segment.number, job.read_known_queries(), state.gone)
        asking = job.update().asking
        index_recall.leave_unknown(job.folder, segment, asking, lambda: (state.keep, state.table))
    return segment


def _write_segment(
    job: IndexUpdateJob, target: TargetSegment, sources: list[SegmentState]
) -> SegmentEntry:
    """Return a new segment: the live rows of its sources by their codes, then new rows."""
    update = job.update()
    writer = SegmentWriter(_read_empty(job, target))
    numbers = {}
    refine = RefineWriter(job.dim) if update.current.rerank else None
    for source in sources:
        numbers[source.segment.number] = np.where(
            source.keep, np.cumsum(source.keep) - 1 + writer.rows, -1
        )
        with job.folder.on_disk(source.segment) as path:
            writer.copy(SegmentFile(path, source.keep), source.segment.closeness)
        if refine:
            refine.copy(_read_vectors_beside(job, source))
    first_new = writer.rows
    copied = locators.concat([source.table.filter(pa.array(source.keep)) for source in sources])
    locator = locators.LocatorBuilder()
    if len(copied):
        locator.batches.append(copied)
    is_measured = target.kind != HELD_OUT
    exact = _find_known_neighbours(job, target.number, numbers, copied) if is_measured else None
    _add_new(job, target, (writer, refine, locator), exact)
    segment = job.folder.segment(
        target.number, target.kind, writer.finish(), locator.table(), refine
    )
    if exact is not None:
        positions = exact.lists()[1]
        is_new = (positions >= 0) & (positions & LOCAL >= first_new)
        job.folder.leave(scratch.fresh(target.number), positions[is_new])
        index_recall.leave_recall(job.folder, segment, update.asking, exact)
    return segment


def _add_new(
    job: IndexUpdateJob,
    target: TargetSegment,
    written: tuple[SegmentWriter, RefineWriter | None, locators.LocatorBuilder],
    exact: ExactNeighbours | None,
) -> None:
    """Add the new rows of a segment to its writers, and to the queries' true neighbours."""
    writer, refine, locator = written
    for vectors in _read_new_vectors(job, target, locator):
        if exact is not None:
            exact.add(vectors, (target.number << 32) + writer.rows)
        writer.add(vectors)
        if refine:
            refine.add(vectors)


def _find_known_neighbours(
    job: IndexUpdateJob, target: int, numbers: dict[int, np.ndarray], locator: pa.Table
) -> ExactNeighbours:
    metric = job.update().metric
    return index_recall.find_known_neighbours(
        job.folder, job.read_known_queries(), metric, target, numbers, locator
    )


def _read_vectors_beside(job: IndexUpdateJob, source: SegmentState) -> np.ndarray:
    """Return the kept vectors of a segment's live rows, of `row_type`."""
    kept = source.segment.refine
    assert kept is not None
    data = index_files.read(job.folder.stored(kept.path), kept.sha256)
    return np.frombuffer(data, row_type(job.dim))[source.keep]


def _read_empty(job: IndexUpdateJob, target: TargetSegment) -> bytes:
    """Return the index without rows, as bytes, from which a segment starts."""
    if target.kind == HELD_OUT:
        plan = make_plan(FLAT, 0, job.dim, job.update().metric)
        return train(plan, np.empty((0, job.dim), np.float32))
    return _read_trained(job)


def _read_trained(job: IndexUpdateJob) -> bytes:
    """Return the trained index that the segments share.

    Raises DamagedIndexError if its file is not what was written.
    """
    trained = job.update().current.trained
    return index_files.read(job.folder.stored(trained.path), trained.sha256)


def _read_new_vectors(
    job: IndexUpdateJob, target: TargetSegment, locator: locators.LocatorBuilder
) -> Iterator[np.ndarray]:
    """Yield vectors of new rows, float32 [n, d], in blocks; add their places to the locator."""
    waiting: list[np.ndarray] = []
    for shard, rows in _find_new_rows(job, target):
        block = take_rows(
            job.folder.stored(shard), rows, ["id", "row_hash", "embedding"]
        ).combine_chunks()
        ids, hashes, vectors = (column.chunk(0) for column in block.columns)
        locator.add(shard, rows, ids, hashes)
        waiting.append(job.folder.vectors(vectors))
        if sum(map(len, waiting)) >= BLOCK_ROWS:
            yield np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)


def _find_new_rows(job: IndexUpdateJob, target: TargetSegment) -> Iterator[tuple[str, np.ndarray]]:
    """Yield shards with their rows that are new in a segment, ascending int64, in their order."""
    if target.kind == HELD_OUT:
        table = take(job, HELD, 0)
    else:
        tables = [take(job, NEW, group) for group in target.groups]
        table = pa.concat_tables([matching.NEW.empty_table(), *tables])
    shard, row = (table.column(name).to_numpy() for name in ("shard", "row"))
    order = np.lexsort((row, shard))
    numbers, starts = np.unique(shard[order], return_index=True)
    shards = job.update().added_shards
    for number, rows in zip(numbers.tolist(), np.split(row[order], starts[1:]), strict=False):
        yield shards[number], rows


def cut(
    results: list[tuple[IndexUpdateJob, SegmentBuild]],
) -> Iterator[tuple[IndexUpdateJob, RangeTarget]]:
    """Yield what was built, and the ranges to write of the rows that were left by list.

    If a file of the last index is damaged, no range is written.
    """
    job = results[0][0]
    builds = [build for _, build in results]
    sources = [build.listed for build in builds if build.listed is not None]
    targets = [RangeTarget(replace(build, listed=None)) for build in builds]
    if sources and not any(build.damaged for build in builds):
        update = job.update()
        sources.sort(key=attrgetter("number"))
        others = [build.segment.number for build in builds if build.segment is not None]
        numbers = itertools.count(1 + max([*update.segments, *others]))
        if sources[0].same is not None:
            ranges = keep_spans(job.folder, update.metric, sources, numbers)
        else:
            most_bytes = update.request.range_bytes
            ranges = cut_spans(job.folder, job.plan(update), most_bytes, sources, numbers)
        targets += [RangeTarget(span=span) for span in ranges]
    yield from ((job, target) for target in targets)


@progress.stage("index: writing ranges")
def write(job: IndexUpdateJob, target: RangeTarget) -> SegmentBuild:
    """Write a range, and leave its part of the recall measurement; what was built passes."""
    if target.span is None:
        return target.built or SegmentBuild()
    update = job.update()
    return SegmentBuild(write_range(job.folder, target.span, job.plan(update), update.asking))
