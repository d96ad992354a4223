"""How files are cut into spans: each row once, in units of the size that was asked for.

Covers transforms/corpus/formats/csv_cuts.py.
Covers transforms/corpus/formats/separated.py.
"""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.corpora import sentences, write_bytes, write_jsonl
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.corpus import (
    Columns,
    InputFile,
    Span,
    match_inputs,
    plan_file,
    read_span,
)
from sentence_beam.transforms.corpus.formats import csv_cuts
from sentence_beam.transforms.corpus.formats.jsonl import JsonLines
from sentence_beam.transforms.corpus.spans import estimate_tokens

UNIT = 400  # tokens


def read(file: InputFile, unit_tokens: int = UNIT) -> tuple[list[Span], list[Any]]:
    """The spans of a file, and its rows in order as (position, id, text or reason)."""
    spans = plan_file(file, "text", unit_tokens)
    rows: list[Any] = []
    for span in spans:
        for unit in read_span(span, Columns(), unit_tokens):
            rows += zip(unit.positions, unit.ids, unit.texts, strict=True)
            rows += [(reject.row, reject.id, reject.reason) for reject in unit.rejects]
    return spans, sorted(rows)


def cut(file: InputFile, size: int) -> InputFile:
    """A file whose cut a store keeps; with 0 it is read by the rules of its format alone."""
    return replace(file, cut=size)


FIELD = st.one_of(
    st.text(st.sampled_from('ab,;"\n\r é'), max_size=8),
    st.sampled_from(["", "word", 'a "quoted" word', "two\nlines", "two\r\nlines"]),
)
WRITTEN = st.builds(
    lambda rows, end, quoting: _csv_text(rows, end, quoting),
    st.lists(st.lists(FIELD, min_size=2, max_size=2), max_size=12),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
ROUGH = st.lists(
    st.sampled_from(["\n", "\r\n", "\r", '"', '""', "a,b\n", '"a\nb",c\n', 'a,"b""c"\n', ","]),
    max_size=25,
).map("".join)


def _csv_text(rows: list[list[str]], end: str, quoting: Any) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator=end, quoting=quoting).writerows(rows)
    return out.getvalue()


@settings(max_examples=examples(120), deadline=None)
@given(
    header=st.sampled_from(["text,id\n", "text\r\n", '\ufeff"text",id\n', '"text","i\nd"\n']),
    body=st.one_of(WRITTEN, ROUGH),
    size=st.integers(1, 60),
    at_once=st.sampled_from([1, 7, 1 << 20]),
)
def test_parts_of_a_csv_file_have_the_rows_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, header: str, body: str, size: int, at_once: int
) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes((header + body).encode())
    (file,) = match_inputs(str(path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_cuts, "AT_ONCE", at_once)
        assert outcome(cut(file, size)) == outcome(cut(file, 0))


def outcome(file: InputFile) -> Any:
    """The rows of a file, or the error."""
    try:
        return read(file)[1]
    except Exception as error:
        return str(error)


def test_a_csv_file_is_read_in_parts(tmp_path: Path) -> None:
    texts = sentences(400)
    path = tmp_path / "a.csv"
    path.write_text("id,text\r\n" + _csv_text([[str(i), t] for i, t in enumerate(texts)], "\n", 0))
    (file,) = match_inputs(str(path))
    spans, rows = read(file)
    assert len(spans) > 5
    assert [span.rows for span in spans] == [span.stop - span.start for span in spans]  # type: ignore[operator]
    assert rows == [(i, f"a.csv#{i}", text) for i, text in enumerate(texts)]
    tokens = [
        sum(estimate_tokens(len(text.encode()), 1) for text in texts[span.start : span.stop])
        for span in spans
    ]
    assert all(0.6 * UNIT < n < 1.25 * UNIT for n in tokens[:-1])


def test_an_edit_of_a_csv_file_moves_no_other_part(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    texts = sentences(400)
    path.write_text("text\n" + "\n".join(texts) + "\n")
    (file,) = match_inputs(str(path))
    before, _ = read(cut(file, 2000))
    texts[3] += " more"
    path.write_text("text\n" + "\n".join(texts) + "\n")
    (file,) = match_inputs(str(path))
    after, _ = read(cut(file, 2000))
    assert [span.name for span in after] == [span.name for span in before]
    moved = [a.start - b.start for a, b in zip(after, before, strict=True)]
    assert set(moved) <= {0, -1}


@pytest.mark.parametrize("template", [False, True])
def test_json_lines_are_cut_by_their_text(tmp_path: Path, template: bool) -> None:
    texts = sentences(300)
    rows = [{"meta": "x" * 900, "text": text} for text in texts]
    (file,) = match_inputs(str(write_jsonl(tmp_path / "a.jsonl", rows)))
    spans = plan_file(file, ("text",) if template else "text", UNIT)
    units = [unit for span in spans for unit in read_span(span, Columns(), UNIT)]
    assert [text for unit in units for text in unit.texts] == texts
    sizes = [sum(estimate_tokens(len(t.encode()), 1) for t in unit.texts) for unit in units]
    assert all(0.6 * UNIT < size < 1.25 * UNIT for size in sizes[:-1])
    assert len(plan_file(cut(file, 0), "text", UNIT)) > 10 * len(spans)


def test_compressed_json_lines_make_units_by_their_text(tmp_path: Path) -> None:
    line = json.dumps({"meta": "x" * 900, "text": "some words of a sentence"}) + "\n"
    path = write_bytes(tmp_path / "a.jsonl.gz", 300 * line.encode())
    (file,) = match_inputs(str(path))

    def units(file: InputFile) -> int:
        (span,) = plan_file(file, "text", UNIT)
        return sum(1 for _ in read_span(span, Columns(), UNIT))

    assert 5 <= units(file) < 10
    assert units(cut(file, 0)) > 100


@pytest.mark.parametrize("head", ["", "\n\n", "[1, 2]\n", '{"text": 5}\n{"text": null}\n'])
def test_a_head_without_text_gives_a_cut_all_the_same(tmp_path: Path, head: str) -> None:
    path = write_bytes(tmp_path / "a.jsonl", head.encode())
    (file,) = match_inputs(str(path))
    assert JsonLines().choose_cut(file, "text", UNIT) > 0


def test_rows_of_a_large_row_group_are_read_in_ranges(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = sentences(3000)
    schema = pa.schema([("text", pa.string())])
    sizes = [5, 0, 2000, 10, 985]
    with pq.ParquetWriter(path, schema) as writer:
        at = 0
        for size in sizes:
            writer.write_table(pa.table({"text": texts[at : at + size]}, schema), size or 1)
            at += size
    (file,) = match_inputs(str(path))
    whole, rows = read(cut(file, 0))
    spans, found = read(cut(file, 300))
    assert found == rows == [(i, f"a.parquet#{i}", text) for i, text in enumerate(texts)]
    assert len({span.name for span in spans}) == len(spans) > len(whole)
    assert max(span.rows or 0 for span in spans) <= 375
    assert [span.start for span in spans[1:]] == [span.stop for span in spans[:-1]]
    chosen, _ = read(file)
    assert max(span.tokens for span in chosen) <= 8 * 1.25 * UNIT
