"""Convert between Arrow columns and numpy arrays, and between tables and Parquet bytes."""

import contextlib
import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

HASH_BYTES = 16  # of a row hash
# of the components of vectors
_DTYPES = {
    pa.float64(): np.float64,
    pa.float32(): np.float32,
    pa.float16(): np.float16,
    pa.int8(): np.int8,
    pa.uint8(): np.uint8,
}
_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def write_parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    """Return the table as the bytes of a Parquet file; `options` go to `write_table`."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def read_parquet_bytes(data: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Read the named columns (None: all) of a Parquet file's bytes.

    Raises pa.ArrowException or OSError for damaged bytes.
    """
    # pq.read_table would import pyarrow.dataset and, if installed, pandas: a third of a second.
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    wanted = None if columns is None else list(columns)
    # A thread of Arrow may let go of Python's bytes after the read has returned; if the process
    # ends just then, it aborts, and its exit status is lost.
    return file.read(wanted, use_threads=False)


def write_stream(table: pa.Table) -> bytes:
    """Return a table as an Arrow stream, compressed by zstd, for one step to hand to the next."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def read_stream(data: bytes) -> pa.Table:
    """Return the table of an Arrow stream."""
    return pa.ipc.open_stream(data).read_all()


def as_matrix(column: pa.FixedSizeListArray) -> np.ndarray:
    """Return the vectors of a column, float32 [n, d]; copies only other types than float32."""
    return as_values(column).astype(np.float32, copy=False)


def as_values(column: pa.FixedSizeListArray) -> np.ndarray:
    """Return the vectors of a column [n, d] in its own type.

    They are copied only if there are nulls, which become NaN.
    """
    values = column.flatten()
    if values.null_count:
        flat = values.to_numpy(zero_copy_only=False)
    else:
        # Arrow's own conversions would import pandas, if installed: 0.1 s at a search's start.
        flat = np.frombuffer(values.buffers()[1], _DTYPES[values.type])
        flat = flat[values.offset : values.offset + len(values)]
    return flat.reshape(len(column), column.type.list_size)


def make_vector_column(vectors: np.ndarray) -> pa.FixedSizeListArray:
    """Return vectors float32 [n, d] as a column, without a copy."""
    flat = np.ascontiguousarray(vectors, np.float32).reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), vectors.shape[1])


def as_hashes(column: pa.FixedSizeBinaryArray | pa.ChunkedArray) -> np.ndarray:
    """Return the row hashes of a column, uint8 [n, 16]; one chunk is not copied."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not len(whole):
        return np.empty((0, HASH_BYTES), np.uint8)
    start = whole.offset * HASH_BYTES
    stop = start + len(whole) * HASH_BYTES
    return np.frombuffer(whole.buffers()[1], np.uint8)[start:stop].reshape(-1, HASH_BYTES)


def make_hash_column(hashes: np.ndarray) -> pa.FixedSizeBinaryArray:
    """Return row hashes uint8 [n, 16] as a column."""
    buffer = pa.py_buffer(np.ascontiguousarray(hashes).tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(HASH_BYTES), len(hashes), [None, buffer])


def as_keys(hashes: np.ndarray) -> np.ndarray:
    """Return row hashes uint8 [n, 16] as n items that numpy compares and sorts whole."""
    return np.ascontiguousarray(hashes).view(f"S{HASH_BYTES}").reshape(-1)


def get_hash_prefixes(hashes: np.ndarray) -> np.ndarray:
    """Return the first 8 bytes of row hashes uint8 [n, 16] as uint64 [n], which sort alike."""
    return np.ascontiguousarray(hashes[:, :8]).view(">u8").reshape(-1).astype(np.uint64)


