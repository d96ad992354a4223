"""What commands write for their users: one rule for endings, a name only when the file is whole."""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentence_beam.pipelines.common.output import TABLES, check_output, write_rows, write_tables
from sentence_beam.transforms.base.errors import OptionError

ROWS = [{"id": 'a,"b"\n', "n": 1, "list": ["é", None]}, {"id": None, "n": 2, "list": []}]


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, as its format has them."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".csv":
        return list(csv.DictReader(path.open(newline="")))
    text = path.read_text()
    return (
        json.loads(text)
        if path.suffix == ".json"
        else [json.loads(line) for line in text.splitlines()]
    )


def expected(path: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows as the format has them: CSV knows text alone, and JSON in it."""
    if path.suffix != ".csv":
        return rows
    return [
        {
            "id": row["id"] or "",
            "n": str(row["n"]),
            "list": json.dumps(row["list"], ensure_ascii=False),
        }
        for row in rows
    ]


@pytest.mark.parametrize("ending", TABLES)
def test_every_ending_holds_the_rows(tmp_path: Path, ending: str) -> None:
    rows, tables = tmp_path / f"rows{ending}", tmp_path / f"tables{ending}"
    table = pa.Table.from_pylist(ROWS)
    write_rows(str(rows), ROWS)
    write_tables(str(tables), table.schema, [table.slice(0, 1), table.slice(1)])
    assert rows_of(rows) == rows_of(tables) == expected(rows, ROWS)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([rows.name, tables.name])


@pytest.mark.parametrize("ending", TABLES)
def test_rows_of_different_columns_keep_all_of_them(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    write_rows(str(path), [{"a": 1}, {"b": "x"}])
    first, second = rows_of(path)
    assert (str(first["a"]), second["b"]) == ("1", "x")


@pytest.mark.parametrize("ending", TABLES)
def test_no_rows_are_a_file_too(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    write_tables(str(path), pa.schema({"id": pa.string()}), [])
    assert rows_of(path) == []


@pytest.mark.parametrize("ending", TABLES)
def test_a_write_that_breaks_off_leaves_the_file_as_it_was(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    write_rows(str(path), [{"id": "x"}])
    before = path.read_bytes()

    def broken() -> Any:
        yield pa.table({"id": ["y"]})
        raise KeyError

    with pytest.raises(KeyError):
        write_tables(str(path), pa.schema({"id": pa.string()}), broken())
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["a", "a.txt", "a.xlsx", "a.parquet.gz"])
def test_another_ending_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OptionError, match="must end in .parquet, .csv, .json or .jsonl"):
        check_output(str(tmp_path / name))
