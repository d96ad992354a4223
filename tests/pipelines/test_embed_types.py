"""Kept columns with types, by the commands: what a store begins with, keeps, and is given later."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    ids_of,
    manifest_of,
    rejects_of,
    rows_of,
    sentences,
    write_bytes,
    write_jsonl,
    write_parquet,
)

import sentence_beam as sb
from sentence_beam.transforms.store import open_store

TEXTS = sentences(12)


def numbered(values: Iterable[Any], start: int = 0) -> list[dict[str, Any]]:
    """A row for each value."""
    return [{"id": str(n), "text": TEXTS[n], "n": value} for n, value in enumerate(values, start)]


def type_of(store: Path, column: str = "n") -> str:
    return str(open_store(str(store)).dataset().schema.field(column).type)


def values_of(store: Path) -> list[Any]:
    return [row["n"] for row in sorted(rows_of(store), key=lambda row: int(row["id"]))]


def search(store: Path, where: str) -> list[dict[str, Any]]:
    """All rows that a filter wants."""
    return open_store(str(store)).search(TEXTS[0], 99, where=where)


def test_a_new_store_has_the_types_of_json(embed: Run, inputs: Path, store: Path) -> None:
    columns = ("--id-column", "id", "--keep-columns", "n")
    write_jsonl(inputs / "a.jsonl", numbered([9, 100, None]))
    write_jsonl(inputs / "b.jsonl", numbered([20.5, 7], 3))
    embed(inputs / "*", *columns).ok()
    assert (type_of(store), values_of(store)) == ("double", [9.0, 100.0, None, 20.5, 7.0])
    assert sorted(hit["n"] for hit in search(store, "n < 21")) == [7.0, 9.0, 20.5]
    # whole numbers alone: floats all the same
    write_jsonl(inputs / "b.jsonl", numbered([20, 7], 3))
    embed(inputs / "*").ok()
    manifest = check_ledger(store, 5, embedded=0)
    assert manifest["options"]["keep_types"] == {"n": "float"}
    assert (type_of(store), values_of(store)) == ("double", [9.0, 100.0, None, 20.0, 7.0])


def test_a_column_of_text_stays_text_until_a_type_is_given(
    run: Run, embed: Run, inputs: Path, store: Path
) -> None:
    write_jsonl(inputs / "a.jsonl", numbered([9, 100, 20]))
    embed(inputs / "*", "--id-column", "id", "--keep-columns", "n:str").ok()
    write_jsonl(inputs / "a.jsonl", numbered([9, 100, 21]))
    embed(inputs / "*").ok()
    assert (type_of(store), values_of(store)) == ("string", ["9", "100", "21"])
    command = ("search", "--store", store, "--query", TEXTS[0], "--json")
    line = run(*command, "--where", "n < '100'").failed(
        2, "--where: n is text", "--keep-columns n:int", "'9'"
    )
    assert run(*command, "--where", "n >= '0' OR n = '9'").failed(2) == line
    run(*command, "--where", "n = '9' OR n IN ('100')").ok()
    embed(inputs / "*", "--keep-columns", "n:int").ok()
    check_ledger(store, 3, embedded=0, carried=0)
    assert (type_of(store), values_of(store)) == ("int64", [9, 100, 21])
    assert '"n": 100' not in run(*command, "--where", "n < 100").ok().out
    embed(inputs / "*").ok()
    check_ledger(store, 3, carried=3)
    run("rollback", "-2", "--store", store).ok()
    embed(inputs / "*").ok()
    check_ledger(store, 3, carried=3)
    assert type_of(store) == "string"


def test_appended_files_have_the_stores_types_and_a_column_without_values_gets_one(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_jsonl(inputs / "a.jsonl", numbered([None, None]))
    embed(inputs / "*", "--id-column", "id", "--keep-columns", "n").ok()
    assert type_of(store) == "string"
    write_jsonl(inputs / "b.jsonl", numbered([5], 2))
    embed(inputs / "b.jsonl", "--append").ok()
    assert check_ledger(store, 3, embedded=1)["options"]["keep_types"] == {"n": "int"}
    write_jsonl(inputs / "c.jsonl", numbered(["3", "many"], 3))  # of which one can be read
    line = embed(inputs / "c.jsonl", "--append", "--max-rejects", 0).failed(
        3, "1 of 5 rows", "1 kept column n is not int", "--keep-columns n:float", "n:str all values"
    )
    assert "--max-rejects" in line
    said = embed(inputs / "c.jsonl", "--append").ok().out
    assert "1 rejected: kept column n is not int (--keep-columns n:float takes more" in said
    assert (type_of(store), values_of(store)) == ("int64", [None, None, 5, 3])
    assert [(r["id"], r["reason"]) for r in rejects_of(store)] == [
        ("4", "kept column n is not int")
    ]
    embed(inputs / "c.jsonl", "--append", "--keep-columns", "n:str").ok()
    check_ledger(store, 5, embedded=1)
    assert (type_of(store), values_of(store)) == ("string", [None, None, "5", "3", "many"])


def test_a_type_that_the_store_has_already_changes_nothing(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_parquet(inputs / "a.parquet", TEXTS[:1], id=["1"], n=[1])
    embed(inputs / "*", "--id-column", "id", "--keep-columns", "n").ok()
    (inputs / "a.parquet").unlink()
    write_parquet(inputs / "b.parquet", TEXTS[1:2], id=["2"], n=pa.array([2], pa.int16()))
    embed(inputs / "b.parquet", "--append", "--keep-columns", "n:int").ok()
    check_ledger(store, 2, carried=1)
    embed(inputs / "b.parquet", "--append", "--keep-columns", "n:str").failed(
        2, "a.parquet is gone", "without --append"
    )


def test_a_table_gets_the_type_given_and_a_type_is_dropped_with_its_column(
    embed: Run, inputs: Path, store: Path
) -> None:
    columns = {"id": [str(n) for n in range(3)], "n": pa.array(["9", "100", "x"])}
    write_parquet(inputs / "a.parquet", TEXTS[:3], **columns)
    embed(inputs / "*", "--id-column", "id", "--keep-columns", "n:float", "--max-rejects", 1).ok()
    assert (type_of(store), values_of(store)) == ("double", [9.0, 100.0])
    embed(inputs / "*", "--keep-columns", "").ok()
    assert "keep_types" not in check_ledger(store, 3, embedded=1)["options"]
    embed(inputs / "*", "--keep-columns", "n").ok()
    assert (type_of(store), values_of(store)) == ("string", ["9", "100", "x"])


def test_types_by_name_in_python(inputs: Path, store: Path, model: Path) -> None:
    write_bytes(inputs / "a.csv", b"text,n,m\none,1,2\n")
    made = sb.embed(
        inputs / "a.csv", store=str(store), model=str(model), keep_columns={"n": "int", "m": None}
    )
    assert made is not None
    assert [str(made.dataset().schema.field(name).type) for name in ("n", "m")] == [
        "int64",
        "string",
    ]


def test_found_columns_are_said_and_remembered(
    embed: Run, plan: Run, inputs: Path, store: Path
) -> None:
    path = inputs / "a.csv"
    rows = "".join(f"R{n},{text}\n" for n, text in enumerate(sentences(4)))
    write_bytes(path, f"review_id,body\n{rows}".encode())
    line = (
        "columns     text body; ids from file and row (review_id would do: --id-column review_id)\n"
    )
    assert line in plan(path).ok().out
    assert line in embed(path).ok().out
    options = manifest_of(store)["options"]
    assert (options["text_column"], options["id_column"]) == ("body", None)
    more = rows.replace("\n", ",a b c,7\n")
    write_bytes(path, f"review_id,body,title,id\n{more}".encode())
    assert "\ncolumns " not in embed(path).ok().out
    assert sorted(ids_of(store)) == [f"a.csv#{n}" for n in range(4)]


def test_no_column_is_guessed_and_no_store_begun(embed: Run, inputs: Path, store: Path) -> None:
    path = inputs / "a.csv"
    write_bytes(path, b"title,body\na title of it,a body of some words\n")
    embed(path).failed(2, "title 'a title of it'", "--text-template '{title}\\n\\n{body}'")
    assert not store.exists()
    embed(path, "--text-template", "{title} {body}").ok()
