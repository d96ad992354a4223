"""What a Python program may give as input: names of files, and rows in every form."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.corpus.in_memory import read_input, write_batch

COLUMNS = {"id": [1, 2], "text": ["one", "two"]}
FRAME = pd.DataFrame(COLUMNS)
TABLE = pa.table(COLUMNS)
ROWS: dict[str, Callable[[], Any]] = {
    "pandas": lambda: FRAME,
    "pandas with an index": lambda: pd.concat([FRAME.tail(1), FRAME]).iloc[1:],
    "polars": lambda: pl.from_pandas(FRAME),
    "arrow": lambda: TABLE,
    "batch": lambda: TABLE.to_batches()[0],
    "stream": TABLE.to_reader,
    "columns": lambda: COLUMNS,
    "columns of arrays": lambda: {"id": np.array([1, 2]), "text": FRAME["text"]},
    "columns of polars": lambda: {"id": (1, 2), "text": pl.Series(["one", "two"])},
    "dicts": lambda: TABLE.to_pylist(),
    "generator": lambda: iter(TABLE.to_pylist()),
}
TEXTS: dict[str, Callable[[], Any]] = {
    "list": lambda: ["one", "two"],
    "generator": lambda: iter(["one", "two"]),
    "numpy": lambda: np.array(["one", "two"]),
    "pandas": lambda: FRAME["text"],
    "polars": lambda: pl.Series(["one", "two"]),
    "arrow": lambda: pa.array(["one", "two"]),
    "arrow chunks": lambda: TABLE["text"],
}


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of two files in the folder that the program runs in."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "b.csv"):
        Path(name).write_text("text\nx\n")
    return ["a.csv", "b.csv"]


@pytest.mark.parametrize("form", ROWS)
def test_rows_of_every_form_are_one_table(form: str) -> None:
    found = read_input(ROWS[form]())
    assert isinstance(found, pa.Table)
    assert (found.to_pylist(), found.schema.metadata) == (TABLE.to_pylist(), None)


@pytest.mark.parametrize("form", TEXTS)
def test_texts_of_every_form_are_a_column(form: str) -> None:
    assert read_input(TEXTS[form]()) == pa.table({"text": ["one", "two"]})


def test_dicts_may_lack_keys() -> None:
    found = read_input([{"text": "a"}, {"text": "b", "lang": "en"}])
    assert isinstance(found, pa.Table)
    assert found.to_pylist() == [{"text": "a", "lang": None}, {"text": "b", "lang": "en"}]


def test_paths_are_files_one_or_several(names: list[str]) -> None:
    assert read_input("*.csv") == ("*.csv",)
    assert read_input(Path("a.csv")) == ("a.csv",)
    assert read_input([Path(name) for name in names]) == ("a.csv", "b.csv")
    assert sorted(read_input(Path().glob("*.csv"))) == names
    assert read_input([Path("s3://bucket/a.csv")]) == ("s3://bucket/a.csv",)


@pytest.mark.parametrize(
    "texts",
    [["a.csv", "b.csv"], ("a.csv",), ["*.csv"], ["."], ["gs://bucket/a.csv"], ["delta:table"]],
)
def test_texts_that_are_all_names_of_files_are_refused_with_both_ways(
    names: list[str], texts: Any
) -> None:
    with pytest.raises(OptionError) as caught:
        read_input(texts)
    assert f"Path({texts[0]!r})" in str(caught.value)
    assert f"{{'text': {texts[0]!r}}}" in str(caught.value)
    assert read_input([{"text": text} for text in texts]) == pa.table({"text": list(texts)})


@pytest.mark.parametrize(
    "other", ["hello", "a.csv.gz", "what *is* [this]?", "nul\0", "x" * 5000, ""]
)
def test_texts_of_which_one_is_no_file_are_texts(names: list[str], other: str) -> None:
    assert read_input([*names, other]) == pa.table({"text": [*names, other]})


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (["a", 7], "row 1 is neither a text nor a dict"),
        (["a", {"text": "b"}], "row 1 is not of the kind of row 0"),
        ([Path("a"), "b"], "1 of 2 items are paths of files"),
        (17, "rows of int cannot be read"),
        ([{1: "a"}], "column 1 has a name that is no text"),
        ({"text": "one"}, "column 'text' holds one value .str., no list"),
        ({"text": ["a", "b"], "id": [1]}, "columns of different lengths: text 2, id 1"),
        ({1: ["a"]}, "column 1 has a name that is no text"),
    ],
)
def test_anything_else_is_one_line(given: Any, match: str) -> None:
    with pytest.raises(OptionError, match=match):
        read_input(given)


NOTHING: dict[str, Callable[[], Any]] = {
    "list": list,
    "tuple": tuple,
    "generator": lambda: iter([]),
    "no column": dict,
    "columns": lambda: {"id": [], "text": []},
    "columns of arrays": lambda: {"id": np.array([], int), "text": np.array([], object)},
    "arrow": lambda: TABLE[:0],
    "arrow without types": lambda: pa.table({"id": [], "text": []}),
    "arrow without columns": lambda: pa.table({}),
    "batch": lambda: TABLE.to_batches()[0][:0],
    "array": lambda: pa.array([], pa.string()),
    "chunks": lambda: pa.chunked_array([], pa.string()),
    "pandas": lambda: pd.DataFrame({"id": [], "text": []}),
    "pandas without columns": pd.DataFrame,
    "pandas with names": lambda: pd.DataFrame(columns=["id", "text"]),
    "pandas, filtered": lambda: FRAME[FRAME.id > 9],
    "pandas, categories": lambda: pd.DataFrame({"text": pd.Series([], dtype="category")}),
    "pandas column": lambda: pd.Series([], dtype=object),
    "polars": lambda: pl.DataFrame({"id": [], "text": []}),
    "polars without columns": pl.DataFrame,
    "polars with types": lambda: pl.DataFrame(schema={"id": pl.Int64, "text": pl.String}),
    "polars column": lambda: pl.Series([]),
}


@pytest.mark.parametrize("form", NOTHING)
def test_no_rows_are_the_same_file_in_every_form(form: str, tmp_path: Path) -> None:
    rows = read_input(NOTHING[form]())
    assert isinstance(rows, pa.Table)
    file = pq.ParquetFile(tmp_path / write_batch(rows, str(tmp_path), "b"))
    assert (file.metadata.num_rows, file.schema_arrow.names) == (0, [])


def test_rows_without_a_column_are_refused() -> None:
    with pytest.raises(OptionError, match="2 rows have no columns"):
        read_input(pd.DataFrame(index=[1, 2]))


def test_a_number_that_no_column_holds_is_text() -> None:
    rows = read_input([{"id": 2**70, "text": "one"}])
    assert isinstance(rows, pa.Table)
    assert rows["id"].to_pylist() == [str(2**70)]
