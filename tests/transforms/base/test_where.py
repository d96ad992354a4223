"""The language of filters: what it means is what SQL means by it, and a mistake is one line that
names the columns.

Covers transforms/base/where_columns.py.
Covers transforms/base/where_parser.py.
"""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.where import evaluate_filter, list_named_columns, parse_filter

DAY = dt.date(2021, 5, 1)
MOMENT = dt.datetime(2021, 5, 1, 12)
TABLE = pa.table(
    {
        "lang": ["en", "de", None, "it's"],
        "year": pa.array([2019, 2020, None, -7], pa.int16()),
        "big": pa.array([1, 2**63 + 5, None, 0], pa.uint64()),
        "price": [1.5, -0.25, None, 1e10],
        "weight": pa.array([0.1, 0.25, None, 3], pa.float32()),
        "small": pa.array(np.array([1, 2, 3, 4], np.float16)),
        "good": [True, False, None, True],
        "day": [DAY, None, dt.date(2020, 1, 1), DAY],
        "at": pa.array([MOMENT, None, dt.datetime(2020, 1, 1), MOMENT], pa.timestamp("us")),
        "zoned": pa.array(
            [MOMENT, None, dt.datetime(2020, 1, 1), MOMENT], pa.timestamp("us", "Europe/Berlin")
        ),
        "clock": [dt.time(1), None, dt.time(3), dt.time(4)],
        "cost": [Decimal("1.10"), Decimal("2.00"), None, Decimal("-3.00")],
        "code": pa.array(["x", "y", None, "x"]).dictionary_encode(),
        "tags": [["a"], [], None, ["b"]],
        "a b": [1, 2, 3, 4],
        "meta.part": [1, 2, 3, 4],
        "or": [1, 2, 3, 4],
        "like": [1, 2, 3, 4],
        "counts": pa.array([[1], [1, 2], [None, 3], None], pa.large_list(pa.int16())),
        "pair": pa.array([[1, 2], None, [2, 2], [3, 1]], pa.list_(pa.int16(), 2)),
        "shares": pa.array([[], [0.25], [None, 0.5], None]),
    }
)
N = None


