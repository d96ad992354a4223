"""Text made of several columns, by a template."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from helpers.commands import Run
from helpers.corpora import manifest_of, rejects_of, rows_of

from sentence_beam.transforms.space import row_hash

TEMPLATE = "{title}\\n\\n{meta.body} ({year})"
ROWS: list[dict[str, Any]] = [
    {"title": "One", "meta": {"body": "a cat"}, "year": 1999},
    {"title": None, "meta": {"body": "a dog"}, "year": None},
    {"title": "Three", "meta": None, "year": 7},
    {"title": " ", "meta": {"body": ""}, "year": None},
]
TEXTS = ["One\n\na cat (1999)", "\n\na dog ()", "Three\n\n (7)"]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """The rows in the format that the file's name says."""
    table = pa.Table.from_pylist(rows)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".csv":
        names = {"title": "title", "meta.body": "meta", "year": "year"}
        flat = [
            {"title": r["title"], "meta.body": (r["meta"] or {}).get("body"), "year": r["year"]}
            for r in rows
        ]
        pyarrow.csv.write_csv(pa.Table.from_pylist(flat).select(list(names)), path)
    elif path.suffix == ".arrow":
        pyarrow.feather.write_feather(table, str(path), compression="uncompressed")
    else:
        pq.write_table(table, path)


def hashes(store: Path) -> list[bytes]:
    """The rows' hashes, sorted."""
    return sorted(row["row_hash"] for row in rows_of(store))


@pytest.mark.parametrize(
    ("suffix", "partition"),
    [(".parquet", "content"), (".jsonl", "file"), (".csv", "content"), (".arrow", "file")],
)
def test_every_format_gives_the_same_texts(
    embed: Run, inputs: Path, store: Path, suffix: str, partition: str
) -> None:
    write(inputs / f"a{suffix}", ROWS)
    embed(
        inputs / "*", "--text-template", TEMPLATE, "--max-rejects", 1, "--partition", partition
    ).ok()
    assert hashes(store) == sorted(map(row_hash, TEXTS))
    manifest = manifest_of(store)
    assert manifest["rows"] == {"read": 4, "written": 3, "rejected": 1}
    assert manifest["options"]["text_template"] == TEMPLATE


def test_the_store_remembers_it_until_a_column_is_named(
    embed: Run, inputs: Path, store: Path
) -> None:
    write(inputs / "a.parquet", ROWS[:3])
    embed(inputs / "*", "--text-template", TEMPLATE).ok()
    embed(inputs / "*").ok()
    assert manifest_of(store)["work"]["carried"] == 3
    embed(inputs / "*", "--text-column", "title", "--max-rejects", 1).ok()
    assert hashes(store) == sorted(map(row_hash, ["One", "Three"]))
    assert manifest_of(store)["options"]["text_template"] is None
    embed(inputs / "*", "--text-template", "{title}", "--max-rejects", 1).ok()
    assert manifest_of(store)["work"]["reused"] == 2


def test_a_file_may_lack_a_column_and_one_that_none_has_ends_the_run(
    embed: Run, inputs: Path, store: Path
) -> None:
    pq.write_table(pa.table({"title": ["One"], "body": ["cat"]}), inputs / "a.parquet")
    pq.write_table(pa.table({"title": ["Two"]}), inputs / "b.parquet")
    pq.write_table(pa.table({"other": ["Three"]}), inputs / "c.parquet")
    embed(inputs / "*", "--text-template", "{title} {body}", "--max-rejects", 1).ok()
    assert hashes(store) == sorted(map(row_hash, ["One cat", "Two "]))
    assert manifest_of(store)["rows"]["rejected"] == 1
    embed(inputs / "*", "--text-template", "{title} {bodi}").failed(
        2, "no column bodi", "--text-template"
    )


def test_plain_text_has_one_column(embed: Run, inputs: Path, store: Path) -> None:
    (inputs / "a.txt").write_text("a cat\na dog\n")
    embed(inputs / "*", "--text-template", "about: {text}").ok()
    assert hashes(store) == sorted(map(row_hash, ["about: a cat", "about: a dog"]))


@pytest.mark.parametrize("template", ["{title", "{}", "no name", "{title:>3}"])
def test_a_template_that_is_none(embed: Run, inputs: Path, store: Path, template: str) -> None:
    write(inputs / "a.parquet", ROWS)
    embed(inputs / "*", "--text-template", template).failed(2, "--text-template", "brace")


def test_a_template_beside_a_column(embed: Run, inputs: Path, store: Path) -> None:
    embed(inputs / "*", "--text-template", "{a}", "--text-column", "b").failed(
        2, "--text-template", "--text-column"
    )


def test_bytes_are_text_if_they_are_utf8(embed: Run, inputs: Path, store: Path) -> None:
    pq.write_table(pa.table({"title": ["Ü".encode(), b"\xff"]}), inputs / "a.parquet")
    embed(inputs / "*", "--text-template", "{title}", "--max-rejects", 1).ok()
    assert [row["text"] for row in rows_of(store)] == ["Ü"]
    assert [reject["reason"] for reject in rejects_of(store)] == ["not UTF-8"]
