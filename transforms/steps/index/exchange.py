"""Rows that steps of an index update send each other: grouped, then written as one file a reader.

A step sends rows of each source apart. All rows for one reader (a bucket, a segment or a group of
new rows) are gathered into a file, in the order of the sources.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from sentence_beam.transforms.steps.index import matching, scratch
from sentence_beam.transforms.steps.index.update import ADDED, REMOVED, IndexUpdateJob

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


def sent(job: IndexUpdateJob, reader: Reader, source: int, rows: pa.Table) -> SentRows:
    """Return the rows of a source for a reader."""
    return SentRows(job, reader, source, matching.to_bytes([rows]))


def sent_by_bucket(
    job: IndexUpdateJob, kind: str, source: int, buckets: list[pa.Table]
) -> Iterator[SentRows]:
    """Yield the rows of a source for each bucket that has any."""
    for bucket, rows in enumerate(buckets):
        if len(rows):
            yield sent(job, (kind, bucket), source, rows)


def nothing(job: IndexUpdateJob, readers: Iterable[Reader]) -> Iterator[SentRows]:
    """Yield no rows for each reader, so that it finds a file."""
    for kind, number in readers:
        yield sent(job, (kind, number), -1, SCHEMAS[kind].empty_table())


def gather(reader: Reader, found: Iterable[SentRows]) -> IndexUpdateJob:
    """Write all rows for a reader as a file, and return their job.

    Removed rows are in a table for each segment, all others in one.
    """
    kind, number = reader
    by_source = {one.source: one for one in found}
    job = next(iter(by_source.values())).job
    tables = {source: _unpacked(kind, by_source[source].data) for source in sorted(by_source)}
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


def _unpacked(kind: str, data: bytes) -> pa.Table:
    return matching.read(lambda start, stop: data[start:stop], SCHEMAS[kind], 0)[0]
