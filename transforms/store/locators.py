"""Locator tables: for every local row of an index segment, whose row it is and where its vector stands."""

import io
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("row_hash", pa.binary(16)),
        ("shard", pa.dictionary(pa.int32(), pa.string())),
        ("row", pa.int64()),
    ]
)


@dataclass
class LocatorBuilder:
    """Collects the rows of one segment in local-row order."""

    batches: list[pa.Table] = field(default_factory=list)

    def add(self, shard: str, rows: np.ndarray, ids: pa.Array, hashes: pa.Array) -> None:
        """Rows of one shard (int64 positions within it) with their ids and hashes."""
        shards = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(rows), np.int32)), pa.array([shard]))
        self.batches.append(pa.table([ids, hashes, shards, pa.array(rows, pa.int64())], schema=SCHEMA))

    def table(self) -> pa.Table:
        """All rows so far."""
        return pa.concat_tables(self.batches).unify_dictionaries() if self.batches else SCHEMA.empty_table()


def to_bytes(table: pa.Table) -> bytes:
    """The locator file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", row_group_size=100_000)
    return sink.getvalue()


def from_bytes(data: bytes) -> pa.Table:
    """The table of a locator file."""
    return pq.read_table(io.BytesIO(data)).cast(SCHEMA)


def concat(tables: Iterable[pa.Table]) -> pa.Table:
    """Several locators' rows one after the other."""
    found = list(tables)
    return pa.concat_tables(found).unify_dictionaries() if found else SCHEMA.empty_table()


def keep_mask(locator: pa.Table) -> np.ndarray | None:
    """bool [n], False where the row is deleted (null shard); None where nothing is."""
    shard = locator.column("shard")
    return None if shard.null_count == 0 else shard.is_valid().to_numpy()
