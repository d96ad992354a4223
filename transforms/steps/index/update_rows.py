"""The rows of an index update: rows of added shards that the index has already, and new rows.

A step sends rows of each source apart. All rows for one reader (a bucket, a segment or a group of
new rows) are gathered into a file, in the order of the sources.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow_arrays import as_hashes, as_keys
from sentence_beam.transforms.base.errors import DamagedIndexError, SentenceBeamError
from sentence_beam.transforms.base.pairing import pair_rows
from sentence_beam.transforms.steps.index import matching, scratch
from sentence_beam.transforms.steps.index.held_out import choose_held_out
from sentence_beam.transforms.steps.index.update import (
    ADDED,
    HELD_OUT,
    REMOVED,
    STANDING,
    IndexUpdate,
    IndexUpdateJob,
)
from sentence_beam.transforms.store.index_entries import SegmentEntry
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.index_files.locator_file import read_rows_in
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.shards.shard_reading import check_shard, read_shard

MOVED = "moved"
NEW = "new"
HELD = "held"
SCHEMAS = {
    ADDED: matching.ADDED,
    REMOVED: matching.REMOVED,
    MOVED: matching.MOVED,
    NEW: matching.NEW,
    HELD: matching.NEW,
}
Reader = tuple[str, int]  # the kind of rows, and the number of the bucket, segment or group


@dataclass(frozen=True)
class SentRows:
    """Rows of a source for a reader, packed."""

    job: IndexUpdateJob
    reader: Reader
    source: int
    data: bytes


def send(job: IndexUpdateJob, reader: Reader, source: int, rows: pa.Table) -> SentRows:
    """Return the rows of a source for a reader."""
    return SentRows(job, reader, source, matching.to_bytes([rows]))


def send_by_bucket(
    job: IndexUpdateJob, kind: str, source: int, buckets: list[pa.Table]
) -> Iterator[SentRows]:
    """Yield the rows of a source for each bucket that has any."""
    for bucket, rows in enumerate(buckets):
        if len(rows):
            yield send(job, (kind, bucket), source, rows)


def send_nothing(job: IndexUpdateJob, readers: Iterable[Reader]) -> Iterator[SentRows]:
    """Yield no rows for each reader, so that it finds a file."""
    for kind, number in readers:
        yield send(job, (kind, number), -1, SCHEMAS[kind].empty_table())


def gather(reader: Reader, sent_rows: Iterable[SentRows]) -> IndexUpdateJob:
    """Write all rows for a reader as a file, and return their job.

    Removed rows are in a table for each segment, all others in one.
    """
    kind, number = reader
    by_source = {rows.source: rows for rows in sent_rows}
    job = next(iter(by_source.values())).job
    tables = {source: _unpack(kind, by_source[source].data) for source in sorted(by_source)}
    parts = [pa.concat_tables([SCHEMAS[kind].empty_table(), *tables.values()])]
    if kind == REMOVED:
        none = SCHEMAS[kind].empty_table()
        parts = [tables.get(segment, none) for segment in job.update().segments]
    job.folder.put(scratch.gathered(kind, number), matching.to_bytes(parts))
    return job


def take(job: IndexUpdateJob, kind: str, number: int) -> pa.Table:
    """Return the rows that were gathered for a reader."""
    return job.folder.tables(scratch.gathered(kind, number), SCHEMAS[kind], 0)[0]


def take_removed(job: IndexUpdateJob, bucket: int) -> dict[int, pa.Table]:
    """Return the removed rows that were gathered for a bucket, by segment."""
    segments = job.update().segments
    name = scratch.gathered(REMOVED, bucket)
    tables = job.folder.tables(name, matching.REMOVED, 0, len(segments))
    return dict(zip(segments, tables, strict=True))


def _unpack(kind: str, data: bytes) -> pa.Table:
    return matching.read(lambda start, stop: data[start:stop], SCHEMAS[kind], 0)[0]


@dataclass(frozen=True)
class Reading:
    """The end of a reading: sound, a damaged file of the last index, or a damaged shard."""

    damaged: str | None = None
    problem: Problem | None = None


@dataclass(frozen=True)
class MatchedRows:
    """The counts of one matched bucket, or of all buckets.

    `deleted` rows by segment, `new` rows of the lists by group, and rows that `moved`. `held` new
    rows are held out; `crowded` texts (hex) have too many copies from now on to be held out.
    """

    deleted: dict[int, int]
    new: dict[int, int]
    moved: int
    held: int
    crowded: tuple[str, ...]

    @classmethod
    def none(cls) -> "MatchedRows":
        """Return the counts of no rows."""
        return cls({}, {}, 0, 0, ())

    @classmethod
    def from_matches(cls, update: IndexUpdate, matches: Sequence["MatchedRows"]) -> "MatchedRows":
        """Return the sums over the buckets of an update."""
        groups = range(len(update.added))
        return cls(
            deleted={
                number: sum(match.deleted.get(number, 0) for match in matches)
                for number in update.segments
            },
            new={group: sum(match.new.get(group, 0) for match in matches) for group in groups},
            moved=sum(match.moved for match in matches),
            held=sum(match.held for match in matches),
            crowded=tuple(sorted({text for match in matches for text in match.crowded})),
        )


@progress.stage("index: reading what has changed")
def read(job: IndexUpdateJob, kind: str, number: int) -> tuple[Reading, list[SentRows]]:
    """Return how the reading of a group or a segment ended, and its texts and ids by bucket."""
    update = job.update()
    try:
        if kind == ADDED:
            rows_to_send = _read_group(job, update, number)
        else:
            job.folder.check(update.segments[number])
            if kind == STANDING:
                return Reading(), []
            rows_to_send = _read_segment(job, update, update.segments[number])
    except DamagedIndexError as error:
        return Reading(damaged=job.folder.relative(error)), []
    except SentenceBeamError as error:
        return Reading(problem=Problem.from_error(error)), []
    rows = list(
        send_by_bucket(job, kind, number, matching.cut_by_bucket(rows_to_send, update.buckets))
    )
    if kind == REMOVED and number == min(update.segments):
        buckets = range(update.buckets)
        rows += send_nothing(
            job, [(kind, bucket) for kind in (ADDED, REMOVED) for bucket in buckets]
        )
    return Reading(), rows


def _read_group(job: IndexUpdateJob, update: IndexUpdate, group: int) -> pa.Table:
    first = int(update.group_starts[group])
    tables = []
    for place, shard in enumerate(update.added[group]):
        start = 0
        check_shard(
            job.folder.stored(shard), update.sha256_of[shard], update.checksums.get(shard, "")
        )
        for batch in read_shard(job.folder.stored(shard), ["row_hash", "id"]):
            shards = pa.array(np.full(batch.num_rows, first + place, np.int32))
            rows = pa.array(np.arange(start, start + batch.num_rows))
            columns = [batch.column("row_hash"), batch.column("id"), shards, rows]
            tables.append(pa.table(columns, schema=matching.ADDED))
            start += batch.num_rows
    return pa.concat_tables([matching.ADDED.empty_table(), *tables])


def _read_segment(job: IndexUpdateJob, update: IndexUpdate, segment: SegmentEntry) -> pa.Table:
    """Return the rows of a segment in removed shards; leave the held-out segment's rows."""
    if segment.kind == HELD_OUT:
        locator = locators.from_bytes(job.folder.locator(segment), ["row_hash", "shard"])
        live = np.flatnonzero(locator.column("shard").is_valid().to_numpy())
        held = (
            locator.select(["row_hash"]).take(pa.array(live)).append_column("local", pa.array(live))
        )
        buckets = matching.cut_by_bucket(held.cast(matching.HELD), update.buckets)
        job.folder.put(scratch.HELD_OUT_ROWS, matching.to_bytes(buckets))
    rows = read_rows_in(job.root, segment, set(update.removed))
    return rows.select(matching.REMOVED.names).cast(matching.REMOVED)