def found(where: str | pc.Expression) -> list[bool | None]:
    return evaluate_filter(parse_filter(where, TABLE.schema), TABLE).to_pylist()


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("lang = 'en'", [True, False, N, False]),
        ("lang = 'it''s'", [False, False, N, True]),
        ("NOT lang = 'en'", [False, True, N, True]),
        ("lang IS NULL or lang='de'", [False, True, True, False]),
        ("lang is not null", [True, True, False, True]),
        ("lang != 'en' AND year >= 2020", [False, True, N, False]),
        ("lang <> 'en' AND (year >= 2020 OR year = -7)", [False, True, N, True]),
        ("year > 2019.5", [False, True, N, False]),
        ("year < 99999999999999999999999", [True, True, N, True]),
        ("big > 9223372036854775807", [False, True, N, False]),
        ("big > 1.5", [False, True, N, False]),
        ("price <= -.25", [False, True, N, False]),
        ("price = 1e10", [False, False, N, True]),
        ("weight = 0.1", [True, False, N, False]),
        ("small >= 3", [False, False, True, True]),
        ("good", [True, False, N, True]),
        ("not good", [False, True, N, False]),
        ("good = FALSE", [False, True, N, False]),
        ("day >= '2021-01-01'", [True, N, False, True]),
        ("at = '2021-05-01 12:00:00'", [True, N, False, True]),
        ("zoned = '2021-05-01T12:00:00'", [True, N, False, True]),
        ("zoned = '2021-05-01T14:00:00+02:00'", [True, N, False, True]),
        ("clock < '02:30:00'", [True, N, False, False]),
        ("cost > 1.5", [False, True, N, False]),
        ("code = 'x'", [True, False, N, True]),
        ("code NOT IN ('x', 'z')", [False, True, N, False]),
        ("year in (2019, 2020.5, 99999999)", [True, False, N, False]),
        ("tags IS NULL", [False, False, True, False]),
        ("'a' IN tags", [True, False, N, False]),
        ("1 IN pair", [True, N, False, True]),
        ("'a' not in tags AND year IS NOT NULL", [False, True, False, True]),
        ("'it''s' IN tags OR 'b' IN tags", [False, False, N, True]),
        ("2 IN counts", [False, True, False, N]),
        ("0.5 IN shares", [False, False, True, N]),
        ("lang LIKE 'e%'", [True, False, N, False]),
        ("lang like '__'", [True, True, N, False]),
        ("NOT lang LIKE '%e'", [True, False, N, True]),
        ("lang NOT LIKE 'it%s' AND good", [True, False, N, False]),
        ("code LIKE 'x%'", [True, False, N, True]),
        ("year BETWEEN 2019 AND 2020", [True, True, N, False]),
        ("year between -7 and 2019.5 and good", [True, False, N, True]),
        ("day NOT BETWEEN '2020-06-01' AND '2021-05-01'", [False, N, True, False]),
        ("lang BETWEEN 'de' AND 'dz' OR good", [True, True, N, True]),
        ("like = 2", [False, True, False, False]),
        ("like BETWEEN 2 AND 3", [False, True, True, False]),
        ('"a b" = 2', [False, True, False, False]),
        ("meta.part IN (1, 4)", [True, False, False, True]),
        ('"or" = 1', [True, False, False, False]),
        (" OR ".join(["year = 2020"] * 900), [False, True, N, False]),
        ("year in (" + ",".join(map(str, range(2000, 8000))) + ")", [True, True, N, False]),
        (pc.field("year") > 2019, [False, True, N, False]),
    ],
)
def test_what_a_filter_means(where: str | pc.Expression, rows: list[bool | None]) -> None:
    assert found(where) == rows


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nope = 1", "no column nope; the store keeps lang (string), year (int16)"),
        ("yaer = 1", "no column yaer (did you mean year?); the store keeps lang"),
        ("year = '2020'", "year is int16, which '2020' is not; the store keeps lang"),
        ("lang = 3", "lang is string, which 3 is not"),
        ("good > 1", "good is bool, which 1 is not"),
        ("day > 'soon'", "day is date32[day], which 'soon' is not"),
        ("tags = 'a'", "which IS NULL or is not; say 'a' IN tags"),
        ("3 IN tags", "which 3 is not"),
        ("2.5 IN counts", "whose values 2.5 is not"),
        ("'e' IN lang", "lang is string and no list; LIKE '%...%' looks into text"),
        ("3 IN year", "year is int16 and no list; say year = 3"),
        ("'a' tags", "'IN' has to come here"),
        ("'a' IN ('a', 'b')", "a column has to come here"),
        ("year LIKE '2%'", "year is int16, which '2%' is not"),
        ("day LIKE '2020-01-01'", "LIKE is for text"),
        ("lang LIKE 3", "lang is string, which 3 is not"),
        ("year BETWEEN 2019", "'AND' has to come here"),
        ("year BETWEEN 2019 AND", "at its end"),
        ("lang", "at its end (=, <, IN, LIKE, BETWEEN or IS has to come here)"),
        ("lang NOT = 'en'", "=, <, IN, LIKE, BETWEEN or IS has to come here"),
        ("good LIKE", "at its end"),
        ("good NOT", "at its end (=, <, IN, LIKE, BETWEEN or IS has to come here)"),
        ("lang =", "at its end"),
        ("", "at its end (a column has to come here)"),
        ("(lang = 'en'", "')' has to come here"),
        ("lang = 'en')", "cannot be read at ')'"),
        ("lang = 'en", 'cannot be read at "\'en"'),
        ("lang = 'en' & good", "cannot be read at '& good'"),
        ("lang IN ()", "cannot be read at ')'"),
        ("year = 2020abc", "cannot be read at '2020abc'"),
        ("(" * 200 + "good" + ")" * 200, "more than 100"),
        (" OR ".join(["year = 2020"] * 5000), "more than 1,000 conditions"),
        (pc.field("nope") == 1, "nope"),
        (pc.field("lang") == 1, "where: "),
        (pc.field("year") + 1, "gives int"),
    ],
)
def test_a_mistake_is_one_line(where: Any, said: str) -> None:
    with pytest.raises(OptionError) as error:
        found(where)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_the_columns_that_a_filter_names() -> None:
    where = "lang = 'x' AND (NOT \"a b\" > 1 OR 'a' IN tags) OR lang LIKE 'year' AND like BETWEEN 1 AND 2"
    assert list_named_columns(where, TABLE.schema) == ["lang", "a b", "tags", "like"]


