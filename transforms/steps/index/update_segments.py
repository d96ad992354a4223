"""The segments of an index update: deltas of new rows, changed locators, compaction.

A segment's file is never written again. If segments are compacted, their codes are copied into a
new one.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from operator import attrgetter

import numpy as np
import pyarrow as pa

from transforms.base import progress
from transforms.base.errors import DamagedIndexError
from transforms.index import SegmentFile, TrainedIndex, train
from transforms.index.choose import plan_for
from transforms.index.refine import RefineWriter, row_type
from transforms.index.segment import SegmentWriter
from transforms.index.upkeep import Compaction, SegmentRows, compaction
from transforms.steps.index import matching, scratch
from transforms.steps.index.files import group_by_size, most_rows
from transforms.steps.index.update import HELD_OUT, IndexUpdate, IndexUpdateJob, SegmentState
from transforms.steps.index.update_recall import (
    BuiltSegment,
    SegmentBuild,
    known_neighbours,
    leave_queries,
    leave_segment_recall,
)
from transforms.steps.index.update_rows import BucketMatch
from transforms.store.entries import ChangeEntry
from transforms.store.index_files import files as index_files
from transforms.store.index_files import locators
from transforms.store.shards.reading import take_rows

BLOCK_ROWS = 10_000


@dataclass(frozen=True)
class TargetSegment:
    """A segment of the updated index: its current segments and groups with new rows.

    If it is not to be rewritten it is its only source, whose file stays.
    """

    number: int
    kind: str
    sources: tuple[int, ...]
    groups: tuple[int, ...] = ()
    rewrite: bool = True


@dataclass(frozen=True)
class RowSource:
    """The rows of a segment that is rewritten, or the new rows of a group."""

    rows: int
    segment: int | None = None
    group: int | None = None


def decide(
    matches: list[tuple[IndexUpdateJob, BucketMatch]],
) -> Iterator[tuple[IndexUpdateJob, TargetSegment]]:
    """The segments of the updated index, each to be built; left for that: the queries, and the
    counts of the change.

    1. A segment that has no row left goes.
    2. `compaction` says which segments are worn (a fifth of their rows deleted) or deltas that have
       piled up; if one segment is asked for, it is all of them. A segment that would be
       rewritten alone, and for no deleted rows, stays: it is a base segment from now on.
    3. The other segments stay as files. Those to rewrite are packed in order into new base
       segments, together with the new rows if the compaction takes these in; otherwise new rows
       become delta segments. Each gets a new number.
    4. The held-out segment is written again as a whole if rows join it: it is small, and every
       search scans it.
    """
    job = matches[0][0]
    found = [match for _, match in matches]
    update = job.update()
    deleted = {number: sum(match.deleted[number] for match in found) for number in update.segments}
    new = {group: sum(match.new[group] for match in found) for group in range(len(update.added))}
    held = sum(match.held for match in found)

    parts = [
        SegmentRows(
            segment.number,
            segment.kind == "delta",
            segment.rows,
            segment.live - deleted[segment.number],
        )
        for segment in update.segments.values()
        if segment.kind != HELD_OUT and segment.live > deleted[segment.number]
    ]
    due = _compaction(update, parts, sum(new.values()))
    rewritten = [part for part in parts if part.number in due.numbers]
    groups = [group for group, rows in new.items() if rows]
    if len(rewritten) == 1 and not rewritten[0].worn and not (due.with_new and groups):
        rewritten = []

    targets = []
    for part in parts:
        if part not in rewritten:
            if part.number in due.numbers:
                kind = "base"
            else:
                kind = update.segments[part.number].kind
            targets.append(TargetSegment(part.number, kind, (part.number,), rewrite=False))

    limit = most_rows(job.plan(update), update.rows, update.merge or update.request.merge)
    into_base = [RowSource(part.live, segment=part.number) for part in rewritten]
    into_deltas = [RowSource(new[group], group=group) for group in groups]
    if due.with_new:
        into_base = [*into_base, *into_deltas]
        into_deltas = []
    written = [("base", items) for items in group_by_size(into_base, attrgetter("rows"), limit)]
    written += [("delta", items) for items in group_by_size(into_deltas, attrgetter("rows"), limit)]
    for number, (kind, items) in enumerate(written, start=1 + max(update.segments)):
        sources = tuple(item.segment for item in items if item.segment is not None)
        new_rows = tuple(item.group for item in items if item.group is not None)
        targets.append(TargetSegment(number, kind, sources, new_rows))
    compacted = any(target.rewrite and target.sources for target in targets)

    current = update.held_out
    if current is not None and (held or current.live > deleted[current.number]):
        targets.append(
            TargetSegment(current.number, HELD_OUT, (current.number,), rewrite=bool(held))
        )
    elif held:
        number = 1 + max([*update.segments, *(target.number for target in targets)])
        targets.append(TargetSegment(number, HELD_OUT, ()))

    leave_queries(job, update, sorted({text for match in found for text in match.crowded}))
    change = ChangeEntry(
        what="compacted" if compacted else "followed",
        why=due.why if compacted else "",
        added=sum(new.values()) + held,
        deleted=sum(deleted.values()),
        moved=sum(match.moved for match in found),
    )
    decision = {"targets": [asdict(target) for target in targets], "change": change.to_json()}
    job.folder.put(scratch.DECISION, json.dumps(decision, sort_keys=True).encode())
    yield from ((job, target) for target in targets)


def _compaction(update: IndexUpdate, parts: list[SegmentRows], new_rows: int) -> Compaction:
    """Return the segments to rewrite; all if one segment is wanted and there is a reason."""
    due = compaction(parts, new_rows)
    everything = frozenset(part.number for part in parts)
    if update.merge and len(parts) + (new_rows > 0) > 1:
        return Compaction(everything, True, "one segment was asked for")
    if due.why and update.request.merge:
        return replace(due, numbers=everything, with_new=True)
    return due


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
    locator = locators.LocatorBuilder([copied] if len(copied) else [])
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
    first, count = (0, 1) if held else (groups[0], groups[-1] - groups[0] + 1) if groups else (0, 0)
    name = scratch.held if held else scratch.new
    buckets = range(update.buckets) if count else range(0)
    found = [job.folder.tables(name(bucket), matching.NEW, first, count) for bucket in buckets]
    table = pa.concat_tables(
        [matching.NEW.empty_table(), *(part for parts in found for part in parts)]
    )
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