@progress.stage("index: matching rows")
def match(job: IndexUpdateJob, bucket: int) -> tuple[MatchedRows, list[SentRows]]:
    """Return the counts of one bucket, and its moved and deleted rows by segment, new ones by
    group.
    """
    update = job.update()
    by_segment = take_removed(job, bucket)
    removed = pa.concat_tables(by_segment.values())
    added = take(job, ADDED, bucket)
    kept, place = pair_rows(removed, added, by="row_hash", first="id")

    ends = np.cumsum([0, *map(len, by_segment.values())])
    table = _place_removed(removed, added, kept, place)
    moves = {
        n: table.slice(start, len(by_segment[n]))
        for n, start in zip(by_segment, ends, strict=False)
    }
    unmatched = np.ones(len(added), bool)
    unmatched[place] = False
    held_texts = _find_held_texts(job, update, bucket, moves)
    new, held, crowded = _sort_new_rows(job, update, added.filter(pa.array(unmatched)), held_texts)
    counts = MatchedRows(
        deleted={
            n: int(np.count_nonzero(table.column("shard").to_numpy() < 0))
            for n, table in moves.items()
        },
        new={group: len(table) for group, table in enumerate(new)},
        moved=len(kept),
        held=len(held),
        crowded=crowded,
    )
    rows = {(MOVED, segment): table for segment, table in moves.items()}
    rows |= {(NEW, group): table for group, table in enumerate(new)}
    rows[HELD, 0] = held
    sending = [send(job, reader, bucket, table) for reader, table in rows.items() if len(table)]
    if bucket == 0:
        sending += send_nothing(job, rows)
    return counts, sending


