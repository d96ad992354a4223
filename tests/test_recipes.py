"""Recipes that need a database, as their page has them."""

from pathlib import Path

import pyarrow as pa
import pytest
from helpers.lakes import iceberg_catalog
from helpers.pages import ROOT, Page

from pipelines.cli import main


@pytest.mark.slow
def test_every_night_from_iceberg_to_postgresql(pgvector: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    monkeypatch.chdir(tmp_path)
    catalog = iceberg_catalog(tmp_path, monkeypatch)
    block = next(b for b in Page(ROOT / "docs/recipes/tables.md").blocks if b.heading.startswith("Every night"))
    first = pa.table({"id": ["a", "b"], "text": ["a red coat", "a blue hat"], "lang": ["en", "en"]})
    table = catalog.create_table("shop.docs", schema=first.schema)
    for rows, wanted in ((first, ["a", "b"]), (first.slice(0, 1).set_column(0, "id", [["c"]]), ["a", "b", "c"])):
        table.append(rows)
        for command in block.commands:
            named = [word.replace("postgresql://me@localhost/search", pgvector) for word in command[1:]]
            assert main(named) == 0, command
        with psycopg.connect(pgvector) as connection:
            found = connection.execute("SELECT id FROM docs ORDER BY id").fetchall()
        assert [row[0] for row in found] == wanted
