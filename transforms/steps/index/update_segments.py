"""Writing the segments of an index update: deltas of new rows, changed locators, compaction.

A segment's file is never written again. If segments are compacted, their codes are copied into a
new one.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from transforms.base import progress
from transforms.base.errors import DamagedIndexError
from transforms.index import SegmentFile, TrainedIndex, train
from transforms.index.choose import plan_for
from transforms.index.refine import RefineWriter, row_type
from transforms.index.segment import SegmentWriter
from transforms.steps.index import matching, scratch
from transforms.steps.index.update import HELD_OUT, IndexUpdate, IndexUpdateJob, SegmentState
from transforms.steps.index.update_decision import TargetSegment
from transforms.steps.index.update_recall import (
    BuiltSegment,
    SegmentBuild,
    known_neighbours,
    leave_segment_recall,
)
from transforms.store.index_files import files as index_files
from transforms.store.index_files import locators
from transforms.store.shards.reading import take_rows

BLOCK_ROWS = 10_000


@progress.stage("index: writing segments")
def build(job: IndexUpdateJob, target: TargetSegment) -> SegmentBuild:
    """Write the changes of a segment, and leave its part of the recall measurement."""
    update = job.update()
    sources = [SegmentState(job, update, update.segments[number]) for number in target.sources]
    try:
        if target.rewrite:
            return SegmentBuild(_rewritten(job, update, target, sources))
        return SegmentBuild(_kept(job, update, target, sources[0]))
    except DamagedIndexError as error:
        return SegmentBuild(damaged=job.folder.relative(error))


def _kept(
    job: IndexUpdateJob, update: IndexUpdate, target: TargetSegment, state: SegmentState
) -> BuiltSegment:
    """Return a segment whose file stays; its locator too, if none of its rows changed."""
    segment = replace(state.segment, kind=target.kind)
    if state.touched:
        segment = job.folder.located(segment, state.table)
    if target.kind != HELD_OUT:
        numbers = np.where(state.keep, np.arange(segment.rows), -1)
        exact = known_neighbours(
            job, update, target.number, {target.number: numbers}, lambda: state.table
        )
        keep = state.keep if segment.deleted else None
        leave_segment_recall(
            job, update, (segment, TrainedIndex.of(_trained(job, update))), exact, keep
        )
    return BuiltSegment(segment, segment.rows)


def _rewritten(
    job: IndexUpdateJob, update: IndexUpdate, target: TargetSegment, sources: list[SegmentState]
) -> BuiltSegment:
    """Return a new segment: the live rows of its sources by their codes, then new rows."""
    writer = SegmentWriter(_empty(job, update, target))
    numbers = {}
    refine = None
    if update.current.rerank:
        refine = RefineWriter(job.dim)
    for source in sources:
        numbers[source.segment.number] = np.where(
            source.keep, np.cumsum(source.keep) - 1 + writer.rows, -1
        )
        with job.folder.on_disk(source.segment) as path:
            writer.copy(SegmentFile(path, source.keep), source.segment.closeness)
        if refine:
            _copy_vectors(job, source, refine)
    first_new = writer.rows
    copied = locators.concat([source.table.filter(pa.array(source.keep)) for source in sources])
    locator = locators.LocatorBuilder()
    if len(copied):
        locator.batches.append(copied)
    held = target.kind == HELD_OUT
    if held:
        exact = None
    else:
        exact = known_neighbours(job, update, target.number, numbers, lambda: copied)
    for vectors in _new_vectors(job, _new_rows(job, update, target.groups, held), locator):
        if exact is not None:
            exact.add(vectors, (target.number << 32) + writer.rows)
        writer.add(vectors)
        if refine:
            refine.add(vectors)
    segment = job.folder.segment(
        target.number, target.kind, writer.finish(), locator.table(), refine
    )
    if exact is not None:
        leave_segment_recall(job, update, (segment, writer.trained), exact, None)
    return BuiltSegment(segment, first_new)


def _copy_vectors(job: IndexUpdateJob, source: SegmentState, refine: RefineWriter) -> None:
    """Append the vectors of a segment's live rows.

    Those of an earlier version's segment are read from the shards.
    """
    kept = source.segment.refine
    if kept:
        rows = np.frombuffer(
            index_files.read(job.folder.stored(kept.path), kept.sha256), row_type(job.dim)
        )
        refine.copy(rows[source.keep])
        return
    live = source.table.filter(pa.array(source.keep))
    numbers, names = locators.shards_of(live)
    places = live.column("row").to_numpy()
    for start in range(0, len(live), BLOCK_ROWS):
        shard = numbers[start : start + BLOCK_ROWS]
        row = places[start : start + BLOCK_ROWS]
        vectors = np.empty((len(row), job.dim), np.float32)
        for number in np.unique(shard):
            here = shard == number
            column = take_rows(job.folder.stored(names[number]), row[here], ["embedding"]).column(0)
            vectors[here] = job.folder.vectors(column.combine_chunks())
        refine.add(vectors)


def _empty(job: IndexUpdateJob, update: IndexUpdate, target: TargetSegment) -> bytes:
    """Return the index without rows, as bytes, from which a rewritten segment starts."""
    if target.kind == HELD_OUT:
        return train(
            plan_for("Flat", 0, job.dim, update.metric), np.empty((0, job.dim), np.float32)
        )
    return _trained(job, update)


def _trained(job: IndexUpdateJob, update: IndexUpdate) -> bytes:
    """Return the trained index that the segments share.

    Raises DamagedIndexError if its file is not what was written.
    """
    trained = update.current.trained
    return index_files.read(job.folder.stored(trained.path), trained.sha256)


def _new_rows(
    job: IndexUpdateJob, update: IndexUpdate, groups: tuple[int, ...], held: bool
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield shards with their new rows, ascending int64, in the shards' order.

    These are the held-out rows, or those of some groups.
    """
    tables = [matching.NEW.empty_table()]
    for bucket in range(update.buckets):
        if held:
            tables += job.folder.tables(scratch.held(bucket), matching.NEW, 0)
        elif groups:
            count = groups[-1] - groups[0] + 1
            tables += job.folder.tables(scratch.new(bucket), matching.NEW, groups[0], count)
    table = pa.concat_tables(tables)
    shard, row = (table.column(name).to_numpy() for name in ("shard", "row"))
    order = np.lexsort((row, shard))
    numbers, starts = np.unique(shard[order], return_index=True)
    for number, rows in zip(numbers.tolist(), np.split(row[order], starts[1:]), strict=False):
        yield update.added_shards[number], rows


def _new_vectors(
    job: IndexUpdateJob, new: Iterator[tuple[str, np.ndarray]], locator: locators.LocatorBuilder
) -> Iterator[np.ndarray]:
    """Yield vectors of new rows, float32 [n, d], in blocks; add their places to the locator."""
    waiting: list[np.ndarray] = []
    for shard, rows in new:
        found = take_rows(
            job.folder.stored(shard), rows, ["id", "row_hash", "embedding"]
        ).combine_chunks()
        ids, hashes, vectors = (column.chunk(0) for column in found.columns)
        locator.add(shard, rows, ids, hashes)
        waiting.append(job.folder.vectors(vectors))
        if sum(map(len, waiting)) >= BLOCK_ROWS:
            yield np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)