def _place_removed(
    removed: pa.Table, added: pa.Table, kept: np.ndarray, place: np.ndarray
) -> pa.Table:
    """Return the new place of each row of the removed shards; shard -1 for deleted rows."""
    where = np.full(len(removed), -1)
    where[kept] = place
    places = added.select(["shard", "row", "id"]).take(pa.array(where, mask=where < 0))
    shard, row = (places.column(name).combine_chunks().fill_null(-1) for name in ("shard", "row"))
    return pa.table(
        [removed.column("local"), shard, row, places.column("id")], schema=matching.MOVED
    )


def _sort_new_rows(
    job: IndexUpdateJob, update: IndexUpdate, rows: pa.Table, held_texts: np.ndarray
) -> tuple[list[pa.Table], pa.Table, tuple[str, ...]]:
    """Return new rows of the lists by group, those held out, and new crowded texts."""
    hashes = as_hashes(rows.column("row_hash").combine_chunks())
    below = int(update.current.trained.held_out_below, 16)
    held, crowded = choose_held_out(
        hashes, below, as_keys(job.folder.take(scratch.WAS_CROWDED)), held_texts
    )
    table = rows.select(["shard", "row"]).cast(matching.NEW)
    group = np.searchsorted(update.group_starts, table.column("shard").to_numpy(), "right") - 1
    by_group = [
        table.filter(pa.array((group == number) & ~held)) for number in range(len(update.added))
    ]
    return (
        by_group,
        table.filter(pa.array(held)),
        tuple(text.ljust(16, b"\0").hex() for text in crowded.tolist()),
    )


def _find_held_texts(
    job: IndexUpdateJob, update: IndexUpdate, bucket: int, moves: dict[int, pa.Table]
) -> np.ndarray:
    """Return the keys of the bucket's rows that stay held out."""
    if update.held_out is None:
        return np.empty(0, "S16")
    (held,) = job.folder.tables(scratch.HELD_OUT_ROWS, matching.HELD, bucket)
    gone = moves[update.held_out.number]
    deleted = gone.column("local").to_numpy()[gone.column("shard").to_numpy() < 0]
    stays = ~np.isin(held.column("local").to_numpy(), deleted)
    return as_keys(as_hashes(held.column("row_hash").combine_chunks())[stays])
