"""Types of two files' columns joined, and columns cast to the type that the run or the store has.

Covers transforms/corpus/casts.py.
Covers transforms/corpus/arrow_types.py.
"""

import itertools
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from sentence_beam.transforms.base.arrow_arrays import as_plain, as_plain_type
from sentence_beam.transforms.corpus.arrow_types import make_code, parse_type
from sentence_beam.transforms.corpus.casts import as_type
from sentence_beam.transforms.corpus.type_join import join_types

LIST = pa.list_(pa.int64())
STRUCT = pa.struct([("a", pa.int64())])
KINDS = [
    pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64(),
    pa.float16(), pa.float32(), pa.float64(), pa.decimal128(10, 2), pa.decimal128(38, 0), pa.decimal256(50, 3),
    pa.bool_(), pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("ns"),
    pa.timestamp("ms", "UTC"), pa.timestamp("us", "Europe/Berlin"), pa.time32("s"), pa.time64("ns"),
    pa.duration("s"), pa.duration("ns"), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(),
    pa.binary(3), pa.uuid(), pa.null(), LIST, pa.large_list(pa.string()), pa.list_(pa.float64(), 2),
    STRUCT, pa.struct([("a", pa.int8()), ("b", pa.string())]), pa.struct([("a", pa.string())]),
    pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.float64()),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_type_is_itself_again_in_a_plan_and_beside_nulls(kind: pa.DataType) -> None:
    assert parse_type(make_code(kind)).arrow == kind
    assert (
        join_types(kind, kind) == join_types(kind, pa.null()) == join_types(pa.null(), kind) == kind
    )


def test_two_types_have_one_whichever_file_is_first() -> None:
    for one, other in itertools.combinations(KINDS, 2):
        joined = join_types(one, other)
        assert join_types(other, one) == joined
        assert join_types(joined, one) == join_types(joined, other) == joined
        for kind in (one, other):
            found, reasons = as_type(pa.nulls(2, kind), "c", parse_type(make_code(joined)))
            assert (found.type, found.null_count, reasons) == (joined, 2, None)


@pytest.mark.parametrize(
    ("one", "other", "joined"),
    [
        (pa.int64(), pa.uint64(), "decimal128(20, 0)"),
        (pa.int8(), pa.uint8(), "int16"),
        (pa.int16(), pa.float32(), "float"),
        (pa.int32(), pa.float32(), "double"),
        (pa.decimal128(10, 2), pa.int64(), "decimal128(22, 2)"),
        (pa.decimal128(5, 1), pa.float32(), "double"),
        (pa.timestamp("s"), pa.timestamp("ns"), "timestamp[us]"),
        (pa.timestamp("ms"), pa.timestamp("s", "Asia/Tokyo"), "timestamp[ms, tz=UTC]"),
        (pa.bool_(), pa.int64(), "string"),
        (pa.string(), pa.binary(), "string"),
        (pa.binary(4), pa.large_binary(), "binary"),
        (LIST, STRUCT, "string"),
        (STRUCT, pa.struct([("a", pa.string())]), "string"),
    ],
)
def test_the_narrowest_type_of_both(one: pa.DataType, other: pa.DataType, joined: str) -> None:
    assert str(join_types(one, other)) == joined


@pytest.mark.parametrize(
    ("column", "kind", "read", "bad"),
    [
        (pa.array([1.0, 1.5, None]), pa.int32(), [1, None, None], [1]),
        (pa.array([2**40, 1]), pa.int32(), [None, 1], [0]),
        (pa.array([Decimal("1.00"), Decimal("1.50")]), pa.int64(), [1, None], [1]),
        (pa.array([Decimal("1.55"), Decimal("1.50")]), pa.decimal128(5, 1), [None, Decimal("1.5")], [0]),
        (pa.array([1.5, 1e300, float("inf")]), pa.float32(), [1.5, None, float("inf")], [1]),
        (pa.array([2**53, 2**53 + 1, 2**60, None]), pa.float64(), [2.0**53, None, 2.0**60, None], [1]),
        (pa.array([2**24 + 1, 2**63 - 1, 3]), pa.float32(), [None, None, 3.0], [0, 1]),
        (pa.array(["1", "x", "1e3", "2.5"]), pa.int16(), [1, None, 1000, None], [1, 3]),
        (pa.array(["1.50", "x"]), pa.decimal128(5, 1), [Decimal("1.5"), None], [1]),
        (pa.array(["[1,2]", "x", "{}"]), LIST, [[1, 2], None, None], [1, 2]),
        (pa.array(['{"a":1}', "[]", '{"a":1,"b":2}']), STRUCT, [{"a": 1}, None, None], [1, 2]),
        (pa.array(["2026-01-02 03:04:05 UTC", "soon"]), pa.timestamp("s"), [datetime(2026, 1, 2, 3, 4, 5), None], [1]),
        (pa.array([1, 0]), pa.bool_(), [None, None], [0, 1]),
        (pa.array([True, None]), pa.int64(), [None, None], [0]),
        (pa.array([datetime(2026, 1, 2), datetime(2026, 1, 2, 3)]), pa.date32(), [date(2026, 1, 2), None], [1]),
        (pa.array([1500, 2000], pa.timestamp("ms")), pa.timestamp("s"), [None, datetime(1970, 1, 1, 0, 0, 2)], [0]),
        (pa.array([datetime(9999, 1, 1)]), pa.timestamp("ns"), [None], [0]),
        (pa.array([{"a": 1, "b": 2}]), STRUCT, [None], [0]),
        (pa.array([{"b": 2}]), pa.struct([("a", pa.int64()), ("b", pa.float64())]), [{"a": None, "b": 2.0}], []),
        (pa.array([[1, 2], [1]]), pa.list_(pa.int64(), 2), [[1, 2], None], [1]),
        (pa.array([b"ab", b"\xff", None]), pa.string(), ["ab", "\ufffd", None], [1]),
        (pa.array(["ab"]), pa.binary(), [b"ab"], []),
    ],
)  # fmt: skip
def test_a_later_file_is_cast_value_by_value_without_loss(
    column: pa.Array, kind: pa.DataType, read: list[Any], bad: list[int]
) -> None:
    found, reasons = as_type(column, "c", parse_type(make_code(kind)))
    assert (found.type, found.to_pylist()) == (kind, read)
    assert [place for place, reason in enumerate(reasons or []) if reason] == bad


@pytest.mark.parametrize(
    "column",
    [
        pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.uint32()), pa.array(["a", "b"], pa.string_view())),
        pa.array([["a"], None, []], pa.list_view(pa.string_view())),
        pa.array([["a"], None, []], pa.large_list_view(pa.large_string())),
        pa.array([[("k", "v")], None, []], pa.map_(pa.string_view(), pa.binary_view())),
        pa.array([{"x": ["a"]}, None, {"x": None}], pa.struct([("x", pa.list_view(pa.string_view()))])),
        pa.RunEndEncodedArray.from_arrays(pa.array([2, 3]), ["a", "b"]),
        pa.array(["{}", None, "1"], pa.json_()),
    ],
    ids=lambda column: str(column.type),
)  # fmt: skip
def test_types_that_few_programs_read_become_plain_at_any_depth(column: pa.Array) -> None:
    for part in (column, column[1:]):
        found = as_plain(part)
        found.validate(full=True)
        assert found.type == as_plain_type(column.type) == as_plain_type(found.type)
        assert found.to_pylist() == part.to_pylist()
