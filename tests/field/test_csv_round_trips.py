"""Tables written as CSV by five programs, in all their dialects, and read again: equal.

Texts hold quotes, delimiters, line ends and backslashes, but no digits: a line with a number, a
delimiter and a text would be a row by itself.

Covers transforms/corpus/formats/csv_dialect.py.
Covers transforms/corpus/formats/csv_rows.py.
"""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from helpers.examples import examples
from helpers.field import file_of, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st

Rows = list[tuple[int, str]]
Write = Callable[[Rows], bytes]
NAMES = ("id", "text")
TEXTS = st.lists(
    st.one_of(
        st.text('ab ,;\t|"\n\\é', max_size=12),
        st.sampled_from(
            ['"', '""', '","', 'say "hi"', "\n", "a\nb\n", "C:\\dir\\", " ", "a,b\nc,d"]
        ),
    ),
    min_size=1,
    max_size=8,
)


def in_python(delimiter: str, quoting: int, end: str) -> Write:
    """Write by Python's csv."""

    def write(rows: Rows) -> bytes:
        out = io.StringIO(newline="")
        writer = csv.writer(out, delimiter=delimiter, quoting=quoting, lineterminator=end)
        writer.writerows([NAMES, *rows])
        return out.getvalue().encode()

    return write


def in_pandas(delimiter: str, quoting: int) -> Write:
    """Write by pandas."""

    def write(rows: Rows) -> bytes:
        frame = pd.DataFrame(rows, columns=list(NAMES))
        return frame.to_csv(None, sep=delimiter, index=False, quoting=quoting).encode()

    return write


def in_polars(delimiter: str, style: str) -> Write:
    """Write by Polars."""

    def write(rows: Rows) -> bytes:
        frame = pl.DataFrame(rows, schema={"id": pl.Int64, "text": pl.String}, orient="row")
        return frame.write_csv(None, separator=delimiter, quote_style=style).encode()

    return write


def in_duckdb(delimiter: str, folder: Path) -> Write:
    """Write by DuckDB."""

    def write(rows: Rows) -> bytes:
        table = pa.table([*map(list, zip(*rows, strict=True))], names=list(NAMES))
        path = folder / "duck"
        with duckdb.connect() as connection:
            connection.register("t", table)
            connection.sql("FROM t").write_csv(str(path), sep=delimiter, header=True)
        return path.read_bytes()

    return write


def in_spark(delimiter: str, quote_all: bool) -> Write:
    """Write as Spark does: a backslash before quotes and, in quotes, before backslashes."""

    def value_of(value: str) -> str:
        if not quote_all and value and not any(mark in value for mark in f'{delimiter}"\n'):
            return value
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    def write(rows: Rows) -> bytes:
        lines = [NAMES, *((str(key), text) for key, text in rows)]
        return "".join(delimiter.join(map(value_of, line)) + "\n" for line in lines).encode()

    return write


def check(folder: Path, write: Write, texts: Sequence[str], delimiter: str, **options: str) -> None:
    """Write rows with these texts, and compare what is read."""
    rows = list(enumerate(texts))
    file = file_of(folder / ("a.tsv" if delimiter == "\t" else "a.csv"), write(rows), **options)
    assert rows_of(file, NAMES) == [(str(key), text) for key, text in rows]


DELIMITERS = pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])


@DELIMITERS
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_python(
    tmp_path_factory: pytest.TempPathFactory, delimiter: str, quoting: int, end: str
) -> None:
    folder = tmp_path_factory.mktemp("csv")

    @settings(max_examples=examples(60))
    @given(TEXTS)
    def property_(texts: list[str]) -> None:
        check(folder, in_python(delimiter, quoting, end), texts, delimiter)

    property_()


@DELIMITERS
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC])
def test_pandas(tmp_path_factory: pytest.TempPathFactory, delimiter: str, quoting: int) -> None:
    folder = tmp_path_factory.mktemp("csv")

    @settings(max_examples=examples(40))
    @given(TEXTS)
    def property_(texts: list[str]) -> None:
        check(folder, in_pandas(delimiter, quoting), texts, delimiter)

    property_()


@DELIMITERS
@pytest.mark.parametrize("style", ["necessary", "always", "non_numeric"])
def test_polars(tmp_path_factory: pytest.TempPathFactory, delimiter: str, style: str) -> None:
    folder = tmp_path_factory.mktemp("csv")

    @settings(max_examples=examples(40))
    @given(TEXTS)
    def property_(texts: list[str]) -> None:
        check(folder, in_polars(delimiter, style), texts, delimiter)

    property_()


@DELIMITERS
def test_duckdb(tmp_path_factory: pytest.TempPathFactory, delimiter: str) -> None:
    folder = tmp_path_factory.mktemp("csv")

    @settings(max_examples=examples(24))
    @given(TEXTS)
    def property_(texts: list[str]) -> None:
        check(folder, in_duckdb(delimiter, folder), texts, delimiter)

    property_()


@DELIMITERS
@pytest.mark.parametrize("quote_all", [True, False])
@pytest.mark.parametrize("given_", [True, False], ids=["said", "found"])
def test_spark(
    tmp_path_factory: pytest.TempPathFactory, delimiter: str, quote_all: bool, given_: bool
) -> None:
    folder = tmp_path_factory.mktemp("csv")
    options = {"csv": 'quote=",escape=\\'} if given_ else {}

    @settings(max_examples=examples(40))
    @given(TEXTS)
    def property_(texts: list[str]) -> None:
        if not given_:  # one row shows the escape
            texts = [*texts, 'she said "so", then left', 'and "no", he said']
        check(folder, in_spark(delimiter, quote_all), texts, delimiter, **options)

    property_()
