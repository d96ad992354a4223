"""Columns as arrays, looked up, counted and summed, against plain Python."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.columns import (
    as_numbers,
    as_whole,
    find_equals,
    get_column,
    get_numbers,
    is_valid,
    look_up,
    rank_equals,
    sum_by_place,
    sum_column,
    take_rows_at,
    texts,
)

TRIED = settings(max_examples=examples(100), deadline=None)
words = st.lists(st.none() | st.sampled_from(["a", "b", "", "ü", "word"]), max_size=9)
counts = st.lists(st.none() | st.integers(-(2**62), 2**62), max_size=9)
cuts = st.integers(0, 9)
KINDS: list[tuple[pa.DataType, list[Any], type]] = [
    (pa.int64(), [1, None, -3], np.int64),
    (pa.uint64(), [2**64 - 1, None, 0], np.uint64),
    (pa.int32(), [1, None, 7], np.int32),
    (pa.bool_(), [True, None, False], np.bool_),
]


def chunked(values: list[Any], kind: pa.DataType, cut: int) -> pa.ChunkedArray:
    """Values in two chunks, of which the second is a slice."""
    rest = pa.array([*values[:1], *values[cut:]], kind).slice(len(values[:1]))
    return pa.chunked_array([pa.array(values[:cut], kind), rest], kind)


@TRIED
@given(words, cuts)
def test_a_column_is_one_array_however_it_was_cut(values: list[str | None], cut: int) -> None:
    some = chunked(values, pa.string(), cut)
    assert as_whole(some).to_pylist() == values
    table = pa.table({"x": some})
    assert get_column(table, "x").to_pylist() == values
    assert is_valid(table, "x").tolist() == [value is not None for value in values]


def test_a_column_without_chunks_is_an_empty_array() -> None:
    found = as_whole(pa.chunked_array([], pa.string()))
    assert (type(found), len(found)) == (pa.StringArray, 0)


@pytest.mark.parametrize(("kind", "values", "dtype"), KINDS)
@pytest.mark.parametrize("start", [0, 1, 2, 3])
def test_numbers_have_a_value_for_null(
    kind: pa.DataType, values: list[Any], dtype: type, start: int
) -> None:
    for null in (0, 1):
        some = pa.table({"x": pa.array(values, kind)}).slice(start)
        found = get_numbers(some, "x", null)
        assert found.dtype == dtype
        assert found.tolist() == [null if value is None else value for value in values[start:]]


@TRIED
@given(counts, cuts)
def test_sums_are_those_of_whole_numbers(values: list[int | None], cut: int) -> None:
    some = chunked(values, pa.int64(), cut)
    there = [value for value in values if value is not None]
    if abs(sum(there)) < 2**63:
        assert sum_column(pa.table({"x": some}), "x") == sum(there)
    assert as_numbers(some, -1).tolist() == [-1 if value is None else value for value in values]


@TRIED
@given(words, words, cuts)
def test_lookup_is_the_first_place_or_none(
    values: list[str | None], among: list[str | None], cut: int
) -> None:
    found = look_up(chunked(values, pa.string(), cut), chunked(among, pa.string(), cut))
    assert found.dtype == np.int64
    assert found.tolist() == [
        among.index(value) if value is not None and value in among else -1 for value in values
    ]


@TRIED
@given(st.lists(st.tuples(st.none() | st.integers(0, 2), st.none() | st.integers(0, 2))))
def test_null_equals_nothing(pairs: list[tuple[int | None, int | None]]) -> None:
    left, right = (pa.array([pair[side] for pair in pairs], pa.int64()) for side in range(2))
    assert find_equals(left, right).tolist() == [a == b and a is not None for a, b in pairs]


@TRIED
@given(st.lists(st.integers(-1, 3), max_size=12))
def test_rows_at_places_are_null_for_none(at: list[int]) -> None:
    table = pa.table({"x": ["a", "b", "c", "d"], "y": [0, 1, 2, 3]})
    found = take_rows_at(table, np.array(at, np.int64))
    assert found["x"].to_pylist() == ["abcd"[place] if place >= 0 else None for place in at]
    assert found["y"].to_pylist() == [place if place >= 0 else None for place in at]


@TRIED
@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-(2**60), 2**60)), max_size=7))
def test_sums_by_place_are_exact(pairs: list[tuple[int, int]]) -> None:
    """Also above 2**53, from where a float has not every whole number."""
    at, weights = (np.array([pair[side] for pair in pairs], np.int64) for side in range(2))
    counted = Counter(place for place, _ in pairs)
    assert sum_by_place(at, 4).tolist() == [counted[place] for place in range(4)]
    wanted = [sum(weight for there, weight in pairs if there == place) for place in range(4)]
    assert sum_by_place(at, 4, weights).tolist() == wanted


@TRIED
@given(st.lists(st.integers(-1, 3)))
def test_equals_are_counted_in_order(codes: list[int]) -> None:
    wanted = [codes[:place].count(code) for place, code in enumerate(codes)]
    assert rank_equals(np.array(codes, np.int64)).tolist() == wanted


@TRIED
@given(words)
def test_texts_may_be_none(values: list[str | None]) -> None:
    found = texts(values)
    found.validate(full=True)
    assert found.to_pylist() == values
