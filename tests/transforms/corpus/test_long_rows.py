"""Rows that are too long: rejected by their place, in bounded memory, whatever stands around
them.

Covers transforms/corpus/formats/csv_rows.py.
Covers transforms/corpus/formats/text_lines.py.
"""

import csv
import gzip
import io
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.corpus import Columns, match_inputs, read_span
from sentence_beam.transforms.corpus.collection_rows import plan_file
from sentence_beam.transforms.corpus.formats import csv_lines, text_lines
from sentence_beam.transforms.corpus.formats.csv_lines import BadRow, Quotes
from sentence_beam.transforms.corpus.formats.csv_rows import read_csv
from sentence_beam.transforms.corpus.formats.dialect import Dialect
from sentence_beam.transforms.corpus.formats.text_lines import TOO_LONG
from sentence_beam.transforms.corpus.rows import UnitRows

PACK = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row has 64 bytes at most, and files are read 16 bytes at a time."""
    monkeypatch.setattr(text_lines, "MOST_BYTES", 64)
    monkeypatch.setattr(text_lines, "BLOCK", 16)
    monkeypatch.setattr(text_lines, "BEGINNING", 8)
    monkeypatch.setattr(csv_lines, "MOST_CHARACTERS", 64)
    monkeypatch.setattr(csv_lines, "PIECE", 16)
    monkeypatch.setattr(csv_lines, "BEGINNING", 8)


def units_of(path: Path, columns: Columns, unit_tokens: int = 10**6) -> list[UnitRows]:
    """The units of a file, each of its own span."""
    (file,) = match_inputs(str(path))
    return [
        unit
        for span in plan_file(file, columns.text, unit_tokens)
        for unit in read_span(span, columns, 10**6)
    ]


def found_in(units: list[UnitRows]) -> tuple[list[str], list[tuple[str | None, str]]]:
    """The texts, and the id and reason of each rejected row."""
    rejects = [(reject.id, reject.reason) for unit in units for reject in unit.rejects]
    return [text for unit in units for text in unit.texts], rejects


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_of_text(tmp_path: Path, suffix: str, end: str) -> None:
    rows = ["one", "x" * 64, "y" * 65, "two", "z" * 1000, "three", "w" * 300]
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACK[suffix](end.join(rows).encode()))
    texts, rejects = found_in(units_of(path, Columns()))
    assert texts == ["one", "x" * 64, "two", "three"]
    starts = [sum(len(row) + len(end) for row in rows[:place]) for place in (2, 4, 6)]
    assert rejects == [(f"a.txt{suffix}@{start}", TOO_LONG) for start in starts]


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("tokens", [5, 20, 10**6])
def test_a_line_over_many_ranges_is_rejected_once(tmp_path: Path, tokens: int) -> None:
    (tmp_path / "a.txt").write_text("\n".join(["one", "z" * 5000, "two", "", "y" * 200, "three"]))
    units = units_of(tmp_path / "a.txt", Columns(), tokens)
    texts, rejects = found_in(units)
    assert texts == ["one", "two", "three"]
    assert [reason for _, reason in rejects] == [TOO_LONG, "blank line", TOO_LONG]
    assert sum(unit.read for unit in units) == 6
    assert [reject.excerpt for unit in units for reject in unit.rejects] == ["z" * 8, "", "y" * 8]


@pytest.mark.usefixtures("short")
def test_json_lines(tmp_path: Path) -> None:
    rows = [
        '{"id": "a", "text": "one"}',
        '{"id": "b", "text": "' + "x" * 99 + '"}',
        '{"id": "c", "text": "two"}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    assert found_in(units_of(tmp_path / "a.jsonl", Columns("text", "id"))) == (
        ["one", "two"],
        [(None, TOO_LONG)],
    )


LONG = "x" * 99
CSV = {
    "plain": f"b,{LONG}",
    "quoted": f'b,"{LONG}"',
    "with quotes and delimiters": f'b,"{LONG}, ""so"" he said"',
    "quotes in a plain value": f'b,5" {LONG}',
    "over lines": 'b,"' + "x,\n" * 40 + '"',
    "over lines, the last of them long": f'b,"one\ntwo {LONG}"',
    "over lines, the first of them long": f'b,"{LONG}\ntwo"',
    "over lines, with quotes": f'b,"{LONG}""\n""two"" \n"',
    "with more quoted values": f'"b","{LONG}\n"',
}


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("row", CSV.values(), ids=CSV)
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_rows_of_csv(tmp_path: Path, row: str, suffix: str, end: str) -> None:
    path = tmp_path / f"a.csv{suffix}"
    text = "\n".join(["id,text", "a,one", row, 'c,"two, three"', row, "d,four", ""]).replace(
        "\n", end
    )
    path.write_bytes(PACK[suffix](text.encode()))
    texts, rejects = found_in(units_of(path, Columns("text", None)))
    assert texts == ["one", "two, three", "four"]
    assert rejects == [(f"a.csv{suffix}#{number}", TOO_LONG) for number in (1, 3)]


VALUES = st.text('ab,";\n\r', max_size=40)


@pytest.mark.usefixtures("short")
@given(st.lists(st.tuples(VALUES, VALUES), max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_other_rows_are_what_the_csv_module_reads(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], end: str
) -> None:
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([("a", "b"), *rows])
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(sink.getvalue().encode())
    (file,) = match_inputs(str(path))
    dialect = Dialect("utf-8", ",", True, ("a", "b"))
    found: list[Any] = [row for block in read_csv(file, dialect) for row in block]
    assert len(found) == len(rows)
    for row, wanted in zip(found, rows, strict=True):
        size = sum(len(value) + value.count('"') + 2 for value in wanted) + 1 + len(end)
        assert isinstance(row, BadRow) == (size > 64)
        assert size > 64 or row == list(wanted)


@given(st.lists(st.text('a,"', max_size=5), max_size=6))
def test_where_quotes_are_open_does_not_depend_on_how_text_is_cut(pieces: list[str]) -> None:
    dialect = Dialect("utf-8", ",", True)
    whole, parts = Quotes(dialect), Quotes(dialect)
    whole.read("".join(pieces))
    for piece in pieces:
        parts.read(piece)
    assert whole.are_closed == parts.are_closed


def test_a_row_that_is_never_closed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_lines, "MOST_CHARACTERS", 64)
    (tmp_path / "a.csv").write_text('a,b\n1,"two\n' + "x\n" * 100)
    (file,) = match_inputs(str(tmp_path / "a.csv"))
    with pytest.raises(Exception, match=r"a\.csv is cut short or corrupt .*a quote without an end"):
        list(read_csv(file, Dialect("utf-8", ",", True, ("a", "b"))))


@pytest.mark.parametrize("name", ["a.txt.zst", "a.jsonl.zst", "a.csv.zst"])
def test_memory_does_not_grow_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(text_lines, "MOST_BYTES", 4 << 20)
    monkeypatch.setattr(csv_lines, "MOST_CHARACTERS", 4 << 20)
    path = tmp_path / name
    path.write_bytes(zstandard.compress(b"text\n" + b"x" * (100 << 20) + b"\nlast\n"))
    columns = Columns("text", None)
    tracemalloc.start()
    try:
        texts, rejects = found_in(units_of(path, columns))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert TOO_LONG in [reason for _, reason in rejects]
    assert texts[-1:] == ([] if "jsonl" in name else ["last"])
    assert peak < 80 << 20  # of which 34 are what a kilobyte of zstd holds
