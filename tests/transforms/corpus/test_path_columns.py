"""Columns that stand in a file's path: kept, in templates and prefixes, in every format.

Covers transforms/corpus/batch_rows.py.
Covers transforms/corpus/path_values.py.
"""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.corpus import Columns, UnitRows, list_files, read_files
from sentence_beam.transforms.corpus.formats.registry import open_columns
from sentence_beam.transforms.corpus.path_values import parse_path_values

SCHEMA = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "id", "type": "string"}, {"name": "text", "type": "string"}],
}


def to_bytes(write: Callable[[Any, Any], Any]) -> Callable[[pa.Table], bytes]:
    """A writer of tables into files as one that returns their bytes."""

    def written(table: pa.Table) -> bytes:
        sink = io.BytesIO()
        write(table, sink)
        return sink.getvalue()

    return written


def arrow(table: pa.Table, sink: Any) -> None:
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def lines(table: pa.Table) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


WRITERS: dict[str, Callable[[pa.Table], bytes]] = {
    "parquet": to_bytes(pq.write_table),
    "orc": to_bytes(pyarrow.orc.write_table),
    "csv": to_bytes(pyarrow.csv.write_csv),
    "arrow": to_bytes(arrow),
    "avro": to_bytes(lambda table, sink: fastavro.writer(sink, SCHEMA, table.to_pylist())),
    "jsonl": lines,
    "json": lambda table: json.dumps(table.to_pylist()).encode(),
}


def put(folder: Path, name: str, **columns: list[Any]) -> Path:
    """A file with two rows, and other columns."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"id": ["a", "b"], "text": ["one", "two"], **columns})
    path.write_bytes(WRITERS[path.suffix[1:]](table))
    return path


def read(path: Path, columns: Columns) -> UnitRows:
    (unit,) = read_files(list_files([str(path)], "auto"), columns)
    return unit


@pytest.mark.parametrize("ending", WRITERS)
def test_a_column_of_the_path_is_read_like_one_of_the_file(ending: str, tmp_path: Path) -> None:
    path = put(tmp_path, f"lang=en/day=2026-01-02/x={quote('a/b c%', safe='')}/n=/a.{ending}")
    columns = Columns(
        id="id",
        keep=("lang", "day", "x", "n"),
        template="{lang}: {text}",
        prefix="{x}|",
        types=(("day", "date"),),
    )
    unit = read(path, columns)
    assert unit.kept is not None
    assert unit.kept.column("lang").to_pylist() == ["en", "en"]
    assert str(unit.kept.column("day").to_pylist()[0]) == "2026-01-02"
    assert unit.kept.column("x").to_pylist() == ["a/b c%"] * 2
    assert unit.kept.column("n").to_pylist() == [None] * 2
    assert unit.texts == ["en: one", "en: two"]
    assert unit.prefixes == [("a/b c%|",)] * 2
    assert unit.ids == ["a", "b"]


@pytest.mark.parametrize("ending", WRITERS)
def test_rows_that_need_no_column_of_the_file_are_read(ending: str, tmp_path: Path) -> None:
    path = put(tmp_path, f"lang=en/a.{ending}")
    assert read(path, Columns(template="{lang}")).texts == ["en", "en"]


@pytest.mark.parametrize("ending", [e for e in WRITERS if e != "avro"])
def test_the_files_own_column_comes_first(ending: str, tmp_path: Path) -> None:
    path = put(tmp_path, f"lang=en/a.{ending}", lang=["de", "fr"])
    unit = read(path, Columns(id="id", keep=("lang",), template="{lang} {text}"))
    assert unit.kept is not None
    assert unit.kept.column("lang").to_pylist() == ["de", "fr"]
    assert unit.texts == ["de one", "fr two"]


@pytest.mark.parametrize("name", ["a.txt", "a.md"])
def test_plain_text_can_keep_what_its_path_has(name: str, tmp_path: Path) -> None:
    path = tmp_path / "year=2024" / name
    path.parent.mkdir()
    path.write_text("one")
    unit = read(path, Columns(keep=("year",), types=(("year", "int"),), template="{year} {text}"))
    assert unit.kept is not None
    assert unit.kept.column("year").to_pylist() == [2024]
    assert unit.texts == ["2024 one"]


@pytest.mark.parametrize("ending", WRITERS)
def test_a_value_of_the_path_that_is_not_of_the_columns_type_rejects_the_rows(
    ending: str, tmp_path: Path
) -> None:
    path = put(tmp_path, f"year=unknown/a.{ending}")
    unit = read(path, Columns(id="id", keep=("year",), types=(("year", "int"),)))
    assert [reject.id for reject in unit.rejects] == ["a", "b"]
    assert "year" in unit.rejects[0].reason


@pytest.mark.parametrize("ending", WRITERS)
def test_ids_and_texts_are_never_read_from_the_path(ending: str, tmp_path: Path) -> None:
    path = put(tmp_path, f"key=1/body=x/a.{ending}")
    for columns in (Columns(id="key"), Columns(text="body")):
        with pytest.raises(OptionError, match="has no column"):
            read(path, columns)


def test_a_row_without_its_own_id_or_text_has_none(tmp_path: Path) -> None:
    path = tmp_path / "id=1" / "text=x" / "a.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"id": "a"}\n{"text": "one"}\n{"id": "b", "text": "two"}\n')
    unit = read(path, Columns(id="id", keep=("id", "text")))
    assert unit.ids == ["b"]
    assert [reject.reason for reject in unit.rejects] == ["null text", "null id"]


def test_a_column_that_neither_has_ends_with_the_columns_of_both(tmp_path: Path) -> None:
    (file,) = list_files([str(put(tmp_path, "lang=en/a.parquet"))], "auto")
    columns = open_columns(file)
    assert list(columns.names()) == ["id", "text", "lang"]
    assert "did you mean lang? its columns: id, text, lang" in str(
        columns.make_missing_error("lan", "--keep-columns")
    )
    keep = ("lang", "text")
    assert columns.find_types(keep)[1:] == (("lang", ""),)
    assert columns.find_existing(("lang", "id")) == ("id", "lang")


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=3))
def test_names_and_values_that_are_encoded_as_spark_does_come_back(values: dict[str, str]) -> None:
    folders = [
        f"{quote(name, safe='+')}={quote(value, safe='+')}" for name, value in values.items()
    ]
    right = {name: value or None for name, value in values.items()}
    assert dict(parse_path_values("/".join(["/data", *folders, "x=no.parquet"]))) == right


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("s3://b/t/lang=en/a.parquet", {"lang": "en"}),
        ("/t/a=__HIVE_DEFAULT_PARTITION__/b=/x", {"a": None, "b": None}),
        ("/t/a=b=c/x", {"a": "b=c"}),
        ("/t/a=1/a=2/x", {"a": "2"}),
        ("/t/=1/x=1", {}),
        ("/t/a=100%/b=%ff/c=1+1/x", {"a": "100%", "b": "%ff", "c": "1+1"}),
    ],
)
def test_values_of_other_paths(path: str, right: dict[str, str | None]) -> None:
    assert dict(parse_path_values(path)) == right
