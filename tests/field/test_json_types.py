"""JSON whose columns change their type late: what was dumped, its values, the right column."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.field_rows import read_rows

from sentence_beam.transforms.corpus import Columns

FILLER = "x" * 1_300_000  # rows after it are not among the first ones
KEPT = Columns("text", "id", ("c",))


@pytest.mark.parametrize(
    ("dumped", "first", "late", "kind", "right"),
    [
        ("prices: a half after whole numbers", 7, 1.5, "double", [7.0, 1.5]),
        ("flags after numbers", 7, True, "string", ["7", "true"]),
        ("numbers after flags", True, 7, "string", ["true", "7"]),
        ("codes with zeros in front", 7, "007", "string", ["7", "007"]),
        ("objects after text", "a", {"b": 1}, "string", ["a", '{"b":1}']),
        ("nothing, then numbers", None, 5, "int64", [None, 5]),
        ("nothing, then text", None, "a", "string", [None, "a"]),
        ("nothing at all", None, None, "string", [None, None]),
        ("beyond 64 bits", 1, 2**64, "string", ["1", str(2**64)]),
    ],
)
@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_late_values(
    tmp_path: Path, dumped: str, first: Any, late: Any, kind: str, right: list[Any], ending: str
) -> None:
    rows = [{"id": "a", "text": FILLER, "c": first}, {"id": "b", "text": "late", "c": late}]
    text = "\n".join(map(json.dumps, rows))
    if ending == "json":
        text = json.dumps(rows)
    (tmp_path / f"a.{ending}").write_text(text)
    found = read_rows(tmp_path / f"a.{ending}", KEPT)
    assert (found.kept, found.kind, found.rejects) == (right, kind, {})


def test_a_key_that_comes_late(tmp_path: Path) -> None:
    rows = [{"id": "a", "text": FILLER}, {"id": "b", "text": "late", "c": 5}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "b.jsonl").write_text('{"id":"c","text":"x","c":1}\n')
    found = read_rows([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], KEPT)
    assert (found.kept, found.kind) == ([None, 5, 1], "int64")
