"""forget: after it no file of the store has anything of the rows, and nobody else's rows change.

The scan is an independent reader of all files (`helpers/store_scan.py`).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.commands import Outcome, Run
from helpers.corpora import rejects_of, rows_of, write_parquet
from helpers.store_scan import PlantedRow, scan

from transforms.store import open_store
from transforms.store.manifest import read_manifest, snapshots

IDS = ("--id-column", "id")


def texts(n: int, start: int = 0) -> list[str]:
    """Sentences that no two rows share."""
    return [f"entry {i} speaks of {i * 31 % 97} boats, {i * 17 % 89} bees" for i in range(start, n)]


def names(n: int, start: int = 0) -> list[str]:
    """Ids that occur in no other text."""
    return [f"person-{i:05d}" for i in range(start, n)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where a store may be made."""
    return tmp_path / "store"


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """A folder with an input of two files."""
    folder = tmp_path / "in"
    folder.mkdir()
    write_files(folder, 40)
    return folder


def write_files(folder: Path, n: int, without: frozenset[str] = frozenset()) -> None:
    """Write n rows in two files, and a language for each."""
    rows = [
        (name, text, ("en", "de")[i % 2])
        for i, (name, text) in enumerate(zip(names(n), texts(n), strict=True))
        if name not in without
    ]
    half = len(rows) // 2
    for file, some in (("a", rows[:half]), ("b", rows[half:])):
        ids, words, langs = (list(column) for column in zip(*some, strict=True))
        write_parquet(folder / f"{file}.parquet", words, id=ids, lang=langs)


@pytest.fixture
def embed(run: Run, model: Path, store: Path, inputs: Path) -> Run:
    """`embed` of the input into the test's store."""

    def call(*options: object) -> Outcome:
        return run("embed", "--input", inputs / "*", "--store", store, "--model", model, *options)

    return call


def planted(store: Path, wanted: list[str]) -> list[PlantedRow]:
    """Return rows of all kept snapshots, with every code that an index has of them."""
    found = []
    for name in snapshots(str(store)):
        manifest = read_manifest(str(store), name)
        assert manifest is not None
        for path in manifest.shard_paths:
            table = pq.read_table(path)
            text = table.column("text").to_pylist()
            vectors = table.column("embedding").to_pylist()
            hashes = table.column("row_hash").to_pylist()
            for place, row in enumerate(table.column("id").to_pylist()):
                if row in wanted:
                    vector = np.array(vectors[place], np.float32)
                    found.append(PlantedRow(row, text[place], hashes[place], vector))
    return found


def others(store: Path, gone: list[str]) -> dict[str, Any]:
    """Return everything of the other rows, by id."""
    return {
        row["id"]: {**row, "embedding": np.asarray(row["embedding"]).tobytes()}
        for row in rows_of(store)
        if row["id"] not in gone
    }


def hits(store: Path, gone: list[str], k: int = 40) -> list[list[tuple[str, float]]]:
    """Return what a search of all rows gives, without some rows."""
    found = open_store(str(store)).search(texts(3), k=k)
    return [[(hit.id, hit.score) for hit in of if hit.id not in gone] for of in found]


def forget(run: Run, store: Path, *rows: str, options: tuple[object, ...] = ()) -> Outcome:
    """Erase rows by id."""
    return run("forget", "--store", store, "--id", *rows, *options)


@pytest.mark.parametrize("partition", ["file", "content"])
@pytest.mark.parametrize("index", ["Flat", "IVF4,SQ8", "IVF4,RaBitQ"])
def test_nothing_is_left_and_nobody_else_changes(
    run: Run, embed: Run, store: Path, inputs: Path, partition: str, index: str
) -> None:
    write_files(inputs, 120)
    embed(*IDS, "--keep-columns", "lang", "--partition", partition, "--index", index).ok()
    write_files(inputs, 130, frozenset({"person-00003"}))
    embed().ok()
    gone = ["person-00003", "person-00017", "person-00061", "person-00125"]
    rows = planted(store, gone)
    before, found = others(store, gone), hits(store, gone, 130)
    assert scan(store, rows)
    receipt = json.loads(forget(run, store, *gone, options=("--json",)).ok().out)
    assert receipt["rows"] == 3
    assert scan(store, rows) == []
    assert others(store, gone) == before
    assert [row["id"] for row in rows_of(store) if row["id"] in gone] == []
    if "RaBitQ" not in index:
        assert hits(store, gone, 130) == found
    for name in snapshots(str(store)):
        run("verify", "--store", store, "--snapshot", name).ok()
    run("verify", "--store", store, "--forgotten").ok()

    write_files(inputs, 135)
    for file in inputs.iterdir():  # the same rows from other files
        file.rename(file.with_name(f"renamed-{file.name}"))
    out = embed().ok().out
    assert "erased" in out
    assert [row["id"] for row in rows_of(store) if row["id"] in gone] == []
    assert {row["reason"] for row in rejects_of(store)} == {"forgotten"}
    assert {(row["file"], row["row"], row["excerpt"]) for row in rejects_of(store)} == {("", 0, "")}
    assert scan(store, rows) == []
    run("verify", "--store", store, "--forgotten").ok()
