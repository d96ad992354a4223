"""The data files of tables of Iceberg and Delta Lake: of each version, of some partitions; what is
refused.

Covers transforms/corpus/delta_lake.py.
Covers transforms/corpus/iceberg.py.
"""

import importlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.lakes import (
    deletion_vector,
    delta_as_spark_names_it,
    delta_with_vector,
    equality_deletes,
    iceberg_catalog,
    iceberg_with_deletes,
    positional_deletes,
    rows,
)

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.corpus.lake_parts import LakePart
from sentence_beam.transforms.corpus.lakes import list_table_entries

TABLE = "iceberg:lake.shop.docs"


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A catalog of Iceberg tables."""
    return iceberg_catalog(tmp_path, monkeypatch)


def ids_in(pattern: str, version: int | None = None, filter: str | None = None) -> list[str]:
    """The ids of the rows in the data files of a table, sorted."""
    entries = list_table_entries(pattern, LakePart(version, filter))
    return sorted(
        i for entry, _ in entries for i in pq.ParquetFile(entry.path).read(["id"])["id"].to_pylist()
    )


def refused(pattern: str, *said: str, version: int | None = None, filter: str | None = None) -> str:
    """The line that says why a table, or a part of it, is not taken; it holds some words."""
    with pytest.raises(OptionError) as error:
        ids_in(pattern, version, filter)
    assert all(words in str(error.value) for words in said), error.value
    assert "\n" not in str(error.value)
    return str(error.value)


def test_versions_of_an_iceberg_table(catalog: Any) -> None:
    table = catalog.create_table("shop.docs", schema=rows("a").schema)
    refused(TABLE, "no such snapshot; it has none", version=1)
    table.append(rows("a", "b"))
    table.append(rows("c"))
    table.delete("id == 'c'")
    first, second = (snapshot.snapshot_id for snapshot in table.snapshots()[:2])
    assert [ids_in(TABLE, version) for version in (first, second, None)] == [
        ["a", "b"],
        ["a", "b", "c"],
        ["a", "b"],
    ]
    of_file = f"iceberg:{table.metadata_location.removeprefix('file://')}"
    assert [ids_in(of_file, version) for version in (None, second)] == [["a", "b"], ["a", "b", "c"]]
    refused(
        TABLE,
        "input_version 17",
        f"no such snapshot; it has {first} (20",
        f"{second} (20",
        " UTC)",
        version=17,
    )
    for _ in range(4):
        table.append(rows("e"))
    line = refused(TABLE, f"and {len(table.snapshots()) - 5} earlier ones", version=17)
    assert str(first) not in line


def test_columns_of_an_iceberg_table_that_changed_places(catalog: Any) -> None:
    table = catalog.create_table("shop.docs", schema=rows("a").schema)
    table.append(rows("a"))
    with table.update_schema() as change:
        change.rename_column("size", "length")
    with table.update_schema() as change:
        change.add_column("size", importlib.import_module("pyiceberg.types").LongType())
    refused(TABLE, "the column length of the table is another one in")
    table.append(pa.table({"id": ["b"], "text": ["b"], "length": [1], "size": [2]}))
    assert ids_in(TABLE, table.snapshots()[0].snapshot_id) == ["a"]  # as it was then


def test_tables_of_iceberg_that_are_not_there(catalog: Any) -> None:
    refused(
        "iceberg:lake.shop.nothing", "no Iceberg table can be read there", "CATALOG.NAMESPACE.TABLE"
    )
    refused("iceberg:sea.shop.docs", "no Iceberg table can be read there")


@pytest.mark.parametrize(
    ("make", "kind", "format_version"),
    [
        (positional_deletes, "positional deletes", 2),
        (equality_deletes, "equality deletes", 2),
        (deletion_vector, "deletion vectors", 3),
    ],
)
def test_deletes_of_iceberg_apart_from_its_files(
    catalog: Any, tmp_path: Path, make: Callable[..., dict], kind: str, format_version: int
) -> None:
    table = catalog.create_table("shop.docs", schema=rows("a").schema)
    table.append(rows("a", "b"))
    (task,) = table.scan().plan_files()
    made = make(tmp_path, task.file.file_path)
    of_file = iceberg_with_deletes(table, made, format_version)
    if kind != "equality deletes":  # which pyiceberg itself does not read
        read = importlib.import_module("pyiceberg.table").StaticTable.from_metadata(
            of_file.removeprefix("iceberg:")
        )
        assert read.scan().to_arrow()["id"].to_pylist() == ["b"]
    refused(of_file, f"rows are deleted by {kind} ({made['path']})", "rewrite_data_files")
    assert ids_in(of_file, table.current_snapshot().snapshot_id) == ["a", "b"]  # as it was before


def test_versions_of_a_delta_table(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    folder = tmp_path / "delta"
    deltalake.write_deltalake(folder, rows("a", "b"))
    deltalake.write_deltalake(folder, rows("c"), mode="append")
    deltalake.DeltaTable(folder).delete("id = 'a'")
    found = [ids_in(f"delta:{folder}", version) for version in (0, 1, None)]
    assert found == [["a", "b"], ["a", "b", "c"], ["b", "c"]]
    assert refused(f"delta:{folder}", "input_version 9", version=9).endswith(
        "no such version; it has 0, 1, 2"
    )
    (old,) = deltalake.DeltaTable(folder, version=0).file_uris()
    Path(old).unlink()
    with pytest.raises(SentenceBeamError, match="is missing.* take a later input_version"):
        ids_in(f"delta:{folder}", 0)


def test_tables_of_delta_that_are_not_taken(tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="deltalake is not installed")
    refused(f"delta:{tmp_path}/nothing", "no Delta table can be read there")


def test_deletion_vectors_of_a_delta_table(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    folder, properties = tmp_path / "delta", {"delta.enableDeletionVectors": "true"}
    deltalake.write_deltalake(folder, rows("a", "b"), configuration=properties)
    assert ids_in(f"delta:{folder}") == ["a", "b"]
    delta_with_vector(folder)
    assert deltalake.DeltaTable(folder).scan(["id"]).read_all().num_rows == 1
    refused(f"delta:{folder}", "are deleted by a deletion vector", "REORG TABLE")
    assert ids_in(f"delta:{folder}", 0) == ["a", "b"]


def days(*ids: str) -> pa.Table:
    """Rows with these ids: a language, a day and a time each."""
    at = [datetime(2026, 1, 1 + number, 5) for number in range(len(ids))]
    table = rows(*ids).append_column(
        "lang", pa.array([("en", "d e/%", None)[n % 3] for n in range(len(ids))])
    )
    table = table.append_column("day", pa.array([time.date() for time in at]))
    return table.append_column("at", pa.array(at, pa.timestamp("us")))


def make_delta(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table of Delta Lake by language and day."""
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    deltalake.write_deltalake(folder / "delta", days(*"abcde"), partition_by=["lang", "day"])
    return f"delta:{folder}/delta"


