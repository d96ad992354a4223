"""A locator's file read in parts: its footer when it is opened, groups of rows when needed."""

import functools
import hashlib
import io
import json
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import DamagedIndexError, refuse_damage
from sentence_beam.transforms.store.index_entries import SegmentEntry
from sentence_beam.transforms.store.index_files import checked_files as index_files
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
    """The locator of a segment, read by groups of rows; its footer says which are deleted."""

    def __init__(self, path: str, metadata: pq.FileMetaData):
        """`metadata` is the footer of the file `path`, checked."""
        self._metadata = metadata
        rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        self._starts = np.cumsum([0, *rows])[:-1]
        read = functools.partial(_read_group, path, metadata)
        self._group = functools.lru_cache(GROUPS_KEPT)(read)

    @classmethod
    def open(cls, root: str, segment: SegmentEntry) -> "LocatorFile":
        """Return the locator of a segment in the store `root`.

        Raises DamagedIndexError if it is not what was written.
        """
        path = storage.join(root, segment.locator)
        return cls(path, _read_metadata(path, segment))

    @property
    def checks(self) -> str:
        """The checksums of the segment's file, as text."""
        return str(self._metadata.metadata[locators.CHECKS].decode())

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
            rows_of_group = self._group(number)
            here = np.flatnonzero(group == number)
            local = rows[here] - self._starts[number]
            numbers = rows_of_group.shard[local]
            shard[here] = np.where(numbers >= 0, numbers + len(names), -1)
            place[here] = rows_of_group.row[local]
            names += rows_of_group.shards
        return names, shard, place

    def keep(self) -> np.ndarray:
        """Return bool [n], False for deleted rows."""
        return locators.read_kept_rows(self._metadata.metadata, self._metadata.num_rows)

    def wanted(self, rows_of: Callable[[str], np.ndarray]) -> np.ndarray:
        """Return bool [n], True for live rows that are wanted.

        `rows_of` returns bool by row of a shard, by its name.
        """
        rows_by_group = []
        for number in range(len(self._starts)):
            group = self._group(number)
            here = np.zeros(len(group.row), bool)
            for shard in np.unique(group.shard[group.shard >= 0]).tolist():
                at = np.flatnonzero(group.shard == shard)
                here[at] = rows_of(group.shards[shard])[group.row[at]]
            rows_by_group.append(here)
        return np.concatenate(rows_by_group)


def read_rows_in(root: str, segment: SegmentEntry, shards: set[str]) -> pa.Table:
    """Return id, hash and number (`local`) of a segment's rows that are in any of the shards.

    Only the groups that may have such rows are read. Raises DamagedIndexError if they are not what
    was written.
    """
    path = storage.join(root, segment.locator)
    metadata = _read_metadata(path, segment)
    start = 0
    tables_of_groups = [_select_rows(locators.SCHEMA.empty_table(), shards, 0)]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        statistics = group.column(SHARD).statistics
        if statistics.has_min_max and any(
            statistics.min <= shard <= statistics.max for shard in shards
        ):
            table = _read_part(path, metadata, number, locators.SCHEMA.names)
            tables_of_groups.append(_select_rows(table, shards, start))
        start += group.num_rows
    return pa.concat_tables(tables_of_groups).combine_chunks()


def _select_rows(table: pa.Table, shards: set[str], start: int) -> pa.Table:
    rows = pa.array(locators.rows_of(table, shards))
    return table.select(["row_hash", "id"]).take(rows).append_column("local", pc.add(rows, start))


def _read_metadata(path: str, segment: SegmentEntry) -> pq.FileMetaData:
    """Return the parsed footer of a locator's file, checked."""
    size = segment.locator_bytes
    tail = index_files.part(path, max(0, size - TAIL), size)
    length = struct.unpack("<I", tail[-8:-4])[0] + 8 if len(tail) >= 8 else 0
    if length > len(tail):
        tail = index_files.part(path, max(0, size - length), size)
    footer = tail[-length:]
    if hashlib.sha256(footer).hexdigest() != segment.locator_footer:
        raise index_files.changed(path)
    with refuse_damage(f"{path} cannot be read", kind=DamagedIndexError):
        return pq.read_metadata(io.BytesIO(b"PAR1" + footer))


def _read_group(path: str, metadata: pq.FileMetaData, number: int) -> LocatorGroup:
    """Return one group of rows with the columns that search needs."""
    table = _read_part(path, metadata, number, ["shard", "row"])
    return LocatorGroup(*locators.list_shards(table), table.column("row").to_numpy())


def _read_part(path: str, metadata: pq.FileMetaData, number: int, columns: list[str]) -> pa.Table:
    """Return columns of one group of rows, once its bytes have passed their checksum."""
    start, stop, crc = json.loads(metadata.metadata[locators.GROUPS])[number]
    data = index_files.part(path, start, stop)
    if crc32(data) != crc:
        raise index_files.changed(path)
    # the group at its place in an empty file, whose other pages take no memory
    file = mmap.mmap(-1, stop)
    file[start:] = data
    with refuse_damage(f"{path} cannot be read", kind=DamagedIndexError):
        parquet = pq.ParquetFile(pa.BufferReader(pa.py_buffer(file)), metadata=metadata)
        return parquet.read_row_group(number, columns, use_threads=False)
