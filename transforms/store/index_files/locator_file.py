"""A locator's file read in parts: its footer when it is opened, groups of rows when needed."""

import functools
import hashlib
import io
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import DamagedIndexError, refuse_damage
from sentence_beam.transforms.storage.cache import cached
from sentence_beam.transforms.store.index_entries import SegmentEntry
from sentence_beam.transforms.store.index_files import files as index_files
from sentence_beam.transforms.store.index_files import locators

TAIL = 64 << 10  # bytes at a file's end that are read first; most footers are shorter
SHARD = locators.SCHEMA.get_field_index("shard")
GROUPS_KEPT = 256  # of each file, 12 bytes a row


@dataclass(frozen=True)
class LocatorGroup:
    """Some consecutive rows, each with its shard and its row there.

    `shard` numbers the shard in `shards`, -1 for a deleted row.
    """

    shard: np.ndarray
    shards: list[str]
    row: np.ndarray


class LocatorFile:
    """The locator of a segment, read by groups of rows.

    `read` returns one group, `starts` are the first rows of the groups, int64 ascending.
    """

    def __init__(
        self,
        checks: str | None,
        starts: np.ndarray,
        read: Callable[[int], LocatorGroup],
        deleted: pq.FileMetaData | None = None,
    ):
        """`deleted` is the footer that may say which rows are deleted."""
        self.checks = checks
        self._deleted = deleted
        self._starts = starts
        self._group = functools.lru_cache(GROUPS_KEPT)(read)

    @classmethod
    def open(cls, root: str, segment: SegmentEntry) -> "LocatorFile":
        """Return the locator of a segment in the store `root`.

        A locator of an earlier version, whose manifest has no checksum of its footer, is read
        whole. Raises DamagedIndexError if it is not what was written.
        """
        path = storage.join(root, segment.locator)
        if not segment.locator_footer:
            path = cached(path, segment.locator_sha256)
            table = locators.from_bytes(index_files.read(path, segment.locator_sha256))
            return cls(locators.checks_of(table), np.zeros(1, np.int64), lambda _: _group_of(table))
        metadata, groups = _metadata_of(path, segment)
        starts = np.cumsum(
            [0, *(metadata.row_group(n).num_rows for n in range(metadata.num_row_groups))]
        )[:-1]
        read = functools.partial(_read, path, metadata, groups)
        checks = metadata.metadata.get(locators.CHECKS)
        if checks is None:
            return cls(None, starts, read, metadata)
        return cls(checks.decode(), starts, read, metadata)

    def places(self, rows: np.ndarray) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Return the names of shards, and for each row its shard among them and its row there.

        `rows` are local rows, int64 [m]; a deleted row has the shard -1. Raises DamagedIndexError
        if what is read of the file is not what was written.
        """
        group = np.searchsorted(self._starts, rows, "right") - 1
        names = list[str]()
        shard = np.full(len(rows), -1, np.int64)
        place = np.full(len(rows), -1, np.int64)
        for number in np.unique(group).tolist():
            found = self._group(number)
            here = np.flatnonzero(group == number)
            local = rows[here] - self._starts[number]
            numbers = found.shard[local]
            shard[here] = np.where(numbers >= 0, numbers + len(names), -1)
            place[here] = found.row[local]
            names += found.shards
        return names, shard, place

    def keep(self) -> np.ndarray:
        """Return bool [n], False for deleted rows."""
        if self._deleted is not None:
            found = locators.kept_rows(self._deleted.metadata, self._deleted.num_rows)
            if found is not None:
                return found
        return np.concatenate(
            [self._group(number).shard >= 0 for number in range(len(self._starts))]
        )

    def wanted(self, rows_of: Callable[[str], np.ndarray]) -> np.ndarray:
        """Return bool [n], True for live rows that are wanted.

        `rows_of` returns bool by row of a shard, by its name.
        """
        found = []
        for number in range(len(self._starts)):
            group = self._group(number)
            here = np.zeros(len(group.row), bool)
            for shard in np.unique(group.shard[group.shard >= 0]).tolist():
                at = np.flatnonzero(group.shard == shard)
                here[at] = rows_of(group.shards[shard])[group.row[at]]
            found.append(here)
        return np.concatenate(found)


def rows_in(root: str, segment: SegmentEntry, shards: set[str]) -> pa.Table:
    """Return id, hash and number (`local`) of a segment's rows that are in any of the shards.

    Only the groups that may have such rows are read. Raises DamagedIndexError if they are not what
    was written.
    """
    path = storage.join(root, segment.locator)
    if not segment.locator_footer:
        return _rows_in(
            locators.from_bytes(index_files.read(path, segment.locator_sha256)), shards, 0
        )
    metadata, groups = _metadata_of(path, segment)
    start = 0
    found = [_rows_in(locators.SCHEMA.empty_table(), shards, 0)]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        known = group.column(SHARD).statistics
        if known.has_min_max and any(known.min <= shard <= known.max for shard in shards):
            found.append(
                _rows_in(
                    _part_of(path, metadata, groups, number, locators.SCHEMA.names), shards, start
                )
            )
        start += group.num_rows
    return pa.concat_tables(found).combine_chunks()


def _rows_in(table: pa.Table, shards: set[str], start: int) -> pa.Table:
    rows = pa.array(locators.rows_of(table, shards))
    return table.select(["row_hash", "id"]).take(rows).append_column("local", pc.add(rows, start))


def _metadata_of(path: str, segment: SegmentEntry) -> tuple[pq.FileMetaData, list[list[int]]]:
    """Return the parsed footer of a locator's file, and its groups' places and checksums."""
    footer = _footer(path, segment)
    with refuse_damage(f"{path} cannot be read", kind=DamagedIndexError):
        metadata = pq.read_metadata(io.BytesIO(b"PAR1" + footer))
        return metadata, json.loads(metadata.metadata[locators.GROUPS])


def _footer(path: str, segment: SegmentEntry) -> bytes:
    """Return the end of a locator's file from its footer on, checked."""
    size = segment.locator_bytes
    tail = index_files.part(path, max(0, size - TAIL), size)
    length = 0
    if len(tail) >= 8:
        length = struct.unpack("<I", tail[-8:-4])[0] + 8
    if length > len(tail):
        tail = index_files.part(path, max(0, size - length), size)
    footer = tail[-length:]
    if hashlib.sha256(footer).hexdigest() != segment.locator_footer:
        raise index_files.changed(path)
    return footer


