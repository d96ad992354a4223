"""Tables of Iceberg and Delta Lake as input: files of both snapshots are carried over, deleted rows are gone."""

import importlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.commands import Run
from helpers.corpora import check_ledger, ids_of, manifest_of

pytestmark = pytest.mark.usefixtures("cached_beam_options", "one_model")
OPTIONS = ("--id-column", "id", "--keep-columns", "size", "--max-deletes", "1")


def rows(*ids: str) -> pa.Table:
    """Rows with these ids."""
    return pa.table({"id": ids, "text": [f"the {i} dog" for i in ids], "size": pa.array(range(len(ids)), pa.int64())})


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A catalog of Iceberg tables, as pyiceberg's own configuration names it."""
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
    pytest.importorskip("sqlalchemy", reason="sqlalchemy, which pyiceberg's catalog of tests needs, is not installed")
    from pyiceberg.catalog import load_catalog

    settings = {"TYPE": "sql", "URI": f"sqlite:///{tmp_path}/catalog.db", "WAREHOUSE": f"file://{tmp_path}/warehouse"}
    for name, value in settings.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", importlib.import_module("pyiceberg.utils.config").Config())
    made = load_catalog("lake")
    made.create_namespace("shop")
    return made


def test_an_iceberg_table(run: Run, embed: Run, store: Path, catalog: Any, tmp_path: Path) -> None:
    table = catalog.create_table("shop.docs", schema=rows("a").schema)
    table.append(rows("a", "b"))
    table.append(rows("c"))
    embed("iceberg:lake.shop.docs", *OPTIONS).ok()
    check_ledger(store, 3, embedded=3)
    table.append(rows("d"))
    table.delete("id == 'c'")
    embed("iceberg:lake.shop.docs", *OPTIONS).ok()
    check_ledger(store, 3, embedded=1, carried=2)
    assert sorted(ids_of(store)) == ["a", "b", "d"]
    embed(f"iceberg:{table.metadata_location.removeprefix('file://')}", *OPTIONS).ok()
    check_ledger(store, 3, carried=3)
    with table.update_schema() as change:
        change.rename_column("size", "length")
    with table.update_schema() as change:
        change.add_column("size", importlib.import_module("pyiceberg.types").LongType())
    embed("iceberg:lake.shop.docs", *OPTIONS).failed(2, "the column length of the table is another one in")
    embed("iceberg:lake.shop.nothing", *OPTIONS).failed(
        2, "no Iceberg table can be read there", "CATALOG.NAMESPACE.TABLE"
    )
    embed("iceberg:sea.shop.docs", *OPTIONS).failed(2, "no Iceberg table can be read there")


def test_an_iceberg_table_with_deletes_apart_from_its_files(
    embed: Run, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.table import DataScan

    table = catalog.create_table("shop.docs", schema=rows("a").schema)
    table.append(rows("a", "b"))
    plan = DataScan.plan_files

    def with_deletes(scan: Any) -> Any:
        for task in plan(scan):
            task.delete_files = {task.file}  # pyiceberg itself writes none
            yield task

    monkeypatch.setattr(DataScan, "plan_files", with_deletes)
    embed("iceberg:lake.shop.docs", *OPTIONS).failed(2, "are deleted by delete files", "rewrite_data_files")


def test_a_delta_table(run: Run, embed: Run, store: Path, tmp_path: Path) -> None:
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
    embed(f"delta:{tmp_path}/nothing", *OPTIONS).failed(2, "no Delta table can be read there")
    properties = {"delta.enableDeletionVectors": "true"}
    deltalake.write_deltalake(tmp_path / "vectors", rows("a"), configuration=properties)
    embed(f"delta:{tmp_path}/vectors", *OPTIONS).failed(2, "deletion vectors")
