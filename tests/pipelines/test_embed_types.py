"""Kept columns with types, by the commands: what a store begins with, keeps, and is given later."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    rejects_of,
    rows_of,
    sentences,
    write_bytes,
    write_jsonl,
    write_parquet,
)
from helpers.snapshots import units_of

import sentence_beam as sb
from sentence_beam.transforms.store import open_store

TEXTS = sentences(12)
SMALL, LARGE = ("--unit-tokens", 40), ("--unit-tokens", 100_000)


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


@pytest.mark.parametrize(
    "how", [LARGE, pytest.param(SMALL, marks=pytest.mark.slow), ("--partition", "content")]
)
def test_a_new_store_has_the_types_of_json(
    embed: Run, inputs: Path, store: Path, how: tuple
) -> None:
    columns = ("--id-column", "id", "--keep-columns", "n")
    write_jsonl(inputs / "a.jsonl", numbered([9, 100, None]))
    write_jsonl(inputs / "b.jsonl", numbered([20.5, 7], 3))
    embed(inputs / "*", *columns, *how).ok()
    assert (type_of(store), values_of(store)) == ("double", [9.0, 100.0, None, 20.5, 7.0])
    assert sorted(hit["n"] for hit in search(store, "n < 21")) == [7.0, 9.0, 20.5]
    # whole numbers alone: floats all the same
    write_jsonl(inputs / "b.jsonl", numbered([20, 7], 3))
    embed(inputs / "*").ok()
    manifest = check_ledger(store, 5, embedded=0)
    assert manifest["options"]["keep_types"] == {"n": "float"}
    assert (type_of(store), values_of(store)) == ("double", [9.0, 100.0, None, 20.0, 7.0])


def test_many_small_files_share_units_and_types(embed: Run, inputs: Path, store: Path) -> None:
    for n in range(16):
        write_jsonl(
            inputs / f"{n:02}.jsonl", [{"id": str(n), "text": f"{TEXTS[n % 12]} {n}", "n": n}]
        )
    embed(inputs / "*", "--id-column", "id", "--keep-columns", "n", *LARGE).ok()
    manifest = check_ledger(store, 16)
    assert [unit["file"] for unit in units_of(store, manifest)] == [None]
    assert (type_of(store), values_of(store)) == ("int64", list(range(16)))


@pytest.mark.parametrize("partition", ["file", pytest.param("content", marks=pytest.mark.slow)])
def test_a_column_of_text_stays_text_until_a_type_is_given(
    run: Run, embed: Run, inputs: Path, store: Path, partition: str
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


def test_types_given_for_csv(embed: Run, inputs: Path, store: Path) -> None:
    lines = [
        "text,price,day,ok,name",
        "one,9,2026-01-02,yes,9",
        "two,100,2026-03-02,no,x",
        "three,,,,",
    ]
    write_bytes(inputs / "a.csv", "\n".join(lines).encode())
    columns = "price:int,day:date,ok:bool,name"
    embed(inputs / "*", "--keep-columns", columns).ok()
    kinds = [type_of(store, name) for name in ("price", "day", "ok", "name")]
    assert kinds == ["int64", "date32[day]", "bool", "string"]
    found = search(store, "price < 10 AND day >= '2026-01-02' AND ok")
    assert [(hit["price"], str(hit["day"]), hit["ok"], hit["name"]) for hit in found] == [
        (9, "2026-01-02", True, "9")
    ]
    assert len(search(store, "price IS NULL AND day IS NULL AND ok IS NULL")) == 1


def test_rows_with_other_values_are_rejected_with_their_reason(
    embed: Run, inputs: Path, store: Path
) -> None:
    values = [*range(10), "N/A", 1.5]
    write_jsonl(inputs / "a.jsonl", numbered(values))
    columns = ("--id-column", "id", "--keep-columns", "n:int")
    line = embed(inputs / "*", *columns, "--max-rejects", 0).failed(
        3, "2 of 12 rows", "2 kept column n is not int"
    )
    assert "--max-rejects" in line
    embed(inputs / "*", *columns).ok()
    assert [(reject["id"], reject["reason"]) for reject in rejects_of(store)] == [
        ("10", "kept column n is not int"),
        ("11", "kept column n is not int"),
    ]


def test_files_that_are_added_have_the_stores_types(embed: Run, inputs: Path, store: Path) -> None:
    write_jsonl(inputs / "a.jsonl", numbered([1, 2]))
    embed(inputs / "a.jsonl", "--id-column", "id", "--keep-columns", "n").ok()
    write_jsonl(inputs / "b.jsonl", numbered(["3", None], 2))  # as text, which can be read
    embed(inputs / "b.jsonl", "--append").ok()
    assert (type_of(store), values_of(store)) == ("int64", [1, 2, 3, None])
    write_jsonl(inputs / "c.jsonl", numbered(["many"], 4))
    embed(inputs / "c.jsonl", "--append", "--max-rejects", 0).failed(
        3, "1 kept column n is not int", "--keep-columns n:float", "n:str all values"
    )
    embed(inputs / "c.jsonl", "--append", "--keep-columns", "n:str").ok()
    check_ledger(store, 5, embedded=1)
    assert (type_of(store), values_of(store)) == ("string", ["1", "2", "3", None, "many"])


@pytest.mark.parametrize("how", [(), ("--append",)], ids=["all files", "append"])
def test_a_column_without_values_gets_its_type_later(
    embed: Run, inputs: Path, store: Path, how: tuple
) -> None:
    write_jsonl(inputs / "a.jsonl", numbered([None, None]))
    embed(inputs / "*", "--id-column", "id", "--keep-columns", "n").ok()
    assert type_of(store) == "string"
    write_jsonl(inputs / "b.jsonl", numbered([5], 2))
    embed(inputs / ("b.jsonl" if how else "*"), *how).ok()
    manifest = check_ledger(store, 3, embedded=1)
    assert (type_of(store), values_of(store)) == ("int64", [None, None, 5])
    assert manifest["options"]["keep_types"] == {"n": "int"}
    write_jsonl(inputs / "c.jsonl", numbered([5.5], 3))
    said = embed(inputs / ("c.jsonl" if how else "*"), *how).ok().out
    assert "1 rejected: kept column n is not int (--keep-columns n:float takes more" in said
    embed(inputs / ("c.jsonl" if how else "*"), *how, "--keep-columns", "n:float").ok()
    check_ledger(store, 4, embedded=1)
    assert (type_of(store), values_of(store)) == ("double", [None, None, 5.0, 5.5])


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


def test_mistakes(embed: Run, inputs: Path) -> None:
    write_jsonl(inputs / "a.jsonl", numbered([1]))
    write_jsonl(inputs / "b.jsonl", numbered(["x"], 1))
    embed(inputs / "*", "--keep-columns", "n:flaot").failed(
        2, "--keep-columns", "did you mean float?"
    )
    embed(inputs / "*", "--keep-columns", "text:int").failed(
        2, "--keep-columns text:int", "the column with the text"
    )


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
