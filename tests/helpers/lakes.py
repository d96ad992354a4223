"""Tables of Iceberg and Delta Lake for tests."""

import importlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest


def rows(*ids: str) -> pa.Table:
    """Rows with these ids, and a number each."""
    return pa.table({"id": ids, "text": [f"the {i} dog" for i in ids], "size": pa.array(range(len(ids)), pa.int64())})


def iceberg_catalog(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A catalog `lake` of Iceberg tables with a namespace `shop`, as pyiceberg's own configuration names it."""
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
    pytest.importorskip("sqlalchemy", reason="sqlalchemy, which pyiceberg's catalog of tests needs, is not installed")
    from pyiceberg.catalog import load_catalog

    settings = {"TYPE": "sql", "URI": f"sqlite:///{folder}/catalog.db", "WAREHOUSE": f"file://{folder}/warehouse"}
    for name, value in settings.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", importlib.import_module("pyiceberg.utils.config").Config())
    made = load_catalog("lake")
    made.create_namespace("shop")
    return made
