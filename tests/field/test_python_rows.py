"""Rows of Python programs in memory: what made them, the call, the right columns.

Covers transforms/corpus/row_columns.py.
"""

from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.corpus import Columns
from sentence_beam.transforms.corpus.column_values import as_strings
from sentence_beam.transforms.corpus.row_columns import read_columns

USED = Columns("text", "id", ("c",))
TEXTS = ["one two", "three"]


def read(rows: Any) -> list[list[str | None]]:
    """The ids, texts and kept values of rows, as text."""
    found = read_columns(rows, USED)
    columns = (found.column(name).combine_chunks() for name in ("id", "text", "c"))
    return [as_strings(column).to_pylist() for column in columns]


@pytest.mark.parametrize(
    ("made", "ids", "right"),
    [
        ("MongoDB and REST APIs: ids of two types", [1, "x"], ["1", "x"]),
        ("psycopg: numeric", [Decimal(1), Decimal(2)], ["1", "2"]),
        ("psycopg: uuid", [UUID(int=1), UUID(int=2)], [str(UUID(int=1)), str(UUID(int=2))]),
        ("uuid beside numbers", [UUID(int=1), 2], [str(UUID(int=1)), "2"]),
        ("Redis: bytes", [b"a", "ü".encode()], ["a", "ü"]),
        ("Redis: bytes beside text", [b"a", "b"], ["a", "b"]),
        ("numpy", [np.int64(1), np.str_("x")], ["1", "x"]),
        ("beyond 64 bits", [2**70, 1], [str(2**70), "1"]),
    ],
)
@pytest.mark.parametrize("form", ["dicts", "columns", "pandas"])
def test_ids(made: str, ids: list[Any], right: list[str], form: str) -> None:
    columns = {"id": ids, "text": TEXTS, "c": ["u", "v"]}
    rows: Any = columns
    if form == "dicts":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    elif form == "pandas":
        rows = pd.DataFrame(columns)
    assert read(rows) == [right, TEXTS, ["u", "v"]]


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": 1, "text": TEXTS[0], "c": 1, "o": object()}, {"id": 2, "text": TEXTS[1], "c": "v"}],
        {"id": [1, 2], "text": TEXTS, "c": [1, "v"], "o": [object(), {1}]},
        pd.DataFrame({"id": [1, 2], "text": TEXTS, "c": [1, "v"], "o": [object(), {1}], 7: [1, 2]}),
        pd.DataFrame(
            {"text": TEXTS, "c": [1, "v"], "o": [object(), {1}]}, pd.Index([1, 2], name="id")
        ),
    ],
    ids=["dicts", "columns", "pandas", "pandas, ids in the index"],
)
def test_columns_that_are_not_used_may_be_of_any_type(rows: Any) -> None:
    assert read(rows) == [["1", "2"], TEXTS, ["1", "v"]]
    assert set(read_columns(rows, USED).column_names) >= {"id", "text", "c", "o"}  # for messages


def test_polars_objects_and_categories() -> None:
    odd = pl.Series([object(), object()], dtype=pl.Object)
    frame = pl.DataFrame({"id": [1, 2], "text": TEXTS, "c": ["u", "v"], "o": odd})
    frame = frame.with_columns(pl.col("text", "c").cast(pl.Categorical))
    assert read(frame) == [["1", "2"], TEXTS, ["u", "v"]]


def test_missing_values_of_pandas_beside_values_of_two_types() -> None:
    frame = pd.DataFrame(
        {"id": [1, "x"], "text": [b"one", np.nan], "c": [pd.NA, 1.5]}, dtype=object
    )
    assert read(frame) == [["1", "x"], ["one", None], [None, "1.5"]]


def test_dicts_in_dicts_may_be_of_several_types() -> None:
    rows = [{"m": {"id": 1, "c": "u"}, "text": "a"}, {"m": {"id": "x"}, "text": "b"}, {"m": None}]
    found = read_columns(rows, Columns("text", "m.id", ("m.c",)))
    assert found.column("m.id").to_pylist() == ["1", "x", None]
    assert found.column("m.c").to_pylist() == ["u", None, None]


def test_arrow_views_and_nested_columns() -> None:
    doc = pa.array([{"body": t} for t in TEXTS], pa.struct([("body", pa.string_view())]))
    table = pa.table({"doc": doc, "x": pa.array([["a"], []], pa.list_view(pa.string_view()))})
    found = read_columns(table, Columns("doc.body", None, ("x",)))
    assert found.column("doc.body").to_pylist() == TEXTS
    assert str(found.schema.field("x").type) == "list<item: string>"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"id": 1.5, "text": "a"}, {"id": "x", "text": "b"}], "row 0: column id is 1.5 (float)"),
        ([{"id": 1, "text": "a"}, {"id": 2, "text": 5}], "row 1: column text is 5 (int)"),
        ([{"id": 1, "text": "a\ud800"}], "row 0: column text is not UTF-8"),
        (pa.Table.from_arrays([pa.array([1])] * 2, ["id", "id"]), "the rows have 2 columns id"),
    ],
)
def test_what_cannot_be_used_is_named(rows: Any, said: str) -> None:
    with pytest.raises(OptionError) as error:
        read_columns(rows, USED)
    assert said in str(error.value)
