"""The cuts of input files that a store keeps from run to run."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    edit_manifest,
    manifest_of,
    rows_of,
    sentences,
    write_jsonl,
    write_parquet,
)

UNIT = 400  # tokens


def test_a_file_keeps_its_cut_until_all_is_embedded_again(
    embed: Run, inputs: Path, store: Path
) -> None:
    def write(meta: int) -> None:
        rows = [{"meta": "x" * meta, "text": text} for text in sentences(100)]
        write_jsonl(inputs / "a.jsonl", rows)

    def cut_of() -> int:
        manifest = manifest_of(store)
        assert manifest is not None
        (entry,) = manifest["input"]["files"]
        return int(entry.get("cut", 0))

    write(900)
    embed(inputs / "a.jsonl", "--unit-tokens", UNIT).ok()
    chosen = cut_of()
    write(10)
    embed(inputs / "a.jsonl").ok()
    assert cut_of() == chosen > 3 * UNIT
    embed(inputs / "a.jsonl", "--keep-columns", "meta").ok()
    assert cut_of() == chosen
    as_of_an_earlier_version(store)
    write(11)
    embed(inputs / "a.jsonl").ok()
    assert cut_of() == 0
    embed(inputs / "a.jsonl").ok()
    assert cut_of() == 0
    embed(inputs / "a.jsonl", "--reembed").ok()
    assert 0 < cut_of() < chosen
    check_ledger(store, 100)


def as_of_an_earlier_version(store: Path) -> None:
    """Take the cuts out of a store's manifests, as a version wrote them that kept none."""
    for path in [store / "manifest.json", *(store / "manifests").iterdir()]:
        data = json.loads(path.read_bytes())
        for entry in data["input"]["files"]:
            entry.pop("cut", None)
        edit_manifest(path, data)


def test_a_renamed_file_takes_its_cut_along(embed: Run, inputs: Path, store: Path) -> None:
    path = write_parquet(inputs / "a.parquet", sentences(40), 40, id=[str(i) for i in range(40)])
    embed(inputs / "*.parquet", "--id-column", "id", "--unit-tokens", 100).ok()
    manifest = manifest_of(store)
    assert manifest is not None
    path.rename(inputs / "b.parquet")
    embed(inputs / "*.parquet", "--id-column", "id").ok()
    renamed = manifest_of(store)
    assert renamed is not None
    assert renamed["work"]["carried"] == 40
    assert renamed["input"]["files"][0]["cut"] == manifest["input"]["files"][0]["cut"] > 0
    assert len(rows_of(store)) == 40


@pytest.mark.parametrize("partition", ["file", "content"])
def test_a_table_keeps_its_one_span_until_all_is_embedded_again(
    embed: Run, inputs: Path, store: Path, partition: str
) -> None:
    """Earlier versions read a file of Arrow as one span."""

    def write(texts: list[str]) -> None:
        table = pa.table({"text": texts})
        with pa.ipc.new_file(str(inputs / "a.arrow"), table.schema) as writer:
            writer.write_table(table, max_chunksize=8)

    def firsts() -> set[str]:
        manifest = manifest_of(store)
        assert manifest is not None
        (entry,) = manifest["input"]["files"]
        cut.append(int(entry.get("cut", 0)))
        return {unit["unit"].partition(".")[0] for unit in manifest["shards"]}

    cut: list[int] = []
    texts = sentences(100)
    write(texts)
    options = ("--unit-tokens", UNIT, "--partition", partition)
    embed(inputs / "a.arrow", *options).ok()
    chosen = firsts()
    rows = {row["id"]: row["text"] for row in rows_of(store)}
    assert rows == {f"a.arrow#{number}": text for number, text in enumerate(texts)}
    as_of_an_earlier_version(store)
    write(["another", *texts[1:]])
    embed(inputs / "a.arrow").ok()
    as_before = firsts()
    embed(inputs / "a.arrow", "--reembed").ok()
    assert firsts() == chosen
    assert cut[0] == cut[2] > cut[1] == 0
    if partition == "file":
        assert len(chosen) == 2
        assert len(as_before) == 1
    check_ledger(store, 100)
