"""Tables of Iceberg and Delta Lake as input: files of both snapshots are carried over, deleted rows are gone."""

from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import check_ledger, ids_of, manifest_of, write_lines
from helpers.lakes import iceberg_catalog, rows

pytestmark = pytest.mark.usefixtures("cached_beam_options", "one_model")
OPTIONS = ("--id-column", "id", "--keep-columns", "size", "--max-deletes", "1")
TABLE = "iceberg:lake.shop.docs"


def test_an_iceberg_table(embed: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = iceberg_catalog(tmp_path, monkeypatch).create_table("shop.docs", schema=rows("a").schema)
    with table.update_spec() as change:
        change.add_identity("size")
    table.append(rows("a", "b"))
    table.append(rows("c"))
    embed(TABLE, *OPTIONS).ok()
    check_ledger(store, 3, embedded=3)
    before = table.current_snapshot().snapshot_id
    table.append(rows("d"))
    table.delete("id == 'c'")
    embed(TABLE, *OPTIONS).ok()
    check_ledger(store, 3, embedded=1, carried=2)
    assert sorted(ids_of(store)) == ["a", "b", "d"]
    embed(TABLE, *OPTIONS, "--input-version", before, "--input-filter", "size = 0").ok()
    assert sorted(ids_of(store)) == ["a", "c"]
    embed(TABLE, *OPTIONS).ok()
    assert sorted(ids_of(store)) == ["a", "b", "d"]
    embed(TABLE, *OPTIONS, "--input-version", 17).failed(2, "--input-version 17", "no such snapshot")


def test_a_delta_table(embed: Run, store: Path, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    folder = tmp_path / "delta"
    deltalake.write_deltalake(folder, rows("a", "b"))
    deltalake.write_deltalake(folder, rows("c"), mode="append")
    embed(f"delta:{folder}", *OPTIONS).ok()
    check_ledger(store, 3, embedded=3)
    deltalake.write_deltalake(folder, rows("d"), mode="append")
    deltalake.DeltaTable(folder).delete("id = 'c'")
    embed(f"delta:{folder}", *OPTIONS).ok()
    check_ledger(store, 3, embedded=1, carried=2)
    assert sorted(ids_of(store)) == ["a", "b", "d"]
    manifest = manifest_of(store)
    assert manifest is not None
    assert manifest["input"]["globs"] == [f"delta:{folder}"]
    embed(f"delta:{folder}", *OPTIONS, "--input-version", 0).ok()
    check_ledger(store, 2, carried=2)


def test_a_part_of_what_is_no_table(embed: Run, run: Run, inputs: Path) -> None:
    write_lines(inputs / "a.txt", ["one"])
    for part in (("--input-version", 1), ("--input-filter", "day = 1")):
        embed(inputs / "a.txt", *part).failed(2, part[0], "is no table (iceberg:NAME, delta:PATH)")
    run("plan", "--input", "delta:a", "delta:b", "--input-version", 1).failed(2, "there are 2 tables; name one --input")
