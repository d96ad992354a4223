"""The type that holds the values of two columns of tables, as of one column in two files."""

import pyarrow as pa

from sentence_beam.transforms.base.arrow_arrays import is_bytes, is_list, is_string

UNITS = ("s", "ms", "us", "ns")
_SIGNED = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}  # of the largest whole number of so many bits
_MOST_DIGITS = 76  # of a decimal of Arrow


def join_types(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """Return the narrowest type for the values of two plain types; text if no other holds both.

    Whole numbers and others together are the nearest floats, times have at most microseconds if
    one has less than nanoseconds, and are in UTC if their zones differ.
    """
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    for join in (_join_numbers, _join_moments, _join_clocks, _join_bytes, _join_nested):
        joined = join(a, b) or join(b, a)
        if joined is not None:
            return joined
    return pa.string()


def _join_numbers(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if pa.types.is_integer(a) and pa.types.is_integer(b):
        return _join_integers(a, b)
    if pa.types.is_floating(a) and pa.types.is_floating(b):
        return max(a, b, key=lambda kind: kind.bit_width)
    if pa.types.is_integer(a) and pa.types.is_floating(b):
        return b if 2 * a.bit_width <= b.bit_width else pa.float64()
    return _join_decimal(a, b) if pa.types.is_decimal(a) else None


def _join_decimal(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if pa.types.is_floating(b):
        return pa.float64()
    if pa.types.is_integer(b):
        return _make_decimal(max(a.precision - a.scale, _DIGITS[b.bit_width]), max(a.scale, 0))
    if pa.types.is_decimal(b):
        whole = max(a.precision - a.scale, b.precision - b.scale)
        return _make_decimal(whole, max(a.scale, b.scale, 0))  # Parquet has no scales below 0
    return None


def _join_integers(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    wide = max(a, b, key=lambda kind: kind.bit_width)
    if pa.types.is_signed_integer(a) == pa.types.is_signed_integer(b):
        return wide
    (unsigned,) = [kind for kind in (a, b) if pa.types.is_unsigned_integer(kind)]
    for kind in _SIGNED:
        if kind.bit_width > unsigned.bit_width and kind.bit_width >= wide.bit_width:
            return kind
    return pa.decimal128(_DIGITS[64], 0)


def _make_decimal(whole: int, scale: int) -> pa.DataType:
    """The decimal with so many digits before and after the point; a float if they are too many."""
    digits = max(1, whole + scale)
    if digits > _MOST_DIGITS:
        return pa.float64()
    return pa.decimal256(digits, scale) if digits > 38 else pa.decimal128(digits, scale)


def _join_moments(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if pa.types.is_date(a) and pa.types.is_date(b):
        return pa.date32()
    if pa.types.is_date(a) and pa.types.is_timestamp(b):
        return b
    if not (pa.types.is_timestamp(a) and pa.types.is_timestamp(b)):
        return None
    unit = _choose_finer(a, b)
    if a.unit != b.unit and unit == "ns":
        unit = "us"  # nanoseconds end with the year 2262
    zone = "UTC" if a.tz != b.tz else a.tz
    return pa.timestamp(unit, zone)


def _join_clocks(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Times of day, and durations."""
    if pa.types.is_time(a) and pa.types.is_time(b):
        unit = _choose_finer(a, b)
        return pa.time32(unit) if unit in UNITS[:2] else pa.time64(unit)
    if pa.types.is_duration(a) and pa.types.is_duration(b):
        return pa.duration(_choose_finer(a, b))
    return None


def _choose_finer(a: pa.DataType, b: pa.DataType) -> str:
    return max(a.unit, b.unit, key=UNITS.index)


def _join_bytes(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    is_all_bytes = all(is_bytes(kind) or pa.types.is_fixed_size_binary(kind) for kind in (a, b))
    return pa.binary() if is_all_bytes else None


def _join_nested(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Lists, maps and structs; None if a value inside would become text."""
    if is_list(a) and is_list(b):
        value = _join_inside(a.value_type, b.value_type)
        return value and pa.list_(value)
    if pa.types.is_map(a) and pa.types.is_map(b):
        key = _join_inside(a.key_type, b.key_type)
        item = _join_inside(a.item_type, b.item_type)
        return key and item and pa.map_(key, item)
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        return _join_structs(a, b)
    return None


def _join_structs(a: pa.StructType, b: pa.StructType) -> pa.DataType | None:
    kinds: dict[str, pa.DataType | None] = {}
    for field in (*a, *b):
        kind: pa.DataType | None = field.type
        if field.name in kinds:
            kind = _join_inside(kinds[field.name], kind)
        kinds[field.name] = kind
    return None if None in kinds.values() else pa.struct(list(kinds.items()))


def _join_inside(a: pa.DataType | None, b: pa.DataType | None) -> pa.DataType | None:
    if a is None or b is None:
        return None
    joined = join_types(a, b)
    if is_string(joined) and not (_is_text(a) and _is_text(b)):
        return None
    return joined


def _is_text(kind: pa.DataType) -> bool:
    return is_string(kind) or pa.types.is_null(kind)
