"""Columns of tables read as the types of kept columns, value by value without loss."""

import contextlib
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow_arrays import (
    as_plain,
    as_plain_type,
    is_bytes,
    is_list,
    is_string,
)
from sentence_beam.transforms.corpus.column_types import (
    TYPES,
    ColumnType,
    make_type_reason,
    read_texts,
)
from sentence_beam.transforms.corpus.column_values import (
    KEPT_NOT_UTF8,
    Reasons,
    decode_texts,
    format_values,
    merge_reasons,
)


def can_read(arrow_type: pa.DataType, kind: ColumnType) -> bool:
    """Whether a column of an Arrow type can be read as a type, apart from invalid values."""
    arrow_type = as_plain_type(arrow_type)
    if is_string(arrow_type) or pa.types.is_null(arrow_type) or is_string(kind.arrow):
        return True
    return _can_cast(arrow_type, kind.arrow) or _is_flag(arrow_type, kind)


def as_type(column: pa.Array, name: str, kind: ColumnType) -> tuple[pa.Array, Reasons]:
    """Read a column as a type, with reasons for the invalid values, which are null.

    Numbers become the nearest float, unless they are whole and no option names the type; times lose
    what is finer than a microsecond. Other values that the type does not hold exactly are invalid.
    """
    column = as_plain(column)
    if column.type == kind.arrow:
        return column, None
    if is_string(kind.arrow):
        return _write_text(column, kind.arrow)
    if is_string(column.type) or _is_flag(column.type, kind):
        texts, reasons = decode_texts(column.cast(pa.large_string()))
        values, others = read_texts(texts, name, kind)
        return pa.array(values, kind.arrow), merge_reasons(reasons, others)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind.arrow), None
    cast = pa.nulls(len(column), kind.arrow)
    if _can_cast(column.type, kind.arrow):
        cast = _cast(column, kind)
    return cast, _find_reasons(column, cast, name, kind)


def _write_text(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Reasons]:
    """Write the values of a column as text, with reasons for those that are not UTF-8."""
    if is_string(column.type):
        return column.cast(kind), None
    texts, reasons = format_values(column)
    return pa.array(texts, kind), reasons and [each and KEPT_NOT_UTF8 for each in reasons]


def _is_flag(arrow_type: pa.DataType, kind: ColumnType) -> bool:
    """Whether whole numbers are read as `bool`: 0 and 1, which CSV has for it."""
    return kind is TYPES["bool"] and pa.types.is_integer(arrow_type)


def _find_reasons(before: pa.Array, after: pa.Array, name: str, kind: ColumnType) -> Reasons:
    """The reason against each value that became null."""
    if before.null_count == after.null_count:
        return None
    is_lost = pc.and_(before.is_valid(), after.is_null()).to_pylist()
    return [make_type_reason(name, kind) if lost else None for lost in is_lost]


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_moment(kind: pa.DataType) -> bool:
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return is_bytes(kind) or pa.types.is_fixed_size_binary(kind)


FAMILIES: tuple[Callable[[pa.DataType], bool], ...] = (
    _is_number,
    _is_moment,
    _is_bytes,
    is_list,
    pa.types.is_time,
    pa.types.is_duration,
    pa.types.is_map,
    pa.types.is_struct,
    pa.types.is_boolean,
)


def _can_cast(before: pa.DataType, after: pa.DataType) -> bool:
    """Whether values of one type may be values of the other: numbers, times, lists of such."""
    if pa.types.is_null(before):
        return True
    if is_list(before) and is_list(after):
        return _can_cast_inside(before.value_type, after.value_type)
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        return _can_cast_fields(before, after)
    if pa.types.is_map(before) and pa.types.is_map(after):
        return _can_cast_inside(before.key_type, after.key_type) and _can_cast_inside(
            before.item_type, after.item_type
        )
    return any(is_of(before) and is_of(after) for is_of in FAMILIES)


def _can_cast_fields(before: pa.StructType, after: pa.StructType) -> bool:
    """Whether a struct has all fields of another, in types to which their values can be cast."""
    kinds = {field.name: field.type for field in after}
    return all(f.name in kinds and _can_cast_inside(f.type, kinds[f.name]) for f in before)


def _can_cast_inside(before: pa.DataType, after: pa.DataType) -> bool:
    """Whether values within others can be cast; dates are not, because Arrow cuts their times."""
    if is_string(before) and is_string(after):
        return True
    if pa.types.is_timestamp(before) and pa.types.is_date(after):
        return False
    return before == after or _can_cast(before, after)


def _cast(column: pa.Array, to: ColumnType) -> pa.Array:
    """Cast a column; a value that the type does not hold becomes null."""
    kind = to.arrow
    is_named = to is TYPES["float"]
    if pa.types.is_integer(column.type) and pa.types.is_floating(kind) and not is_named:
        return _as_equal_floats(column, kind)
    if pa.types.is_floating(kind):
        return _as_floats(column, kind)
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns" and kind != column.type:
        column = pc.floor_temporal(column, unit="microsecond")
    try:
        cast = column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # some values do not fit
        cast = pa.concat_arrays(_cast_or_null(column[i : i + 1], kind) for i in range(len(column)))
    if pa.types.is_timestamp(column.type) and pa.types.is_date(kind):
        is_whole = pc.equal(cast.cast(column.type), column)
        cast = pc.if_else(is_whole, cast, pa.scalar(None, kind))
    return cast


def _as_equal_floats(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Floats of whole numbers; those with more digits than a float has become null."""
    with contextlib.suppress(pa.ArrowInvalid):  # of which the largest floats may not be exact
        return column.cast(kind)
    cast = column.cast(kind, safe=False)
    pairs = zip(column.to_pylist(), cast.to_pylist(), strict=True)
    is_equal = [value is not None and int(other) == value for value, other in pairs]
    return pc.if_else(pa.array(is_equal), cast, pa.scalar(None, kind))


def _as_floats(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The nearest floats; numbers beyond the largest become null."""
    cast = column.cast(kind, safe=False)
    if not pa.types.is_floating(column.type):
        return cast
    is_lost = pc.and_(pc.is_inf(cast), pc.invert(pc.is_inf(column)))
    return pc.if_else(pc.fill_null(is_lost, False), pa.scalar(None, kind), cast)


def _cast_or_null(value: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast an array of one value."""
    try:
        return value.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(1, kind)