def make_iceberg(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table of Iceberg by language and day."""
    table = iceberg_catalog(folder, monkeypatch).create_table("shop.docs", schema=days("a").schema)
    with table.update_spec() as change:
        change.add_identity("lang")
        change.add_identity("day")
    table.append(days(*"abcde"))
    return TABLE


@pytest.mark.parametrize("make", [make_delta, make_iceberg])
def test_partitions(
    make: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path, monkeypatch)
    assert ids_in(table) == ["a", "b", "c", "d", "e"]
    assert ids_in(table, filter="lang = 'd e/%'") == ["b", "e"]
    assert ids_in(table, filter="lang IS NULL") == ["c"]
    assert ids_in(table, filter="day >= '2026-01-03' AND NOT lang = 'd e/%'") == ["d"]
    assert ids_in(table, filter="lang IN ('en') OR day = '2026-01-05'") == ["a", "d", "e"]
    there = f"{table} is partitioned by lang (string), day (date32[day])"
    refused(table, "input_filter: there is no partition column size", there, filter="size > 1")
    refused(table, "input_filter: day is date32[day], which 3 is not", there, filter="day > 3")
    refused(table, "input_filter: no data file", filter="lang = 'no'")
    refused(table, "input_filter cannot be read at its end", filter="lang =")


# values of a column by which a table is partitioned
BLANKS = ("d e/%", "wüst", "a%20b", "x+y", "=?#")


def rows_by_language(*languages: str) -> pa.Table:
    """A row for each language."""
    return rows(*"abcde"[: len(languages)]).append_column("lang", pa.array(languages))


@pytest.mark.parametrize("folder", ["delta", "a lake", "wüst/délta", "a#b?c"])
def test_names_that_no_url_has_as_they_are(tmp_path: Path, folder: str) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    place = tmp_path / folder
    place.parent.mkdir(exist_ok=True)
    deltalake.write_deltalake(place, rows_by_language(*BLANKS), partition_by=["lang"])
    assert ids_in(f"delta:{place}") == ["a", "b", "c", "d", "e"]
    assert ids_in(f"delta:{place}", filter="lang IN ('wüst', 'a%20b')") == ["b", "c"]
    delta_as_spark_names_it(place)
    assert [path.name for path in sorted(place.glob("lang=d e*"))] == ["lang=d e%2F%25"]
    assert ids_in(f"delta:{place}") == ["a", "b", "c", "d", "e"]
    assert ids_in(f"delta:{place}", filter="lang = 'd e/%'") == ["a"]


def test_an_iceberg_table_in_a_folder_that_no_url_has_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a lake, wüst"
    folder.mkdir()
    table = iceberg_catalog(folder, monkeypatch).create_table(
        "shop.docs", schema=rows_by_language("d").schema
    )
    with table.update_spec() as change:
        change.add_identity("lang")
    table.append(rows_by_language(*BLANKS))
    assert ids_in(TABLE) == ["a", "b", "c", "d", "e"]


def test_a_table_without_partitions(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    deltalake.write_deltalake(tmp_path / "delta", rows("a"))
    refused(f"delta:{tmp_path}/delta", "input_filter: ", "not partitioned", filter="size = 0")


def test_partitions_of_iceberg_that_are_hidden_or_changed(
    catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    transforms = importlib.import_module("pyiceberg.transforms")

    def by_day(times: pa.Array) -> pa.Array:
        return times.cast(pa.date32(), safe=False).cast(pa.int32())

    # needs another package
    monkeypatch.setattr(transforms.DayTransform, "pyarrow_transform", lambda _, kind: by_day)
    table = catalog.create_table("shop.docs", schema=days("a").schema)
    with table.update_spec() as change:
        change.add_identity("lang")
        change.add_field("at", transforms.DayTransform())
    table.append(days(*"abc"))
    assert ids_in(TABLE, filter="at_day < '2026-01-03'") == ["a", "b"]
    with table.update_spec() as change:
        change.remove_field("lang")
    table.append(days("f"))
    assert ids_in(TABLE, filter="at_day = '2026-01-01'") == ["a", "f"]
    refused(
        TABLE,
        "no partition column lang",
        "partitioned by at_day (date32[day])",
        filter="lang = 'en'",
    )
