"""Tables of Iceberg and Delta Lake as input: files of both snapshots are carried over, deleted rows
are gone.
"""

import json
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import check_ledger, ids_of, manifest_of
from helpers.lakes import iceberg_catalog, rows

OPTIONS = ("--id-column", "id", "--keep-columns", "size", "--max-deletes", "1")
TABLE = "iceberg:lake.shop.docs"


def test_an_iceberg_table(
    embed: Run, run: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = iceberg_catalog(tmp_path, monkeypatch).create_table(
        "shop.docs", schema=rows("a").schema
    )
    with table.update_spec() as change:
        change.add_identity("size")
    table.append(rows("a", "b"))
    table.append(rows("c"))
    embed(TABLE, *OPTIONS).ok()
    check_ledger(store, 3, embedded=3)
    before = table.current_snapshot().snapshot_id
    table.append(rows("d"))
    table.delete("id == 'c'")
    embed(TABLE, *OPTIONS, "--input-version", before, "--input-filter", "size = 0").ok()
    check_ledger(store, 2, carried=2)
    assert sorted(ids_of(store)) == ["a", "c"]
    embed(TABLE, *OPTIONS).ok()
    check_ledger(store, 3, carried=1)
    assert sorted(ids_of(store)) == ["a", "b", "d"]
    now = table.refresh().current_snapshot().snapshot_id
    runs = json.loads(run("history", "--store", store, "--json").ok().out)["runs"]
    assert [one["tables"] for one in runs] == [
        {TABLE: str(version)} for version in (before, before, now)
    ]
    embed(TABLE, *OPTIONS, "--input-version", 17).failed(
        2, "--input-version 17", "no such snapshot"
    )


def test_a_delta_table(embed: Run, run: Run, store: Path, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    folder = tmp_path / "delta"
    deltalake.write_deltalake(folder, rows("a", "b"))
    deltalake.write_deltalake(folder, rows("c"), mode="append")
    embed(f"delta:{folder}", *OPTIONS, "--input-version", 0).ok()
    check_ledger(store, 2, embedded=2)
    deltalake.write_deltalake(folder, rows("d"), mode="append")
    deltalake.DeltaTable(folder).delete("id = 'c'")
    out = embed(f"delta:{folder}", *OPTIONS).ok().out
    check_ledger(store, 3, embedded=1, carried=2)
    assert sorted(ids_of(store)) == ["a", "b", "d"]
    manifest = manifest_of(store)
    assert manifest is not None
    assert manifest["input"]["globs"] == [f"delta:{folder}"]
    assert manifest["input"]["tables"] == {f"delta:{folder}": "3"}
    assert f"table       delta:{folder}, version 3\n" in out
    assert f"delta:{folder} (version 3)" in (store / "report.html").read_text()
    head, *lines = run("history", "--store", store).ok().out.splitlines()
    place = head.index("table version")
    assert [line[place:].split()[0] for line in lines] == ["0", "3"]
