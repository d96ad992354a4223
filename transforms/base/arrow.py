"""Columns of Arrow as arrays of numpy, and back; and Parquet files that are in memory already."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HASH_BYTES = 16  # of a row hash


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    """The bytes of a Parquet file of the table; `options` as `pyarrow.parquet.write_table` has
    them.
    """
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def table_of(data: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """The named columns (None: all) of a Parquet file's bytes. Raises pa.ArrowException or OSError
    for damaged ones.
    """
    # pq.read_table brings pyarrow.dataset and, where it is installed, pandas: a third of a second.
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    return file.read(None if columns is None else list(columns))


def as_matrix(column: pa.FixedSizeListArray) -> np.ndarray:
    """The vectors of a column, float32 [n, d]; not copied where the column holds float32."""
    return values_of(column).astype(np.float32, copy=False)


def values_of(column: pa.FixedSizeListArray) -> np.ndarray:
    """The vectors of a column [n, d], of its own type; not copied but for nulls, which are NaN
    then.
    """
    values = column.flatten()
    # What Arrow may have to copy makes it import pandas, where that is installed: a quarter of a
    # second.
    return values.to_numpy(zero_copy_only=not values.null_count).reshape(
        len(column), column.type.list_size
    )


def fixed_size(vectors: np.ndarray) -> pa.FixedSizeListArray:
    """The column of vectors float32 [n, d], not copied."""
    flat = np.ascontiguousarray(vectors, np.float32).reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), vectors.shape[1])


def as_hashes(column: pa.FixedSizeBinaryArray | pa.ChunkedArray) -> np.ndarray:
    """The row hashes of a column, uint8 [n, 16]; not copied where they lie in one chunk."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not len(whole):
        return np.empty((0, HASH_BYTES), np.uint8)
    start = whole.offset * HASH_BYTES
    stop = start + len(whole) * HASH_BYTES
    return np.frombuffer(whole.buffers()[1], np.uint8)[start:stop].reshape(-1, HASH_BYTES)


def hash_column(hashes: np.ndarray) -> pa.FixedSizeBinaryArray:
    """The column of row hashes uint8 [n, 16]."""
    buffer = pa.py_buffer(np.ascontiguousarray(hashes).tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(HASH_BYTES), len(hashes), [None, buffer])


def as_keys(hashes: np.ndarray) -> np.ndarray:
    """Row hashes uint8 [n, 16] as n items that numpy compares and sorts whole."""
    return np.ascontiguousarray(hashes).view(f"S{HASH_BYTES}").reshape(-1)


def hash_prefixes(hashes: np.ndarray) -> np.ndarray:
    """The first 8 bytes of row hashes uint8 [n, 16] as numbers uint64 [n], in the same order as the
    hashes.
    """
    return np.ascontiguousarray(hashes[:, :8]).view(">u8").reshape(-1).astype(np.uint64)


def without_views(batch: pa.RecordBatch) -> pa.Table:
    """View types as the plain ones: Arrow cannot take rows of them, and few readers of shards know
    them.
    """
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    fields = [field.with_type(plain.get(field.type, field.type)) for field in batch.schema]
    return pa.Table.from_batches([batch]).cast(pa.schema(fields))
