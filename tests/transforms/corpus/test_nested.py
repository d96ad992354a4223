"""Columns by dotted names: the same rules for JSON objects and for Arrow's structs."""

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.corpus.nested import (
    find_column,
    find_roots,
    find_type,
    find_value,
    format_value,
    has_value,
    list_keys,
    list_names,
)

ROW = {"a": {"b": {"c": 1}, "n": None}, "a.b": 2, "text": "x", "list": [{"c": 3}]}
PATHS = [
    ("text", True, "x"),
    ("a.b", True, 2),  # a column of that name comes first
    ("a.b.c", True, 1),
    ("a.n", True, None),
    ("a.none", False, None),
    ("text.b", False, None),
    ("list.c", False, None),
    ("none.b", False, None),
]


@pytest.mark.parametrize(("name", "is_there", "value"), PATHS)
def test_values_of_a_json_object(name: str, is_there: bool, value: Any) -> None:
    assert has_value(ROW, name) is is_there
    assert find_value(ROW, name) == value


def test_columns_of_a_batch() -> None:
    batch = pa.RecordBatch.from_pylist([{"a": {"b": {"c": 1}}, "t": "x"}, {"a": None, "t": "y"}])
    assert find_column(batch, "a.b.c").to_pylist() == [1, None]
    assert find_type(batch.schema, "a.b.c") == pa.int64()
    assert find_type(batch.schema, "a.none") is None
    assert find_type(batch.schema, "t.b") is None
    assert list_names(batch.schema) == ["a.b.c", "t"]
    assert find_roots(batch.schema, ["a.b.c", "a.b", "t"]) == ["a", "t"]


def test_a_column_whose_name_has_dots_comes_first() -> None:
    columns = {"a.b": pa.array([1]), "a": pa.array([{"b": "x"}])}
    batch = pa.RecordBatch.from_pydict(columns)
    assert find_column(batch, "a.b").to_pylist() == [1]
    assert find_type(batch.schema, "a.b") == pa.int64()
    assert find_roots(batch.schema, ["a.b"]) == ["a.b"]


def test_a_name_that_several_columns_have_has_no_type() -> None:
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("a", pa.string())])
    assert find_type(schema, "a") is None
    assert find_type(schema, "a.b") is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("é\n", "é\n"),
        (True, "true"),
        (1, "1"),
        (0.5, "0.5"),
        ({"é": [1, None]}, '{"é":[1,null]}'),
        ([dt.date(2026, 1, 2)], '["2026-01-02"]'),
        (dt.date(2026, 1, 2), "2026-01-02"),
    ],
)
def test_values_as_text(value: Any, text: str | None) -> None:
    assert format_value(value) == text


KEYS = st.text("ab", min_size=1, max_size=2)
OBJECTS = st.recursive(
    st.integers(), lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)


@settings(max_examples=examples(30))
@given(st.dictionaries(KEYS, OBJECTS, max_size=3))
def test_every_key_that_is_listed_has_a_value_that_is_no_object_with_keys(row: dict) -> None:
    names = list_keys(row)
    assert len(set(names)) == len(names)
    for name in names:
        assert has_value(row, name)
        assert find_value(row, name) == {} or not isinstance(find_value(row, name), dict)
