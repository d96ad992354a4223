"""Values of columns as Python and JSON have them, the same wherever rows leave a store."""

import math
from collections.abc import Callable, Mapping
from datetime import date, time
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import types

from sentence_beam.transforms.base.arrow_arrays import is_list, replace_inner_types


def to_python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a column.

    Times in a zone that this machine does not know are in UTC. If a time is beyond the years that
    Python has, all times of the column are text in ISO 8601.
    """
    try:
        return column.to_pylist()
    except (ValueError, OverflowError, KeyError):
        pass
    in_utc = column.cast(_replace_times(column.type, _move_to_utc))
    try:
        return in_utc.to_pylist()
    except (ValueError, OverflowError):
        pass
    texts = in_utc.cast(_replace_times(column.type, _as_text)).to_pylist()
    return [_write_iso_times(value, column.type) for value in texts]


def to_python_rows(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows as dicts of Python values, as `to_python_values` has them."""
    columns = [to_python_values(column) for column in table.columns]
    names = table.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def to_json_value(value: Any) -> Any:
    """Return a value that JSON has.

    Times are text in ISO 8601, bytes hex, NaN and infinity null. Other types that JSON lacks are
    text.

    >>> to_json_value([date(2026, 3, 1), b"ab", float("nan"), {7: None}])
    ['2026-03-01', '6162', None, {'7': None}]
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value)


def _replace_times(kind: pa.DataType, replace: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with other types for the dates and times at any depth."""
    if types.is_temporal(kind):
        return replace(kind)
    return replace_inner_types(kind, partial(_replace_times, replace=replace))


def _move_to_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC") if types.is_timestamp(kind) and kind.tz else kind


def _as_text(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if types.is_duration(kind) else pa.string()


def _write_iso_times(value: Any, kind: pa.DataType) -> Any:
    """Return a value in which dates and times are text, with a T between them."""
    if value is None:
        return None
    if types.is_timestamp(kind):
        return value.replace(" ", "T", 1)
    if types.is_struct(kind):
        return {field.name: _write_iso_times(value[field.name], field.type) for field in kind}
    if types.is_map(kind):
        return [
            (_write_iso_times(key, kind.key_type), _write_iso_times(item, kind.item_type))
            for key, item in value
        ]
    if is_list(kind):
        return [_write_iso_times(item, kind.value_type) for item in value]
    return value
