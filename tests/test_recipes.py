"""Recipes that need a database or another tool, as their page has them."""

import datetime
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.utils.timestamp import Timestamp
from helpers.lakes import iceberg_catalog
from helpers.nights import vector_of
from helpers.pages import ROOT, Page
from helpers.pushes import Kept, files_of

from sentence_beam import EmbedRows, WriteStore, open_store
from sentence_beam.pipelines.cli import main


@pytest.mark.slow
def test_every_night_from_iceberg_to_postgresql(
    pgvector: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.chdir(tmp_path)
    catalog = iceberg_catalog(tmp_path, monkeypatch)
    block = next(
        b
        for b in Page(ROOT / "docs/recipes/tables.md").blocks
        if b.heading.startswith("Every night")
    )
    first = pa.table({"id": ["a", "b"], "text": ["a red coat", "a blue hat"], "lang": ["en", "en"]})
    table = catalog.create_table("shop.docs", schema=first.schema)
    for rows, wanted in (
        (first, ["a", "b"]),
        (first.slice(0, 1).set_column(0, "id", [["c"]]), ["a", "b", "c"]),
    ):
        table.append(rows)
        for command in block.commands:
            named = [
                word.replace("postgresql://me@localhost/search", pgvector) for word in command[1:]
            ]
            assert main(named) == 0, command
        with psycopg.connect(pgvector) as connection:
            found = connection.execute("SELECT id FROM docs ORDER BY id").fetchall()
        assert [row[0] for row in found] == wanted


def in_duckdb(paths: list[str]) -> list[Any]:
    """Ids and vectors, read by DuckDB."""
    return importlib.import_module("duckdb").read_parquet(paths).select("id, embedding").fetchall()


def in_polars(paths: list[str]) -> list[Any]:
    """The same by Polars."""
    return (
        importlib.import_module("polars")
        .scan_parquet(paths)
        .select("id", "embedding")
        .collect()
        .rows()
    )


def in_datasets(paths: list[str]) -> list[Any]:
    """The same by the library of the Hub's data sets."""
    rows = importlib.import_module("datasets").Dataset.from_parquet(paths)
    return [(row["id"], row["embedding"]) for row in rows]


def in_pyspark(paths: list[str]) -> list[Any]:
    """The same by Spark."""
    spark = (
        importlib.import_module("pyspark.sql").SparkSession.builder.master("local[1]").getOrCreate()
    )
    try:
        return [
            (row.id, row.embedding)
            for row in spark.read.parquet(*paths).select("id", "embedding").collect()
        ]
    finally:
        spark.stop()


def in_ray(paths: list[str]) -> list[Any]:
    """The same by Ray Data."""
    ray = importlib.import_module("ray")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        rows = (
            importlib.import_module("ray.data")
            .read_parquet(paths, columns=["id", "embedding"])
            .take_all()
        )
        return [(row["id"], row["embedding"]) for row in rows]
    finally:
        ray.shutdown()


@pytest.mark.parametrize(
    "read",
    [
        in_duckdb,
        in_polars,
        *(pytest.param(tool, marks=pytest.mark.slow) for tool in (in_datasets, in_pyspark, in_ray)),
    ],
)
def test_a_store_in_other_tools(
    read: Callable[[list[str]], list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = read.__name__.removeprefix("in_")
    pytest.importorskip(module, reason=f"{module} is not installed")
    if module == "datasets":
        monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    store = Kept(tmp_path / "store")
    store.commit_without_index(files_of({f"i{n}": f"text {n}" for n in range(4)}))
    found = dict(read(store.manifest.shard_paths))
    assert sorted(found) == ["i0", "i1", "i2", "i3"]
    for name, vector in found.items():
        np.testing.assert_array_equal(np.array(vector, np.float32), vector_of(f"text {name[1:]}"))


class PricedDoc(NamedTuple):
    """A row of PostgreSQL with columns of more types, as JDBC gives it."""

    id: int
    text: str | None
    lang: str
    price: Decimal
    changed: Timestamp


class Doc(NamedTuple):
    """A row as JDBC gives it."""

    id: int
    text: str


def snippet(heading: str, page: str = "tables") -> str:
    """The code below a heading that is not in a block, since a part of it is not on this
    machine.
    """
    section = Page(ROOT / f"docs/recipes/{page}.md").section(heading)
    return textwrap.dedent(
        "\n".join(line for line in section.splitlines() if line.startswith("    "))
    )


def check_embedded(code: str, read: str, rows: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that such code gives the rows that `read` gives to it with a vector each."""
    real = inspect.signature(pkgutil.resolve_name(read))

    def source(**options: Any) -> beam.PTransform:
        real.bind(**options)
        return beam.Create(rows)

    monkeypatch.setattr(read, source)
    wanted = [
        {**(row if isinstance(row, dict) else row._asdict()), "embedding": 384} for row in rows
    ]
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        beside = {
            "beam": beam,
            "EmbedRows": EmbedRows,
            "pipeline": pipeline,
            "username": "",
            "password": "",
        }
        exec(compile(code, "tables.md", "exec"), beside)
        names = list(wanted[0])
        found = beside["found"].rows | beam.Map(
            lambda row: row if isinstance(row, dict) else row._asdict()
        )
        found |= "Fields" >> beam.Map(
            lambda row: {n: len(row[n]) if n == "embedding" else row[n] for n in names}
        )
        assert_that(found, equal_to(wanted))


@pytest.mark.slow
def test_rows_of_bigquery(monkeypatch: pytest.MonkeyPatch) -> None:
    def sink(table: str, schema: dict) -> beam.PTransform:
        names = {field["name"] for field in schema["fields"]}
        return beam.Map(
            lambda row: (row.keys() == names and isinstance(row["embedding"][0], float)) or 1 / 0
        )

    monkeypatch.setattr("apache_beam.io.WriteToBigQuery", sink)
    rows = [
        {"id": "a", "text": "a red coat", "lang": "en"},
        {"id": "b", "text": "a blue hat", "lang": None},
    ]
    check_embedded(
        snippet("## From BigQuery"), "apache_beam.io.ReadFromBigQuery", rows, monkeypatch
    )


@pytest.mark.slow
def test_rows_of_jdbc(monkeypatch: pytest.MonkeyPatch) -> None:
    beam.coders.registry.register_coder(Doc, beam.coders.RowCoder)
    rows = [Doc(1, "a red coat"), Doc(2, "a blue hat")]
    check_embedded(
        snippet("## From other databases"), "apache_beam.io.jdbc.ReadFromJdbc", rows, monkeypatch
    )


@pytest.mark.slow
def test_rows_of_postgresql_in_a_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    beam.coders.registry.register_coder(PricedDoc, beam.coders.RowCoder)
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    rows = [
        PricedDoc(n, f"a coat of wool {n}", "en", Decimal("9.5"), Timestamp.of(moment))
        for n in range(4)
    ]
    rows.append(PricedDoc(9, None, "en", Decimal("1"), Timestamp.of(moment)))
    code = snippet("## From PostgreSQL", "write-store")
    read = "apache_beam.io.jdbc.ReadFromJdbc"
    real = inspect.signature(pkgutil.resolve_name(read))

    def source(**options: Any) -> beam.PTransform:
        real.bind(**options)
        return beam.Create(rows).with_output_types(PricedDoc)

    monkeypatch.setattr(read, source)
    store = str(tmp_path / "store")
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        beside = {"WriteStore": WriteStore, "pipeline": pipeline, "store": store, "password": ""}
        exec(compile(code, "write-store.md", "exec"), beside)
    found = open_store(store).dataset().to_table().to_pylist()
    wanted = [(str(row.id), row.text, "en", 9.5, moment) for row in rows[:4]]
    names = ("id", "text", "lang", "price", "changed")
    assert sorted(tuple(row[name] for name in names) for row in found) == wanted


@pytest.mark.slow
def test_a_change_of_model_ends_with_the_rows_of_a_store_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Page(ROOT / "docs/recipes/change-model.md")
    for block in page.blocks:
        if block.file:
            Path(block.file).write_text(block.text)
        for command in block.commands if not block.file else ():
            assert main(command[1:]) == 0, command
    new = open_store("new")
    named = ["--id-column", "id", "--keep-columns", "lang", "--dtype", "float32"]
    own = ["embed", "--input", "kettles.csv", *named, "--pooler", "first-last", "--store", "own"]
    assert main(own) == 0
    rows = open_store("own").dataset().to_table().to_pylist()
    kept = [row for row in rows if row["id"] != "r5"]  # which the old store erased
    found = new.dataset().to_table().to_pylist()
    assert [row["id"] for row in found] == [row["id"] for row in kept]
    for one, other in zip(found, kept, strict=True):
        assert one["lang"] == other["lang"]
        np.testing.assert_allclose(one["embedding"], other["embedding"], atol=2e-5)
    assert new.space == open_store("own").space != open_store("old").space
    assert Path("answers.html").exists()
