"""Types of kept columns: how they are written, and which values are read as them.

Covers transforms/corpus/column_checks.py.
Covers transforms/corpus/parsed_rows.py.
Covers transforms/corpus/row_blocks.py.
"""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.corpora import write_bytes, write_jsonl, write_parquet
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.corpus import Columns, UnitRows, match_inputs, plan_file, read_span
from sentence_beam.transforms.corpus.arrow_types import join_words
from sentence_beam.transforms.corpus.casts import as_type, can_read
from sentence_beam.transforms.corpus.column_types import (
    TYPES,
    KeptColumn,
    find_word_of_numbers,
    find_word_of_value,
    parse_columns,
    read_texts,
)

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)


@given(
    columns=st.lists(
        st.tuples(NAMES, st.sampled_from([None, *TYPES])), unique_by=lambda column: column[0]
    )
)
def test_any_columns_can_be_written(columns: list[tuple[str, str | None]]) -> None:
    kept = tuple(KeptColumn(*column) for column in columns)
    assert parse_columns(",".join(map(str, kept))) == kept


def test_what_needs_no_quotes() -> None:
    assert parse_columns("price:int, meta.day:date,,dc:title,ok") == (
        ("price", "int"), ("meta.day", "date"), ("dc:title", None), ("ok", None),
    )  # fmt: skip
    assert [str(column) for column in parse_columns("a.b,c:int")] == ["a.b", "c:int"]
    assert parse_columns("") == ()


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("price:flaot", "did you mean float?"),
        ("price:Integer", "did you mean int?"),
        ("price:datetime", "did you mean timestamp?"),
        ("price:in", "If price:in is a column's name, put it in double quotes"),
        ('"price":money', "choose from str, int, float, bool, date, timestamp"),
        ('"price', "in quotes"),
        ("price,price:int", "names a column twice"),
    ],
)
def test_what_is_no_list_of_columns(written: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_columns(written)
    assert said in str(caught.value)


MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
READ: dict[str, dict[str, Any]] = {
    "int": {"17": 17, " -4 ": -4, "+12.0": 12, str(2**63 - 1): 2**63 - 1},
    "float": {"1.5": 1.5, "-2": -2.0, "1e3": 1000.0, "inf": math.inf},
    "bool": {"true": True, "FALSE": False, "t": True, "no": False, "1": True, "0": False},
    "date": {"2026-01-02": date(2026, 1, 2)},
    "timestamp": {
        "2026-01-02": datetime(2026, 1, 2, tzinfo=UTC),
        "2026-01-02T03:04:05.678901Z": MOMENT,
        "2026-01-02 03:04:05.678901": MOMENT,
        "2026-01-02 03:04:05.678901 UTC": MOMENT,  # BigQuery
        "2026-01-02T05:04:05.678901+02:00": MOMENT,
    },
    "str": {" as it is ": " as it is ", "": ""},
}
UNREAD = {
    "int": ["", "1.5", "1e3", "0x10", "1,000", str(2**63), "true", "N/A", "१"],
    "float": ["", "1,5", "1_0", "1e400", "[1]", "true"],
    "bool": ["", "2", "maybe", "1.0"],
    "date": ["", "02.01.2026", "2026-02-30", "2026-01-02T03:04:05"],
    "timestamp": ["", "1767323045", "tomorrow", "0001-01-01T00:00:00+02:00"],
}


@pytest.mark.parametrize("word", READ)
def test_texts_that_are_values(word: str) -> None:
    values, reasons = read_texts([None, *READ[word]], "c", TYPES[word])
    assert values == [None, *READ[word].values()]
    assert reasons is None
    assert pa.array(values, TYPES[word].arrow).to_pylist() == values


@pytest.mark.parametrize("word", UNREAD)
def test_texts_that_are_none(word: str) -> None:
    values, reasons = read_texts(UNREAD[word], "c", TYPES[word])
    assert values == [None] * len(values)
    assert reasons == [f"kept column c is not {word}"] * len(values)


@given(
    whole=st.integers(-(2**63), 2**63 - 1),
    number=st.floats(),
    moment=st.datetimes(
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=-5))]), min_value=datetime(2, 1, 1)
    ),
)
def test_what_a_program_writes_is_read_back(whole: int, number: float, moment: datetime) -> None:
    written = {"int": whole, "float": number, "timestamp": moment, "date": moment.date()}
    for word, value in written.items():
        (read,), reasons = read_texts([json.dumps(value, default=str).strip('"')], "c", TYPES[word])
        assert reasons is None
        assert read == value or (read != read and value != value)


