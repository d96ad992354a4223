"""Locator tables: the id, shard and position of every local row of an index segment.

A null shard means a deleted row. A segment's file is never written again; its locator is, as a new
file, whenever a row of it is deleted or its shard is rewritten. In the table's metadata are the
checksums of the segment's file. The file of the locator has those of its groups of rows too, so
that a few rows can be read and checked without the others.
"""

import base64
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import compress, crc32, decompress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentence_beam.transforms.base.arrow_arrays import read_parquet_bytes
from sentence_beam.transforms.base.errors import refuse_damage

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("row_hash", pa.binary(16)),
        ("shard", pa.dictionary(pa.int32(), pa.string())),
        ("row", pa.int64()),
    ]
)
CHECKS = b"segment"  # in a table's metadata
DELETED = b"deleted"  # in a file's: a bit for each row, set if it is deleted; compressed, base64
GROUPS = b"groups"  # in a file's: for each row group [first byte, end, CRC-32]
GROUP_ROWS = 16_384


@dataclass
class LocatorBuilder:
    """The rows of one segment, collected in the order of its local rows."""

    batches: list[pa.Table] = field(default_factory=list)

    def add(self, shard: str, rows: np.ndarray, ids: pa.Array, hashes: pa.Array) -> None:
        """Append rows of one shard (int64 positions within it) with their ids and hashes."""
        shards = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(len(rows), np.int32)), pa.array([shard])
        )
        self.batches.append(
            pa.table([ids, hashes, shards, pa.array(rows, pa.int64())], schema=SCHEMA)
        )

    def table(self) -> pa.Table:
        """The locator table of the rows added so far."""
        return concat(self.batches)


@dataclass(frozen=True)
class Moves:
    """Rows of a locator that are deleted, or are another row of a shard from now on.

    `local` int64 [m] rows of the table; `shard` int32 [m] numbers in `shards`, -1 for a deleted
    row; `row` int64 [m] rows in those shards; `ids` the rows' ids, null for deleted ones.
    """

    local: np.ndarray
    shard: np.ndarray
    row: np.ndarray
    ids: pa.Array
    shards: tuple[str, ...]


def to_bytes(table: pa.Table) -> bytes:
    """Return the bytes of a locator table's file."""
    sink = io.BytesIO()
    groups = []
    with pq.ParquetWriter(sink, table.schema.remove_metadata(), compression="zstd") as writer:
        for first in range(0, len(table), GROUP_ROWS):
            start = sink.tell()
            writer.write_table(table.slice(first, GROUP_ROWS).replace_schema_metadata())
            groups.append([start, sink.tell(), crc32(sink.getbuffer()[start:])])
        facts = {**(table.schema.metadata or {}), GROUPS: json.dumps(groups)}
        keep = find_live_rows(table)
        if keep is not None:
            facts[DELETED] = base64.b64encode(compress(np.packbits(~keep).tobytes()))
        writer.add_key_value_metadata(facts)
    return sink.getvalue()


def read_kept_rows(metadata: Mapping[bytes, bytes], rows: int) -> np.ndarray:
    """Return bool [rows], False for deleted rows, by a file's metadata."""
    deleted = metadata.get(DELETED)
    if deleted is None:
        return np.ones(rows, bool)
    bits = np.frombuffer(decompress(base64.b64decode(deleted)), np.uint8)
    return ~np.unpackbits(bits, count=rows).astype(bool)


def extract_footer(data: bytes) -> bytes:
    """The end of a Parquet file's bytes, from its footer on."""
    return data[-8 - int.from_bytes(data[-8:-4], "little") :]


def from_bytes(data: bytes, columns: Sequence[str] = tuple(SCHEMA.names)) -> pa.Table:
    """Return the locator table of a file, or some of its columns.

    Raises SentenceBeamError for other bytes.
    """
    with refuse_damage(
        "a locator of the index cannot be read", "`sentence-beam index` builds it again"
    ):
        table = read_parquet_bytes(data, columns)
        return table.cast(
            pa.schema([SCHEMA.field(name) for name in columns], table.schema.metadata)
        )


def add_checks(locator: pa.Table, checks: str) -> pa.Table:
    """Return the locator table with the checksums of its segment's file, a text."""
    return locator.replace_schema_metadata({CHECKS: checks})


def concat(tables: Iterable[pa.Table]) -> pa.Table:
    """The rows of several locator tables, one table after the other."""
    parts = list(tables)
    return pa.concat_tables(parts).unify_dictionaries() if parts else SCHEMA.empty_table()


def find_live_rows(locator: pa.Table) -> np.ndarray | None:
    """Return bool [n], False for a deleted row (null shard); None if none is deleted."""
    shard = locator.column("shard")
    return shard.is_valid().to_numpy() if shard.null_count else None


def list_shards(locator: pa.Table) -> tuple[np.ndarray, list[str]]:
    """Return each row's number in a list of shards, int32 [n], -1 if deleted; and the list."""
    encoded = locator.column("shard").unify_dictionaries().combine_chunks()
    return encoded.indices.fill_null(-1).to_numpy(), encoded.dictionary.to_pylist()


def rows_of(locator: pa.Table, shards: set[str]) -> np.ndarray:
    """The local rows that are in any of the shards, ascending int64."""
    numbers, names = list_shards(locator)
    wanted = np.array([name in shards for name in names] + [False])  # the last for -1
    return np.flatnonzero(wanted[numbers])


def moved(locator: pa.Table, moves: Moves) -> pa.Table:
    """Return the locator table with some rows deleted or moved; order and hashes stay."""
    numbers, names = list_shards(locator)
    numbers = numbers.copy()
    rows = locator.column("row").to_numpy().copy()
    numbers[moves.local] = np.where(moves.shard >= 0, moves.shard + len(names), -1)
    rows[moves.local] = moves.row
    order = np.arange(len(locator))
    order[moves.local[moves.shard >= 0]] = len(locator) + np.flatnonzero(moves.shard >= 0)
    ids = pa.chunked_array([*locator.column("id").chunks, moves.ids], pa.string()).take(
        pa.array(order)
    )
    shard = make_shard_column(numbers, [*names, *moves.shards])
    columns: list[Any] = [ids, locator.column("row_hash"), shard, pa.array(rows, pa.int64())]
    return pa.table(columns, schema=SCHEMA.with_metadata(locator.schema.metadata))


def keep_only(locator: pa.Table, keep: np.ndarray) -> pa.Table:
    """Return the locator table with all other rows deleted, `keep` bool [n]."""
    numbers, names = list_shards(locator)
    shard = make_shard_column(np.where(keep, numbers, -1), names)
    place = locator.schema.get_field_index("shard")
    return locator.set_column(place, SCHEMA.field("shard"), shard)


def make_shard_column(numbers: np.ndarray, names: list[str]) -> pa.DictionaryArray:
    """Return the column of the shards with these numbers, -1 for null.

    Its dictionary has only names that a row has.
    """
    used = np.unique(numbers[numbers >= 0])
    codes = np.searchsorted(used, numbers).astype(np.int32)
    indices = pa.array(codes, pa.int32(), mask=numbers < 0)
    return pa.DictionaryArray.from_arrays(
        indices, pa.array([names[number] for number in used], pa.string())
    )