def conditions() -> st.SearchStrategy[str]:
    """Filters that SQL reads too."""
    signs = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
    numbers = st.sampled_from(["2020", "-7", "2019.5", "0"])
    words = st.sampled_from(["'en'", "'de'", "''", "'it''s'"])
    patterns = st.sampled_from(["'e%'", "'%''%'", "'__'", "''", "'%'", "'d_'"])
    basic = st.one_of(
        st.builds("year {} {}".format, signs, numbers),
        st.builds("price {} {}".format, signs, numbers),
        st.builds("lang {} {}".format, signs, words),
        st.builds("lang {} ({}, {})".format, st.sampled_from(["IN", "NOT IN"]), words, words),
        st.builds("lang {} {}".format, st.sampled_from(["LIKE", "NOT LIKE"]), patterns),
        st.builds(
            "year {} {} AND {}".format,
            st.sampled_from(["BETWEEN", "NOT BETWEEN"]),
            numbers,
            numbers,
        ),
        # DuckDB finds '' in every list.
        st.builds(
            "{} {} tags".format,
            st.sampled_from(["'en'", "'de'", "'it''s'"]),
            st.sampled_from(["IN", "NOT IN"]),
        ),
        st.builds(
            "{} IS {}".format,
            st.sampled_from(["lang", "year"]),
            st.sampled_from(["NULL", "NOT NULL"]),
        ),
        st.sampled_from(["good", "day > '2020-06-01'"]),
    )
    joined = st.sampled_from(["{} AND {}", "{} OR {}", "({}) AND NOT ({})", "NOT {} OR {}"])
    return st.recursive(
        basic,
        lambda inner: st.builds(lambda how, a, b: how.format(a, b), joined, inner, inner),
        max_leaves=6,
    )


@settings(max_examples=examples(60))
@given(where=conditions())
def test_a_filter_means_what_duckdb_means_by_it(where: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    rows = TABLE.select(["lang", "year", "price", "good", "day", "tags"])  # noqa: F841, which the query names
    assert found(where) == [row[0] for row in duckdb.sql(f"select {where} from rows").fetchall()]


def test_a_text_column_of_numbers_is_not_ordered_as_text() -> None:
    """The error says how the column becomes numbers; equality needs no order."""

    def numbers_in(column: str) -> str | None:
        return {"lang": "int"}.get(column)

    for where in ("lang < '5'", "lang BETWEEN '1' AND '5'"):
        parse_filter(where, TABLE.schema)
        with pytest.raises(OptionError, match=r"keep_columns lang:int, which runs no model"):
            parse_filter(where, TABLE.schema, numbers_in=numbers_in)
    parse_filter("lang = '5'", TABLE.schema, numbers_in=numbers_in)


def test_an_expression_over_an_unknown_column_is_told_the_columns() -> None:
    with pytest.raises(OptionError, match="lang") as caught:
        parse_filter(pc.field("nowhere") == 1, TABLE.schema)
    assert str(caught.value).startswith("where: ")


def test_true_and_false_are_values() -> None:
    found = {
        value: evaluate_filter(parse_filter(f"good = {value}", TABLE.schema), TABLE).to_pylist()
        for value in ("TRUE", "true", "false")
    }
    assert found["TRUE"] == found["true"] == [True, False, None, True]
    assert found["false"] == [False, True, None, False]


def test_so_many_conditions_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sentence_beam.transforms.base.where_parser.MAX_CONDITIONS", 3)
    parse_filter("year = 1 OR year = 2 OR good", TABLE.schema)
    with pytest.raises(OptionError, match="more than 3 conditions"):
        parse_filter("year = 1 OR year = 2 OR good OR year = 4", TABLE.schema)


@pytest.mark.parametrize("where", ["year = lang", "year IN (lang)", "year BETWEEN 1 AND lang"])
def test_a_column_in_the_place_of_a_value_is_told_which_values_there_are(where: str) -> None:
    with pytest.raises(OptionError, match="a number, a text in single quotes, true or false"):
        parse_filter(where, TABLE.schema)