@pytest.mark.parametrize(
    ("column", "word", "read", "bad"),
    [
        (pa.array([1, None, 255], pa.uint8()), "int", [1, None, 255], []),
        (pa.array([2**64 - 1, 3], pa.uint64()), "int", [None, 3], [0]),
        (pa.array([1.0, 2.5, None, math.nan]), "int", [1, None, None, None], [1, 3]),
        (pa.array([Decimal("1.10"), None]), "float", [1.1, None], []),
        (pa.array([2**53 + 1]), "float", [2.0**53], []),
        (pa.array(["7", "x", None]), "int", [7, None, None], [1]),
        (pa.array(["7", "x", "7"]).dictionary_encode(), "int", [7, None, 7], [1]),
        (pa.array([True, None]), "str", ["true", None], []),
        (pa.array(["a", None], pa.large_string()), "str", ["a", None], []),
        (pa.array([[1, 2], None]), "str", ["[1,2]", None], []),
        (pa.array([1, 0, 2, None]), "bool", [True, False, None, None], [2]),
        (
            pa.array([10**18, 0], pa.timestamp("s")),
            "timestamp",
            [None, datetime(1970, 1, 1, tzinfo=UTC)],
            [0],
        ),
        (
            pa.array([1999], pa.timestamp("ns")),
            "timestamp",
            [datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
            [],
        ),
        (pa.array([date(2026, 1, 2)]), "timestamp", [datetime(2026, 1, 2, tzinfo=UTC)], []),
        (pa.array([None, None]), "date", [None, None], []),
    ],
)
def test_columns_of_tables(column: pa.Array, word: str, read: list[Any], bad: list[int]) -> None:
    assert can_read(column.type, TYPES[word])
    found, reasons = as_type(column, "c", TYPES[word])
    assert found.type == TYPES[word].arrow
    assert found.to_pylist() == read
    assert [place for place, reason in enumerate(reasons or []) if reason] == bad


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (pa.list_(pa.int64()), "int"),
        (pa.binary(), "int"),
        (pa.bool_(), "int"),
    ],
)
def test_columns_that_are_of_another_kind(kind: pa.DataType, word: str) -> None:
    assert not can_read(kind, TYPES[word])


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([1, None, -2], "int"), ([1, 2.5], "float"), ([True, False], "bool"), (["a", None], "str"), ([None], "null"),
        ([], "null"), ([1, "a"], "str"), ([True, 1], "str"), ([[1]], "str"), ([{"a": 1}], "str"), ([2**63], "str"),
    ],
)  # fmt: skip
def test_the_type_of_json_values(values: list[Any], word: str) -> None:
    assert join_words(find_word_of_value(value) for value in values if value is not None) == word


def test_texts_that_are_numbers() -> None:
    assert find_word_of_numbers(["1", "20", "N/A"]) == "int"
    assert find_word_of_numbers(["1.5", "20"]) == "float"
    assert find_word_of_numbers(["a1", "2"]) is None
    assert find_word_of_numbers(["2026-01-02"]) is None


# --- the rows of files

ROWS = [
    {"text": "one", "n": 1, "day": "2026-01-02", "ok": True, "x": 0.5},
    {"text": "two", "n": None, "day": None, "ok": None, "x": None},
    {"text": "three"},
    {"text": "four", "n": "many", "day": "2026-01-02", "ok": True, "x": 1},
    {"text": "five", "n": 5, "day": "2026-01-02", "ok": True, "x": [1]},
]
NAMED = ("n", "day", "ok", "x")


def _jsonl(folder: Path) -> Path:
    return write_jsonl(folder / "a.jsonl", ROWS)


def _json(folder: Path) -> Path:
    return write_bytes(folder / "a.json", json.dumps(ROWS).encode())


def _csv(folder: Path) -> Path:
    lines = [
        ",".join("" if row.get(name) is None else str(row[name]) for name in ("text", *NAMED))
        for row in ROWS
    ]
    return write_bytes(folder / "a.csv", "\n".join(["text," + ",".join(NAMED), *lines]).encode())


def _parquet(folder: Path) -> Path:
    columns = {
        name: pa.array([None if row.get(name) is None else str(row[name]) for row in ROWS])
        for name in NAMED
    }
    return write_parquet(folder / "a.parquet", [row["text"] for row in ROWS], **columns)


def units(path: Path, columns: Columns) -> list[UnitRows]:
    (file,) = match_inputs(str(path))
    return [
        unit for span in plan_file(file, "text", 1000) for unit in read_span(span, columns, 1000)
    ]


@pytest.mark.parametrize("write", [_jsonl, _json, _csv, _parquet])
def test_rows_of_every_format_have_the_types_given(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    types = (("n", "int"), ("day", "date"), ("ok", "bool"), ("x", "float"))
    (unit,) = units(write(tmp_path), Columns(keep=NAMED, types=types))
    assert unit.texts == ["one", "two", "three"]
    assert unit.kept is not None
    assert unit.kept.schema.types == [TYPES[word].arrow for _, word in types]
    assert unit.kept.to_pylist() == [
        {"n": 1, "day": date(2026, 1, 2), "ok": True, "x": 0.5},
        dict.fromkeys(NAMED),
        dict.fromkeys(NAMED),
    ]
    reasons = ["kept column n is not int", "kept column x is not float"]
    assert [reject.reason for reject in unit.rejects] == reasons
    assert all(reject.excerpt for reject in unit.rejects)


def test_a_blank_value_of_csv_is_null_but_in_text(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "a.csv", b"text,n,s\none, ,  \ntwo,,\n")
    (unit,) = units(path, Columns(keep=("n", "s"), types=(("n", "int"), ("s", "str"))))
    assert unit.kept is not None
    assert unit.kept.to_pylist() == [{"n": None, "s": "  "}, {"n": None, "s": None}]


def test_a_type_that_the_plan_found_out_travels_with_the_file(tmp_path: Path) -> None:
    (file,) = match_inputs(str(write_jsonl(tmp_path / "a.jsonl", [{"text": "one", "n": 1}])))
    (span,) = plan_file(replace(file, types=(("n", "int"),)), "text", 1000)
    (unit,) = read_span(span, Columns(keep=("n",)), 1000)
    assert unit.kept == pa.table({"n": [1]})
