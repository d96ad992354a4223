"""The readable part of a damaged shard: row groups whose pages have their checksums."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentence_beam.transforms import storage
from sentence_beam.transforms.store.shards.reading import OF_BYTES


@dataclass(frozen=True)
class ReadableRows:
    """The readable row groups of a shard, each with its first row, and the number of all rows.

    `schema` is the shard's, None if not even its footer can be read.
    """

    groups: list[tuple[int, pa.Table]]
    rows: int
    schema: pa.Schema | None

    @property
    def is_lost(self) -> np.ndarray:
        """bool [rows], True for rows that cannot be read."""
        lost = np.ones(self.rows, bool)
        for start, group in self.groups:
            lost[start : start + len(group)] = False
        return lost

    def table(self, columns: list[str]) -> pa.Table:
        """Return columns of all rows, null where a row cannot be read."""
        kinds = {"id": pa.string(), "row_hash": pa.binary(16)}
        if self.schema is not None:
            kinds = {name: self.schema.field(name).type for name in columns
                     if name in self.schema.names}  # fmt: skip
        schema = pa.schema(list(kinds.items()))
        parts = []
        end = 0
        for start, group in self.groups:
            parts.append(_nulls(schema, start - end))
            parts.append(group.select(schema.names).replace_schema_metadata())
            end = start + len(group)
        parts.append(_nulls(schema, self.rows - end))
        return pa.concat_tables(parts).combine_chunks()

    def live(self) -> pa.Table | None:
        """Return all columns of the readable rows; None if not even the schema can be read."""
        if self.schema is None:
            return None
        return pa.concat_tables([self.schema.empty_table(), *(group for _, group in self.groups)])


def _nulls(schema: pa.Schema, rows: int) -> pa.Table:
    return pa.table([pa.nulls(rows, field.type) for field in schema], schema=schema)


def readable_groups(path: str, rows: int) -> ReadableRows:
    """Return what can be read of a shard of so many rows."""
    try:
        source: Any = pa.BufferReader(storage.read_bytes(path))
        parquet = pq.ParquetFile(source, page_checksum_verification=True)
        sizes = [parquet.metadata.row_group(n).num_rows for n in range(parquet.num_row_groups)]
    except OF_BYTES:
        return ReadableRows([], rows, None)
    groups = []
    start = 0
    for number, size in enumerate(sizes):
        try:
            groups.append((start, parquet.read_row_group(number)))
        except OF_BYTES:
            pass
        start += size
    if start != rows:  # a footer of another file
        return ReadableRows([], rows, None)
    return ReadableRows(groups, rows, parquet.schema_arrow)
