"""JSON as people have it.

Covers transforms/corpus/formats/json_array.py.
Covers transforms/corpus/formats/json_values.py.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.examples import examples
from helpers.field import Written, file_of, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.corpus import Columns
from sentence_beam.transforms.corpus.formats import json_values
from sentence_beam.transforms.corpus.formats.registry import open_columns

ROWS = [{"id": "1", "text": "one"}, {"id": "2", "text": "zwei, größer"}]
RIGHT = [("1", "one"), ("2", "zwei, größer")]


def as_json(value: Any, **options: Any) -> bytes:
    """JSON in UTF-8."""
    return json.dumps(value, **options).encode()


WRITTEN = [
    Written("json.dump", as_json(ROWS, indent=2, ensure_ascii=False), RIGHT),
    Written("pandas, orient=records", as_json(ROWS, separators=(",", ":")), RIGHT),
    Written("mongoexport", b"\n".join(map(as_json, ROWS)) + b"\n", RIGHT),
    Written("jq, without --compact", b"\n".join(as_json(row, indent=2) for row in ROWS), RIGHT),
    Written("PowerShell", json.dumps(ROWS).encode("utf-8-sig"), RIGHT),
    Written("PowerShell, UTF-16", json.dumps(ROWS, ensure_ascii=False).encode("utf-16"), RIGHT),
    Written(".NET, no mark", json.dumps(ROWS, ensure_ascii=False).encode("utf-16-le"), RIGHT),
    Written(
        "Wolfram, a number of 5,000 digits",
        b'[{"id": "1", "text": "one", "n": ' + b"9" * 5000 + b'}, {"id": "2", "text": "two"}]',
        [("1", "one"), ("2", "two")],
    ),
    Written(
        "the same, as lines",
        b'{"id": "1", "text": "one", "n": -' + b"9" * 5000 + b"}\n",
        [("1", "one")],
        name="a.jsonl",
    ),
    Written("an empty array", b"[]\n", []),
    Written("numbers among the objects", b'[{"id": "1", "text": "one"}, 5]', [RIGHT[0], "!"]),
    Written(
        "an API", as_json({"version": "1", "data": ROWS}), RIGHT, options={"json_rows": "data"}
    ),
    Written(
        "Elasticsearch",
        as_json({"took": 3, "hits": {"total": {"value": 2}, "hits": ROWS}}),
        RIGHT,
        options={"json_rows": "hits.hits"},
    ),
    Written(
        "pages of an API, one after the other",
        as_json({"data": ROWS[:1], "next": 2}) + as_json({"next": None, "data": ROWS[1:]}),
        RIGHT,
        options={"json_rows": "data"},
    ),
    Written(
        "a key with a dot",
        as_json({"a.b": ROWS, "a": {"c": []}}),
        RIGHT,
        options={"json_rows": "a.b"},
    ),
    Written(
        "a page without rows", as_json({"data": [], "n": 0}), [], options={"json_rows": "data"}
    ),
    Written(
        "brackets and quotes in other values",
        as_json({"note": 'a "]}, [{" b', "skip": [[{"data": [1]}]], "data": ROWS}),
        RIGHT,
        options={"json_rows": "data"},
    ),
]


@pytest.mark.parametrize("written", WRITTEN, ids=lambda written: written.by)
def test_rows(tmp_path: Path, written: Written) -> None:
    path = tmp_path / "a.json"
    file = file_of(path, written.data, **written.options)
    if not written.rows:
        assert list(json_values.read_json(file)) == []
        return
    assert rows_of(file, written.header) == written.rows


@pytest.mark.parametrize(
    ("data", "name", "said"),
    [
        (b'{"data": [1]}', "rows", "has no array rows (json_rows); keys: 'data'"),
        (b'{"data": {"a": 1}}', "data.items", "has no array data.items"),
        (b'{"data": {"a": 1}}', "data", "has no array in data"),
        (b'[{"data": []}]', "data", "has another value than an object around data"),
        (b'{"data": [{"id": 1}', "data", "is no JSON at character 19 (cut short)"),
        (b'{"data": [{"id": 1}]', "data", "is no JSON at character 20 (cut short)"),
        (b'{"data": [{"id": 1} 2]}', "data", "Expecting ',' delimiter"),
        (b"{data: []}", "data", "Expecting property name"),
        (b'{"data" []}', "data", "Expecting ':' delimiter"),
    ],
)
def test_a_missing_array_is_one_line(tmp_path: Path, data: bytes, name: str, said: str) -> None:
    file = file_of(tmp_path / "a.json", data, json_rows=name)
    with pytest.raises(SentenceBeamError) as raised:
        list(json_values.read_json(file))
    assert said in str(raised.value)
    assert str(raised.value).startswith(f"{tmp_path}/a.json")


@pytest.mark.parametrize(
    ("value", "name"),
    [({"n": 1, "data": ROWS}, "data"), ({"a": {"n": [1], "items": ROWS}}, "a.items")],
)
def test_a_missing_column_leads_to_the_array(tmp_path: Path, value: Any, name: str) -> None:
    file = file_of(tmp_path / "a.json", as_json(value))
    with pytest.raises(OptionError, match=f"say json_rows {name} if this array has the rows"):
        open_columns(file).check(Columns())


def test_a_missing_column_of_another_encoding_is_said(tmp_path: Path) -> None:
    file = file_of(tmp_path / "a.json", '[{"größe": "one"}]'.encode("latin-1"))
    with pytest.raises(OptionError, match="the file is not UTF-8"):
        open_columns(file).check(Columns("größe"))


INNER = st.recursive(
    st.none() | st.integers() | st.text('a"\\]}[{:, ', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab."), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(80))
@given(
    before=st.dictionaries(st.sampled_from(["x", "y", "data"]), INNER, max_size=2),
    rows=st.lists(INNER, max_size=5),
    after=st.dictionaries(st.sampled_from(["z", "w"]), INNER, max_size=2),
    block=st.integers(1, 9),
)
def test_the_array_is_found_among_any_values(
    tmp_path_factory: pytest.TempPathFactory,
    before: dict[str, Any],
    rows: list[Any],
    after: dict[str, Any],
    block: int,
) -> None:
    value = {**before, "data": {"k": after, "items": rows}, **after}
    path = tmp_path_factory.mktemp("json") / "a.json"
    file = file_of(path, as_json(value), json_rows="data.items")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_values, "BLOCK", block)
        assert [row for some in json_values.read_json(file) for row in some] == rows
