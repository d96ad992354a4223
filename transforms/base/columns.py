"""Columns of Arrow tables as arrays, looked up, counted and summed; nothing here imports pandas."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow_arrays import (
    as_mask,
    make_index_array,
    make_mask_array,
    make_string_array,
)

_NUMPY = {pa.int64(): np.int64, pa.uint64(): np.uint64, pa.int32(): np.int32}


def get_column(table: pa.Table, name: str) -> pa.Array:
    """Return a column as one array."""
    return as_whole(table.column(name))


def as_whole(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array."""
    if isinstance(values, pa.Array):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    return pa.concat_arrays([values.slice(0, 0).cast(values.type).combine_chunks(), *values.chunks])


def get_numbers(table: pa.Table, name: str, null: int = 0) -> np.ndarray:
    """Return a column as int64, uint64 or bool [n]; `null` stands for nulls."""
    return as_numbers(table.column(name), null)


def as_numbers(values: pa.ChunkedArray | pa.Array, null: int = 0) -> np.ndarray:
    """Return whole numbers or booleans [n]; `null` stands for nulls."""
    array = as_whole(values)
    if pa.types.is_boolean(array.type):
        return as_mask(pc.fill_null(array, bool(null)))
    if array.null_count:
        array = pc.fill_null(array, pa.scalar(null, array.type))
    flat = np.frombuffer(array.buffers()[1] or b"", _NUMPY[array.type])
    return flat[array.offset : array.offset + len(array)]


def sum_column(table: pa.Table, name: str) -> int:
    """Return the sum of a column, 0 without rows."""
    return pc.sum(table.column(name)).as_py() or 0


def is_valid(table: pa.Table, name: str) -> np.ndarray:
    """Return where a column has a value, bool [n]."""
    return as_mask(get_column(table, name).is_valid())


def find_equals(left: pa.ChunkedArray | pa.Array, right: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Return where two columns have equal values, bool [n]; null equals nothing."""
    return as_numbers(pc.equal(as_whole(left), as_whole(right)))


def look_up(values: pa.ChunkedArray | pa.Array, among: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Return the place of each value among others, int64 [n]; -1 if it is missing or null."""
    indices = pc.index_in(as_whole(values), value_set=as_whole(among), skip_nulls=True)
    return as_numbers(indices, -1).astype(np.int64)


def make_places(indices: np.ndarray) -> pa.Int64Array:
    """Return places int64 [n] for `take`: null for -1."""
    there = indices >= 0
    if there.all():
        return make_index_array(indices)
    bits = pa.py_buffer(np.packbits(there, bitorder="little"))
    data = pa.py_buffer(indices.astype(np.int64))
    return pa.Int64Array.from_buffers(pa.int64(), len(indices), [bits, data])


def take_rows_at(table: pa.Table, indices: np.ndarray) -> pa.Table:
    """Return the rows at places int64 [n]; a row of nulls for -1."""
    return table.take(make_places(indices))


def sum_by_place(at: np.ndarray, n: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Count, or sum up weights, by place, int64 [n]; place -1 counts nowhere."""
    there = at >= 0
    if weights is None:
        return np.bincount(at[there], minlength=n)
    sums = np.zeros(n, np.int64)
    np.add.at(sums, at[there], weights[there])
    return sums


def rank_equals(codes: np.ndarray) -> np.ndarray:
    """Return the number of each code among its equals, int64 [n]: 0 for the first.

    >>> nth_of_equals(np.array([7, 3, 7, 7]))
    array([0, 0, 1, 2])
    """
    order = np.argsort(codes, kind="stable")
    place = np.arange(len(codes))
    begins = np.ones(len(codes), bool)
    begins[1:] = np.diff(codes[order]) != 0
    ranks = np.empty_like(place)
    ranks[order] = place - np.maximum.accumulate(np.where(begins, place, 0))
    return ranks


def texts(values: Sequence[str | None]) -> pa.StringArray:
    """Return an array of texts, some of which may be None."""
    if None not in values:
        return make_string_array([value for value in values if value is not None])
    filled = make_string_array([value or "" for value in values])
    there = np.array([value is not None for value in values], bool)
    bits = pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.StringArray.from_buffers(len(values), *filled.buffers()[1:], null_bitmap=bits)


def make_nulls(count: int, kind: pa.DataType) -> pa.Array:
    """Return an array of nulls, of which a slice of lists takes no more bytes than its rows.

    A slice of lists as `pa.nulls` makes them has the offsets of all.
    """
    if not pa.types.is_list(kind):
        return pa.nulls(count, kind)
    offsets = pa.array(np.zeros(count + 1, np.int32))
    is_null = make_mask_array(np.ones(count, bool))
    return pa.ListArray.from_arrays(offsets, pa.array([], kind.value_type), kind, mask=is_null)


def replace_column(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the table with other values of a column."""
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), values)


def replace_rows(table: pa.Table, at: np.ndarray, rows: pa.Table) -> pa.Table:
    """Return the table with other rows at places int64 [n]."""
    if not len(at):
        return table
    order = np.arange(len(table))
    order[at] = len(table) + np.arange(len(at))
    both = pa.concat_tables([table, rows])
    # one column after the other: `take` puts the chunks of each together first
    columns = [as_whole(each.take(make_index_array(order))) for each in both.columns]
    return pa.table(columns, schema=table.schema)