def as_plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type without views, dictionaries, runs and extensions at any depth.

    Few readers of Parquet know these, and Arrow cannot select rows of all of them. UUIDs stay.
    """
    if kind in _PLAIN:
        return _PLAIN[kind]
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.UuidType):
        return as_plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return as_plain_type(kind.value_type)
    return replace_inner_types(kind, as_plain_type)


def replace_inner_types(
    kind: pa.DataType, replace: Callable[[pa.DataType], pa.DataType]
) -> pa.DataType:
    """Return a list, map or struct with other types inside; other types as given.

    Views of lists become lists.
    """

    def replaced(field: pa.Field) -> pa.Field:
        return field.with_type(replace(field.type))

    if pa.types.is_map(kind):
        return pa.map_(replaced(kind.key_field), replaced(kind.item_field), kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(replaced(kind.value_field), kind.list_size)
    if pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(replaced(kind.value_field))
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(replaced(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([replaced(field) for field in kind])
    return kind


def as_plain(column: pa.Array) -> pa.Array:
    """Return a column with its `as_plain_type`."""
    kind = as_plain_type(column.type)
    if kind == column.type:
        return column
    if isinstance(column, pa.ExtensionArray):
        return as_plain(column.storage)
    if pa.types.is_dictionary(column.type):
        return as_plain(column.dictionary).take(column.indices)
    if pa.types.is_run_end_encoded(column.type):
        return as_plain(pc.run_end_decode(column))
    if "list_view<" not in str(column.type):  # Arrow 25 casts them to lists without an end
        with contextlib.suppress(pa.ArrowNotImplementedError):
            return column.cast(kind)
    return pa.array(column.to_pylist(), kind)


def as_selectable(rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """Return rows with plain types in place of those of which Arrow cannot select rows."""
    for place, field in enumerate(rows.schema):
        if not any(word in str(field.type) for word in ("view", "run_end_encoded")):
            continue
        column = rows.column(place)
        kind = as_plain_type(field.type)
        if isinstance(column, pa.ChunkedArray):
            column = pa.chunked_array([as_plain(chunk) for chunk in column.chunks], kind)
        else:
            column = as_plain(column)
        rows = rows.set_column(place, field.with_type(kind), column)
    return rows


def is_string(arrow_type: pa.DataType | None) -> bool:
    """Whether a column of this type holds text (dictionary-encoded text included)."""
    if arrow_type is None:
        return False
    arrow_type = as_plain_type(arrow_type)
    return pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type)


def is_bytes(arrow_type: pa.DataType | None) -> bool:
    """Whether a column of this type holds bytes of any length (dictionary-encoded included)."""
    if arrow_type is None:
        return False
    arrow_type = as_plain_type(arrow_type)
    return pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type)


def is_list(arrow_type: pa.DataType) -> bool:
    """Whether a column of this plain type holds lists, of one length or of any."""
    is_long = pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type)
    return is_long or pa.types.is_fixed_size_list(arrow_type)


def make_empty_table(schema: pa.Schema) -> pa.Table:
    """Return a table without rows; `Schema.empty_table` would import pandas, as `pa.array` does."""
    return pa.Table.from_batches([], schema=schema)


def make_string_array(texts: Sequence[str]) -> pa.StringArray:
    """Return an array of texts of 2 GB at most.

    `pa.array` would import pandas to learn whether a list is one of its types. Raises
    UnicodeEncodeError for half of a surrogate pair.
    """
    joined = "".join(texts)
    parts = texts if joined.isascii() else [text.encode() for text in texts]
    ends = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, parts), np.int32, len(parts)), out=ends[1:])
    data = pa.py_buffer(joined.encode())
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), data)


def make_index_array(places: np.ndarray) -> pa.Int64Array:
    """Return an array of integers [n]; like `make_string_array` it does not import pandas."""
    return pa.Int64Array.from_buffers(
        pa.int64(), len(places), [None, pa.py_buffer(places.astype(np.int64))]
    )


def make_mask_array(mask: np.ndarray) -> pa.BooleanArray:
    """Return an array of booleans [n]; like `make_string_array` it does not import pandas."""
    bits = np.packbits(mask, bitorder="little")
    return pa.BooleanArray.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(bits)])


def as_mask(array: pa.BooleanArray) -> np.ndarray:
    """Return booleans without nulls [n]; `to_numpy` would import pandas."""
    bits = np.frombuffer(array.buffers()[1], np.uint8)
    stop = array.offset + len(array)
    return np.unpackbits(bits, count=stop, bitorder="little")[array.offset :].astype(bool)
