"""Arrow files and streams, ORC and Avro as other programs write them."""

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from helpers.field_rows import read_rows
from pyarrow import orc

from sentence_beam.transforms.corpus import Columns
from sentence_beam.transforms.corpus.row_blocks import NULL_ID, NULL_TEXT

KEPT = Columns("text", "id", ("c",))
FRAME = {"id": ["a", "b"], "text": ["one two", "three four"]}


def write_file(path: Path, table: pa.Table) -> Path:
    """An Arrow file, or a stream if its name says so, or ORC."""
    if path.suffix == ".orc":
        orc.write_table(table, path)
        return path
    new = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file
    with new(path, table.schema) as writer:
        writer.write_table(table)
    return path


@pytest.mark.parametrize("name", ["text", "id"])
def test_polars_categories(tmp_path: Path, name: str) -> None:
    pl.DataFrame(FRAME).with_columns(pl.col(name).cast(pl.Categorical)).write_ipc(
        tmp_path / "a.arrow"
    )
    found = read_rows(tmp_path / "a.arrow", Columns("text", "id"))
    assert (found.ids, found.texts) == (FRAME["id"], FRAME["text"])


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (pl.List(pl.String), [["x"], []]),
        (pl.List(pl.Categorical), [["x"], None]),
        (pl.Struct({"s": pl.String, "l": pl.List(pl.Binary)}), [{"s": "x", "l": [b"y"]}, None]),
        (pl.Array(pl.Int8, 2), [[1, 2], [3, 4]]),
        (pl.Enum(["x", "y"]), ["y", None]),
    ],
)
def test_polars_columns(tmp_path: Path, dtype: Any, values: list[Any]) -> None:
    pl.DataFrame({**FRAME, "c": pl.Series(values, dtype=dtype)}).write_ipc(tmp_path / "a.arrow")
    assert read_rows(tmp_path / "a.arrow", KEPT).kept == values


@pytest.mark.parametrize(
    "column",
    [
        pa.array([["x"], None], pa.list_view(pa.string_view())),
        pa.array([["x"], []], pa.large_list_view(pa.string())),
        pa.array([[("k", "v")], None], pa.map_(pa.string_view(), pa.string_view())),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2]), ["x", "y"]),
        pa.DictionaryArray.from_arrays([1, 0], pa.array(["x", "y"], pa.string_view())),
        pa.array(['{"a":1}', None], pa.json_()),
    ],
)
def test_columns_that_parquet_does_not_know(tmp_path: Path, column: pa.Array) -> None:
    path = write_file(tmp_path / "a.arrow", pa.table({**FRAME, "c": column}))
    assert read_rows(path, KEPT).kept == column.to_pylist()


@pytest.mark.parametrize("ending", ["arrow", "arrows", "orc"])
@pytest.mark.parametrize(
    "columns",
    [
        {"id": pa.array([], pa.int8()), "text": pa.array([], pa.float64())},
        {"other": pa.array([], pa.int8()), "c": pa.array([], pa.string())},
    ],
)
def test_files_without_rows(tmp_path: Path, ending: str, columns: dict[str, pa.Array]) -> None:
    empty = write_file(tmp_path / f"a.{ending}", pa.table(columns))
    full = write_file(tmp_path / f"b.{ending}", pa.table({**FRAME, "c": [1, 2]}))
    found = read_rows([empty, full], KEPT)
    assert (found.ids, found.kept, found.kind) == (["a", "b"], [1, 2], "int64")


@pytest.mark.parametrize("ending", ["arrow", "arrows"])
def test_files_of_nulls_alone(tmp_path: Path, ending: str) -> None:
    table = pa.table({"id": pa.nulls(2), "text": ["x", None], "c": pa.nulls(2)})
    path = write_file(tmp_path / f"a.{ending}", table)
    assert read_rows(path, KEPT).rejects == {None: NULL_TEXT}
    table = table.set_column(1, "text", pa.array(["x", "y"]))
    path = write_file(tmp_path / f"a.{ending}", table)
    assert set(read_rows(path, KEPT).rejects.values()) == {NULL_ID}
