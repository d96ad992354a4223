"""JSON files are cut between their values, each row once, and faults are found as in one piece.

Covers transforms/corpus/json_places.py.
Covers transforms/corpus/formats/json_array.py.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.corpora import sentences, write_bytes
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.base.errors import SentenceBeamError
from transforms.corpus import Columns, InputFile, Span, json_places, plan_file, read_span
from transforms.corpus.find import match_inputs
from transforms.corpus.spans import estimated_tokens

UNIT = 400  # tokens
Row = tuple[int, str | None, str]


def rows_of(span: Span) -> list[Row]:
    """The rows of a span in order: position, id, and text or the reason against it."""
    rows: list[Row] = []
    for unit in read_span(span, Columns(), UNIT):
        rows += zip(unit.positions, unit.ids, unit.texts, strict=True)
        rows += [(reject.row, reject.id, reject.reason) for reject in unit.rejects]
    return sorted(rows)


def written(folder: Path, data: bytes, name: str = "a.json") -> InputFile:
    (file,) = match_inputs(str(write_bytes(folder / name, data)))
    return file


def outcome(file: InputFile) -> list[Row] | str:
    """The rows of a file, or its error without the place of the fault."""
    try:
        return [row for span in plan_file(file, "text", UNIT) for row in rows_of(span)]
    except SentenceBeamError as error:
        return re.sub(r"character \d+( after byte \d+)?", "character", str(error))


def fault_of(span: Span) -> str:
    """The message of reading a span; "" without an error."""
    try:
        rows_of(span)
    except SentenceBeamError as error:
        return str(error)
    return ""


TEXT = st.text(st.sampled_from('ab"\\/[]{},: \n\té\U0001f600'), max_size=8)
VALUE: st.SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries({"text": TEXT}),
    st.fixed_dictionaries({"text": TEXT, "more": st.lists(st.lists(TEXT, max_size=2), max_size=2)}),
    TEXT,
    st.sampled_from([None, True, -1.5e3, float("nan"), [], {}, [{}, []], {"text": None}]),
)
MANY = st.lists(VALUE, max_size=12)
ARRAY = st.builds(
    lambda values, indent, ascii: json.dumps(values, indent=indent, ensure_ascii=ascii),
    MANY,
    st.sampled_from([None, 1]),
    st.booleans(),
)
CONSECUTIVE = st.builds(
    lambda values, between: between.join(map(json.dumps, values)),
    MANY,
    st.sampled_from(["\n", " ", "", "\r\n", "\n\n \n", ",", "\nx\n", " xxx "]),
)
FAULT = st.sampled_from(["", ",", "]", "[", "}", "{", '"', "\\", '\\"', "]]", " x", "[1]", "\n"])
SIZES = st.integers(1, 60)
AT_ONCE = st.sampled_from([1, 7, 1 << 20])


@settings(max_examples=examples(150), deadline=None)
@given(
    head=st.sampled_from(["", "\ufeff", "\n ", " " * 70]),
    body=st.one_of(ARRAY, CONSECUTIVE),
    tail=st.sampled_from(["", "", "\n", ",", "]", " x", "[]", "\n" * 70]),
    fault=FAULT,
    at=st.floats(0, 1),
    size=SIZES,
    at_once=AT_ONCE,
)
def test_parts_have_the_rows_or_the_fault_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory,
    head: str,
    body: str,
    tail: str,
    fault: str,
    at: float,
    size: int,
    at_once: int,
) -> None:
    place = round(at * len(body))
    text = head + body[:place] + fault + body[place:] + tail
    file = written(tmp_path_factory.mktemp("json"), text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_places, "AT_ONCE", max(at_once, 3))  # the byte order mark
        patch.setattr(json_places, "BLOCK", at_once)
        assert outcome(replace(file, cut=size)) == outcome(replace(file, cut=0))


@settings(max_examples=examples(60), deadline=None)
@given(values=MANY, indent=st.sampled_from([None, 1]), size=SIZES, at_once=AT_ONCE)
def test_an_array_is_cut_at_each_multiple_of_the_cut(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[Any],
    indent: int | None,
    size: int,
    at_once: int,
) -> None:
    data = json.dumps(values, indent=indent).encode()
    file = written(tmp_path_factory.mktemp("json"), data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_places, "BLOCK", at_once)
        places = json_places.find_json_places(file, size)
    assert places is not None
    assert places.rows == max(1, len(values))
    for place in places.begins[1:]:
        rest = json.loads(b"[" + data[place.offset + 1 :])
        assert json.dumps(rest) == json.dumps(values[place.row :])
        assert place.number <= place.offset < place.number + size


@pytest.mark.parametrize("is_array", [True, False])
def test_a_json_file_is_read_in_parts(tmp_path: Path, is_array: bool) -> None:
    texts = sentences(400)
    rows = [{"meta": {"a": ["]", "{", 'x" ,']}, "text": text} for text in texts]
    data = json.dumps(rows, indent=2)
    if not is_array:
        data = "\n".join(map(json.dumps, rows))
    file = written(tmp_path, data.encode())
    spans = plan_file(file, "text", UNIT)
    assert len(spans) > 5
    assert len({span.name for span in spans}) == len(spans)
    assert [span.start for span in spans] == [0, *(span.stop for span in spans[:-1])]
    assert [[text for _, _, text in rows_of(span)] for span in spans] == [
        texts[span.start : span.stop] for span in spans
    ]
    whole = replace(file, cut=0)  # as earlier versions cut it
    assert len(plan_file(whole, "text", UNIT)) == 1
    assert outcome(file) == outcome(whole) == [(i, f"a.json#{i}", t) for i, t in enumerate(texts)]
    for span in spans[:-1]:
        inside = texts[span.start : span.stop]
        tokens = sum(estimated_tokens(len(text.encode()), 1) for text in inside)
        assert 0.6 * UNIT < tokens < 1.4 * UNIT
        assert 0.6 * tokens < span.tokens < 1.6 * tokens


def test_an_edit_moves_no_other_part(tmp_path: Path) -> None:
    texts = sentences(400)
    before = plan_file(
        written(tmp_path, json.dumps([{"text": t} for t in texts]).encode()), "text", UNIT
    )
    texts[3] += " more"
    file = written(tmp_path, json.dumps([{"text": t} for t in [*texts, *sentences(50)]]).encode())
    after = plan_file(replace(file, cut=before[0].file.cut), "text", UNIT)
    assert [span.name for span in after[: len(before)]] == [span.name for span in before]
    moved = [a.start - b.start for a, b in zip(after, before, strict=False)]
    assert set(moved) <= {0, -1}


def test_only_the_part_with_a_fault_fails(tmp_path: Path) -> None:
    data = json.dumps([{"text": text} for text in sentences(400)]).encode()
    place = data.index(b'"text": ', len(data) // 2)
    broken = data[:place] + b'"text"; ' + data[place + 8 :]
    file = replace(written(tmp_path, broken), cut=1500)  # kept from before the fault
    faults = [fault_of(span) for span in plan_file(file, "text", UNIT)]
    (fault,) = [fault for fault in faults if fault]
    found = re.fullmatch(
        rf"{file.path} is no JSON at character (\d+) after byte (\d+) \(Expecting ':' delimiter\);"
        r" mend it or leave it out of --input",
        fault,
    )
    assert found is not None
    assert place - 1 <= int(found[1]) + int(found[2]) <= place + 8


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.json.gz", json.dumps([{"text": text} for text in sentences(200)]).encode()),
        ("a.json", json.dumps([{"text": text} for text in sentences(200)]).encode("utf-16")),
        ("a.json", b"[" + b" " * 5000 + b"]"),
        ("a.json", b'"one" "two" ' * 400),
    ],
)
def test_other_json_is_read_by_one_worker(tmp_path: Path, name: str, data: bytes) -> None:
    file = written(tmp_path, data, name)
    (span,) = plan_file(file, "text", UNIT)
    assert rows_of(span) == outcome(replace(file, cut=0))
