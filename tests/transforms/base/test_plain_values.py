"""Values of columns as Python and JSON have them."""

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.base.plain_values import (
    to_json_value,
    to_python_rows,
    to_python_values,
)

YEAR_20240 = 576_573_000_000_000_000  # microseconds
FAR = "20240-11-14T14:40:00.000000"
MICROSECONDS = pa.timestamp("us")
KINDS: dict[str, tuple[list[Any], pa.DataType, list[Any]]] = {
    "a near time": ([0], MICROSECONDS, ["1970-01-01T00:00:00"]),
    "a year beyond Python's": ([YEAR_20240, None], MICROSECONDS, [FAR, None]),
    "an unknown zone": ([0], pa.timestamp("us", "Mars/X"), ["1970-01-01T00:00:00+00:00"]),
    "both": ([YEAR_20240], pa.timestamp("us", "Mars/X"), [f"{FAR}Z"]),
    "in a list": ([[YEAR_20240]], pa.list_(MICROSECONDS), [[FAR]]),
    "in a large list": ([[YEAR_20240]], pa.large_list(MICROSECONDS), [[FAR]]),
    "in a list of two": ([[YEAR_20240, 0]], pa.list_(MICROSECONDS, 2), None),
    "in a struct": (
        [{"at": YEAR_20240, "n": 1}],
        pa.struct([("at", MICROSECONDS), ("n", pa.int8())]),
        [{"at": FAR, "n": 1}],
    ),
    "in a map": ([[("k", YEAR_20240)]], pa.map_(pa.string(), MICROSECONDS), [[["k", FAR]]]),
    "a date beyond Python's": ([10**7], pa.date32(), ["29349-01-26"]),
    "a duration": ([90_000_000], pa.duration("us"), ["0:01:30"]),
    "a time of day": ([1_000_000], pa.time64("us"), ["00:00:01"]),
    "bytes": ([b"ab"], pa.binary(), ["6162"]),
    "no numbers": ([float("nan"), float("inf"), 1.5], pa.float64(), [None, None, 1.5]),
    "no numbers in a list": ([[float("nan")]], pa.list_(pa.float32()), [[None]]),
    "decimals": ([Decimal("1.20")], pa.decimal128(5, 2), ["1.20"]),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_values_as_json(name: str) -> None:
    values, kind, expected = KINDS[name]
    column = pa.chunked_array([pa.array(values, kind)])
    found = [to_json_value(value) for value in to_python_values(column)]
    json.dumps(found, allow_nan=False)
    if expected is not None:
        assert found == expected


def test_rows_have_the_values_of_their_columns() -> None:
    table = pa.table({"a": ["x", None], "at": pa.array([YEAR_20240, 0], MICROSECONDS)})
    [first, second] = to_python_rows(table)
    assert first == {"a": "x", "at": FAR}
    assert second == {"a": None, "at": "1970-01-01T00:00:00.000000"}


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(),
    st.dates(), st.datetimes(), st.times(), st.timedeltas(), st.decimals(), st.uuids(),
)  # fmt: skip


KEYS = st.one_of(st.text(), st.integers(), st.dates(), st.binary())


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)))
def test_any_value_has_json(value: Any) -> None:
    json.dumps(to_json_value(value), allow_nan=False)


def test_times_are_read_again() -> None:
    now = dt.datetime(2026, 3, 1, 12, 30, tzinfo=dt.UTC)
    assert dt.datetime.fromisoformat(to_json_value(now)) == now
