"""Parquet as other programs write it: what wrote it, the writer's call, the right rows."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.field_rows import read_rows

from sentence_beam.transforms.corpus import Columns
from sentence_beam.transforms.corpus.column_values import KEPT_NOT_UTF8, NOT_UTF8
from sentence_beam.transforms.corpus.row_blocks import NULL_TEXT

TEXTS = ["one two", "three four"]
KEPT = Columns("text", "id", ("c",))
FAR = dt.datetime(9999, 12, 31)
DAY = dt.datetime(2024, 5, 6, 7, 8, 9, 123456)


def write(path: Path, **columns: Any) -> Path:
    """A file with ids and texts of two rows, unless others are given."""
    pq.write_table(pa.table({"id": ["a", "b"], "text": TEXTS} | columns), path)
    return path


@pytest.mark.parametrize(
    ("wrote", "ids", "right"),
    [
        ("Oracle and Snowflake by Sqoop: NUMBER(38)", pa.array([Decimal(1), Decimal(-22)], pa.decimal128(38, 0)), ["1", "-22"]),
        ("Hive and Impala: strings without an annotation", pa.array([b"a", "ü".encode()]), ["a", "ü"]),
        ("polars: string views", pa.array(["a", "b"], pa.string_view()), ["a", "b"]),
        ("pandas: categories", pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
        ("pandas 3: large strings", pa.array(["a", "b"], pa.large_string()), ["a", "b"]),
        ("ClickHouse: UInt64", pa.array([2**64 - 1, 0], pa.uint64()), ["18446744073709551615", "0"]),
        ("DuckDB: UUID", pa.array([bytes(16), bytes(15) + b"\1"], pa.uuid()), [f"{0:032x}"[:8] + "-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001"]),
    ],
)  # fmt: skip
def test_ids(tmp_path: Path, wrote: str, ids: pa.Array, right: list[str]) -> None:
    assert read_rows(write(tmp_path / "a.parquet", id=ids), Columns("text", "id")).ids == right


@pytest.mark.parametrize(
    ("wrote", "kind"),
    [
        ("Hive and Impala", pa.binary()),
        ("polars", pa.binary_view()),
        ("large bytes", pa.large_binary()),
        ("polars", pa.string_view()),
        ("pandas categories", pa.dictionary(pa.int8(), pa.string())),
    ],
)
def test_texts(tmp_path: Path, wrote: str, kind: pa.DataType) -> None:
    path = write(tmp_path / "a.parquet", text=pa.array(TEXTS).cast(kind))
    assert read_rows(path, Columns("text", "id")).texts == TEXTS
    assert read_rows(path, Columns("text", "id", template="{text}!")).texts == [
        f"{t}!" for t in TEXTS
    ]


def test_bytes_that_are_not_utf8_are_rejected_wherever_they_are_used(tmp_path: Path) -> None:
    latin = pa.array([b"caf\xe9", b"ok"])
    path = write(tmp_path / "a.parquet", other=latin)
    for columns in (
        Columns("other", "id"),
        Columns("text", "id", template="{other}"),
        Columns("text", "id", prefix="{other}"),
    ):
        assert read_rows(path, columns).rejects == {"a": NOT_UTF8}
    assert read_rows(path, Columns("text", "other")).ids == ["ok"]
    kept = Columns("text", "id", ("other",), types=(("other", "str"),))
    assert read_rows(path, kept).rejects == {"a": KEPT_NOT_UTF8}
    assert read_rows(path, Columns("text", "id", ("other",))).kept == [b"caf\xe9", b"ok"]


def spark_times(path: Path, *times: dt.datetime, **options: Any) -> Path:
    """Spark's default: timestamps of 96 bits."""
    table = pa.table({"id": ["a", "b"], "text": TEXTS, "c": pa.array(times, pa.timestamp("us"))})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, **options)
    return path


@pytest.mark.parametrize("store_schema", [True, False])
def test_times_of_spark_beyond_those_of_nanoseconds(tmp_path: Path, store_schema: bool) -> None:
    path = spark_times(tmp_path / "a.parquet", FAR, DAY, store_schema=store_schema)
    found = read_rows(path, KEPT)
    assert (found.kept, found.kind) == ([FAR, DAY], "timestamp[us]")
    filled = read_rows(path, Columns("text", "id", template="{c}"))
    assert filled.texts == ["9999-12-31 00:00:00.000000", "2024-05-06 07:08:09.123456"]


def test_times_of_spark_beside_those_of_pandas(tmp_path: Path) -> None:
    spark = spark_times(tmp_path / "a.parquet", FAR, DAY)
    pandas = write(tmp_path / "b.parquet", c=pa.array([DAY, None], pa.timestamp("ns")))
    assert read_rows([spark, pandas], KEPT)[2:4] == ([FAR, DAY, DAY, None], "timestamp[us]")