def _read(
    path: str, metadata: pq.FileMetaData, groups: list[list[int]], number: int
) -> LocatorGroup:
    """Return one group of rows with the columns that search needs."""
    return _group_of(_part_of(path, metadata, groups, number, ["shard", "row"]))


def _part_of(
    path: str, metadata: pq.FileMetaData, groups: list[list[int]], number: int, columns: list[str]
) -> pa.Table:
    """Return columns of one group of rows, once its bytes have passed their checksum."""
    start, stop, crc = groups[number]
    data = index_files.part(path, start, stop)
    if crc32(data) != crc:
        raise index_files.changed(path)
    with refuse_damage(f"{path} cannot be read", kind=DamagedIndexError):
        file = pq.ParquetFile(pa.PythonFile(_OpenRange(data, start), mode="r"), metadata=metadata)
        return file.read_row_group(number, columns, use_threads=False)


def _group_of(table: pa.Table) -> LocatorGroup:
    return LocatorGroup(*locators.shards_of(table), table.column("row").to_numpy())


class _OpenRange(io.RawIOBase):
    """A file that has only the bytes from `start` on; no others are read."""

    def __init__(self, data: bytes, start: int):
        self._data = data
        self._start = start
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a place and return it."""
        end = self._start + len(self._data)
        self._position = (
            offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: end}[whence]
        )
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with the bytes from here on."""
        low = self._position - self._start
        found = self._data[low : low + len(buffer)]
        buffer[: len(found)] = found
        self._position += len(found)
        return len(found)
