"""Writing the segments of an index update: deltas of new rows, changed locators, compaction.

A segment's file is never written again. If segments are compacted, their codes are copied into a
new one.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import DamagedIndexError, SentenceBeamError
from sentence_beam.transforms.index import SegmentFile, TrainedIndex, train
from sentence_beam.transforms.index.choose import depth_for, plan_for
from sentence_beam.transforms.index.refine import RefineWriter, row_type
from sentence_beam.transforms.index.segment import SegmentWriter, rows_by_list
from sentence_beam.transforms.index.spec import FLAT
from sentence_beam.transforms.steps.index import matching, scratch
from sentence_beam.transforms.steps.index.answers import KeptAnswers, ask_again, kept_answers
from sentence_beam.transforms.steps.index.exchange import HELD, NEW, take
from sentence_beam.transforms.steps.index.files import DEEP, recall_grid, trained_index
from sentence_beam.transforms.steps.index.listed import ListedSource, leave_listed
from sentence_beam.transforms.steps.index.repair import restore
from sentence_beam.transforms.steps.index.update import (
    HELD_OUT,
    IndexUpdate,
    IndexUpdateJob,
    Repair,
    SegmentState,
)
from sentence_beam.transforms.steps.index.update_decision import TargetSegment
from sentence_beam.transforms.steps.index.update_recall import (
    BuiltSegment,
    SegmentBuild,
    known_neighbours,
    leave_segment_recall,
)
from sentence_beam.transforms.store.index_entries import SegmentEntry
from sentence_beam.transforms.store.index_files import files as index_files
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.shards.reading import take_rows

BLOCK_ROWS = 10_000


@progress.stage("index: writing segments")
def build(job: IndexUpdateJob, target: TargetSegment) -> SegmentBuild:
    """Write the changes of a segment, and leave its part of the recall measurement.

    If one of its sources turns out to be damaged, that is made again alone.
    """
    update = job.update()
    try:
        return _built(job, update, target)
    except DamagedIndexError as error:
        damaged = SegmentBuild(damaged=job.folder.relative(error))
    try:
        repairs = _restored(job, update, target)
        if not repairs:
            return damaged
        why = "; ".join(one.why for one in repairs)
        return replace(_built(job, _with(update, repairs), target), restored=why)
    except SentenceBeamError:  # another file of the index is damaged, or a removed shard is gone
        return damaged


def _restored(job: IndexUpdateJob, update: IndexUpdate, target: TargetSegment) -> list[Repair]:
    """Make the damaged sources of a segment again. Raises DamagedIndexError if one cannot be."""
    repairs = []
    for number in target.sources:
        segment = update.segments[number]
        try:
            job.folder.check(segment)
        except DamagedIndexError as error:
            repairs.append(restore(job, update, segment, job.folder.relative(error)))
    return repairs


def _with(update: IndexUpdate, repairs: list[Repair]) -> IndexUpdate:
    """Return the update of the index with segments that were made again."""
    segments = {**update.segments, **{one.segment.number: one.segment for one in repairs}}
    return replace(update, current=replace(update.current, segments=tuple(segments.values())))


def _built(job: IndexUpdateJob, update: IndexUpdate, target: TargetSegment) -> SegmentBuild:
    """Return a segment, or its rows that are left by list."""
    sources = [_state(job, update, target, number) for number in target.sources]
    if target.listed:
        return SegmentBuild(listed=_listed(job, update, target, sources))
    if target.lists and not any(source.keep.any() for source in sources):
        return SegmentBuild()
    if target.rewrite:
        return SegmentBuild(_rewritten(job, update, target, sources))
    return SegmentBuild(_kept(job, update, target, sources[0]))


def _state(
    job: IndexUpdateJob, update: IndexUpdate, target: TargetSegment, number: int
) -> SegmentState:
    """Return a source of a segment, with those of its rows that the segment takes."""
    segment = update.segments[number]
    if segment.lists:
        return SegmentState(job, update, segment)
    return SegmentState(job, update, segment, target.lists, target.listed)


def _listed(
    job: IndexUpdateJob, update: IndexUpdate, target: TargetSegment, sources: list[SegmentState]
) -> ListedSource:
    """Leave the live rows of a segment, or the new rows of groups, by list."""
    if sources:
        return _listed_segment(job, update, sources[0], target.lists)
    return _listed_rows(job, update, target)


def _listed_segment(
    job: IndexUpdateJob,
    update: IndexUpdate,
    source: SegmentState,
    lists: tuple[tuple[int, int], ...],
) -> ListedSource:
    segment = source.segment
    if segment.lists:
        lists = lists or (segment.lists,)
    with job.folder.on_disk(segment) as path:
        listed = rows_by_list(path).only(source.keep)
    vectors = None
    if update.current.rerank:
        vectors = _vectors_by_row(job, source)
    first = segment.lists[0] if segment.lists else 0
    nlist = job.plan(update).nlist
    leave_listed(job.folder, segment.number, listed, first, nlist, source.table, vectors)
    numbers = np.where(source.keep, np.arange(segment.rows), -1)
    exact = known_neighbours(
        job, update, segment.number, {segment.number: numbers}, lambda: source.table
    )
    job.folder.put(scratch.listed_exact(segment.number), exact.to_bytes())
    rows = len(listed.rows)
    closeness = (segment.closeness or 0.0) * rows
    code_size = listed.codes.shape[1]
    return ListedSource(segment.number, rows, code_size, closeness, lists)


def _listed_rows(job: IndexUpdateJob, update: IndexUpdate, target: TargetSegment) -> ListedSource:
    writer = SegmentWriter(_trained(job, update))
    locator = locators.LocatorBuilder()
    refine = RefineWriter(job.dim) if update.current.rerank else None
    exact = known_neighbours(job, update, target.number, {}, locators.SCHEMA.empty_table)
    for vectors in _new_vectors(job, _new_rows(job, update, target.groups, False), locator):
        exact.add(vectors, (target.number << 32) + writer.rows)
        writer.add(vectors)
        if refine:
            refine.add(vectors)
    kept = refine.rows() if refine else None
    nlist = job.plan(update).nlist
    leave_listed(job.folder, target.number, writer.by_list(), 0, nlist, locator.table(), kept)
    job.folder.put(scratch.listed_exact(target.number), exact.to_bytes())
    closeness = (writer.closeness or 0.0) * writer.rows
    return ListedSource(target.number, writer.rows, writer.code_size, closeness, is_new=True)


def _vectors_by_row(job: IndexUpdateJob, source: SegmentState) -> np.ndarray:
    """Return the kept vectors of a segment by local row, of `row_type`; deleted rows have any."""
    refine = RefineWriter(job.dim)
    _copy_vectors(job, source, refine)
    vectors = np.zeros(source.segment.rows, row_type(job.dim))
    vectors[source.keep] = refine.rows()
    return vectors


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
        kept = _kept_answers(job, update, segment)
        trained = _opened_trained(job, update)
        if kept is not None:
            asked = ask_again(job.folder, segment, trained, exact, state.keep, kept)
            return BuiltSegment(segment, segment.rows, asked=asked)
        keep = state.keep if segment.deleted else None
        leave_segment_recall(job, update, (segment, trained), exact, keep)
    return BuiltSegment(segment, segment.rows)


def _kept_answers(
    job: IndexUpdateJob, update: IndexUpdate, segment: SegmentEntry
) -> KeptAnswers | None:
    """Return what a range answered to the queries before; None if it has to be asked."""
    current = update.current
    depth = depth_for(DEEP, current.rerank)
    return kept_answers(job.folder, segment, depth, recall_grid(current))


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
            plan_for(FLAT, 0, job.dim, update.metric),
            np.empty((0, job.dim), np.float32),
        )
    return _trained(job, update)


def _trained(job: IndexUpdateJob, update: IndexUpdate) -> bytes:
    """Return the trained index that the segments share.

    Raises DamagedIndexError if its file is not what was written.
    """
    trained = update.current.trained
    return index_files.read(job.folder.stored(trained.path), trained.sha256)


def _opened_trained(job: IndexUpdateJob, update: IndexUpdate) -> TrainedIndex:
    trained = update.current.trained
    return trained_index(job.folder, trained.path, trained.sha256)


def _new_rows(
    job: IndexUpdateJob, update: IndexUpdate, groups: tuple[int, ...], held: bool
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield shards with their new rows, ascending int64, in the shards' order.

    These are the held-out rows, or those of some groups.
    """
    if held:
        table = take(job, HELD, 0)
    else:
        tables = [take(job, NEW, group) for group in groups]
        table = pa.concat_tables([matching.NEW.empty_table(), *tables])
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