@pytest.mark.parametrize(
    ("wrote", "columns"),
    [
        ("pandas 1 and 2: an empty frame of strings", {"id": pa.nulls(0), "text": pa.nulls(0)}),
        ("pandas: DataFrame()", {}),
        ("pandas: DataFrame(columns=...) of floats", {"text": pa.array([], pa.float64())}),
        ("Spark: an empty partition", {"id": pa.array([], pa.int64()), "text": pa.array([], pa.binary()), "c": pa.array([], pa.list_(pa.int8()))}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("template", [None, "{text} {c}"])
def test_a_file_without_rows(
    tmp_path: Path, wrote: str, columns: dict[str, Any], template: str | None
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    full = write(tmp_path / "b.parquet", c=[1, None])
    found = read_rows([tmp_path / "a.parquet", full], Columns("text", "id", ("c",), template))
    assert (found.ids, found.kept, found.kind) == (["a", "b"], [1, None], "int64")


def test_a_file_of_nulls_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", text=pa.nulls(2), c=pa.nulls(2))
    assert read_rows(path, KEPT).rejects == {"a": NULL_TEXT, "b": NULL_TEXT}


def files(folder: Path, *columns: pa.Array) -> list[Path]:
    """One file for each column `c`."""
    return [write(folder / f"{n}.parquet", c=column) for n, column in enumerate(columns)]


@pytest.mark.parametrize(
    ("one", "other", "kind", "right"),
    [
        (pa.array([1, 2], pa.int32()), pa.array([3, 2**40]), "int64", [1, 2, 3, 2**40]),
        (pa.array([1, 2]), pa.array([2.5, None]), "double", [1.0, 2.0, 2.5, None]),
        (pa.array(["x", None]), pa.nulls(2), "string", ["x", None, None, None]),
        (pa.array(["x", "y"]), pa.array(["z", None], pa.large_string()), "string", ["x", "y", "z", None]),
        (pa.array(["x", "y"]), pa.array(["x", "z"]).dictionary_encode(), "string", ["x", "y", "x", "z"]),
        (pa.array([1, 2]), pa.array(["x", "3"]), "string", ["1", "2", "x", "3"]),
        (pa.array([1, 255], pa.uint8()), pa.array([-1, 0], pa.int8()), "int16", [1, 255, -1, 0]),
        (pa.array([Decimal("1.5"), None], pa.decimal128(5, 1)), pa.array([Decimal("2.25"), None], pa.decimal128(5, 2)), "decimal128(6, 2)", [Decimal("1.50"), None, Decimal("2.25"), None]),
        (pa.array([["a"], None]), pa.array([["b"], []], pa.large_list(pa.string_view())), "list<element: string>", [["a"], None, ["b"], []]),
        (pa.array([dt.date(2024, 5, 6), None]), pa.array([DAY, None], pa.timestamp("us", "UTC")), "timestamp[us, tz=UTC]", [dt.datetime(2024, 5, 6, tzinfo=dt.UTC), None, DAY.replace(tzinfo=dt.UTC), None]),
    ],
)  # fmt: skip
def test_a_column_of_two_types(
    tmp_path: Path, one: pa.Array, other: pa.Array, kind: str, right: list[Any]
) -> None:
    found = read_rows(files(tmp_path, one, other), KEPT)
    assert (found.kept, found.kind.replace("item", "element")) == (right, kind)
    assert found.rejects == {}


def test_csv_beside_a_column_of_text_keeps_its_blanks(tmp_path: Path) -> None:
    table = write(tmp_path / "a.parquet", c=pa.array(["x", None], pa.large_string()))
    (tmp_path / "a.csv").write_text("id,text,c\na,one, y \nb,two,\n")
    assert read_rows([table, tmp_path / "a.csv"], KEPT).kept == [" y ", None, "x", None]


def test_nested_columns_of_other_libraries(tmp_path: Path) -> None:
    views = pa.struct([("lang", pa.string_view()), ("tags", pa.list_(pa.string_view()))])
    path = write(tmp_path / "a.parquet", c=pa.array([{"lang": "en", "tags": ["x"]}, None], views))
    assert read_rows(path, KEPT).kept == [{"lang": "en", "tags": ["x"]}, None]
    assert read_rows(path, Columns("text", "id", ("c.lang",))).kept == ["en", None]
    filled = read_rows(path, Columns("text", "id", template="{c.lang} {c.tags}"))
    assert filled.texts == ['en ["x"]']


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_floats_have_the_words_of_json_and_csv(tmp_path: Path, kind: pa.DataType) -> None:
    table = write(tmp_path / "a.parquet", c=pa.array([3.0, 1e-7], kind))
    (tmp_path / "a.jsonl").write_text('{"id":"a","c":3.0}\n{"id":"b","c":1e-7}\n')
    (tmp_path / "a.csv").write_text("id,c\na,3.0\nb,1e-07\n")  # pandas
    template = Columns("text", "id", template="{c}")
    for path in (table, tmp_path / "a.jsonl", tmp_path / "a.csv"):
        assert read_rows(path, template).texts == ["3.0", "1e-07"]
