"""`sentence_beam.embed` with rows that a program holds, and what the store it gives can do."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from helpers.corpora import sentences

import sentence_beam as sb
from transforms.corpus.in_memory import table_of
from transforms.errors import OptionError

TEXTS = sentences(6)
IDS = [f"row-{number}" for number in range(6)]
FRAME = pd.DataFrame({"id": IDS, "text": TEXTS, "lang": ["en"] * 6})
SOURCES = {
    "pandas": FRAME,
    "polars": pl.from_pandas(FRAME),
    "arrow": pa.Table.from_pandas(FRAME),
    "dicts": FRAME.to_dict("records"),
    "generator": (dict(row) for row in FRAME.to_dict("records")),
}


@pytest.fixture
def how(model: Path, store: Path) -> dict[str, Any]:
    return {"store": str(store), "model": str(model), "dtype": "float32"}


@pytest.mark.parametrize("kind", SOURCES)
def test_rows_of_every_kind_give_the_same_store(kind: str, how: dict[str, Any]) -> None:
    store = sb.embed(SOURCES[kind], id_column="id", keep_columns=("lang",), **how)
    assert store is not None
    ids, vectors = store.numpy()
    assert list(ids) == IDS
    encoder = sb.Encoder.load(how["model"], dtype="float32", device="cpu")
    np.testing.assert_allclose(vectors, encoder.encode(TEXTS), atol=2e-5)
    assert list(store.to_pandas()["lang"]) == ["en"] * 6


def test_texts_alone_and_rows_that_changed(how: dict[str, Any]) -> None:
    assert len(sb.embed(TEXTS, **how)) == 6
    again = sb.embed(TEXTS, **how)
    assert again.manifest.data["work"]["carried"] == 6
    changed = sb.embed([*TEXTS[:5], "something else"], **how)
    assert changed.manifest.data["work"] == {"embedded": 1, "reused": 5, "duplicates": 0, "carried": 0}


def test_a_store_says_what_it_is_and_gives_rows_and_vectors(how: dict[str, Any]) -> None:
    store = sb.embed(FRAME, id_column="id", precision="float16", **how)
    assert repr(store) == f"<Store {how['store']}: 6 rows, {store.space.dim} dimensions, run {store.manifest.run}>"
    assert store.vectors().dtype == np.float32
    assert store.vectors().shape == (6, store.space.dim)
    picked = store.rows(ids=["row-4", "row-1", "row-4"])
    assert picked["id"].to_pylist() == ["row-4", "row-1"]
    assert store.rows("row-2")["id"].to_pylist() == ["row-2"]
    with pytest.raises(OptionError, match="no row with the id 'row-9'"):
        store.rows(["row-1", "row-9"])


def test_one_text_is_searched_as_one_text(how: dict[str, Any]) -> None:
    store = sb.embed(FRAME, id_column="id", **how)
    (hits,) = store.search([TEXTS[3]], k=2)
    assert store.search(TEXTS[3], k=2) == hits
    assert hits[0]["id"] == "row-3"


def test_a_store_without_rows_has_arrays_of_none(how: dict[str, Any], inputs: Path) -> None:
    store = sb.embed([], **how)
    assert len(store) == 0
    assert store
    assert store.vectors().shape == (0, store.space.dim)


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        (["a", 7], "row 1 is neither a text nor a dict"),
        (["a", {"text": "b"}], "row 1 is not of the kind of row 0"),
        (17, "rows of int cannot be read"),
        ([{"text": "a", "x": 1}, {"text": "b", "x": "c"}], "rows of list cannot be read"),
    ],
)
def test_what_are_no_rows_is_one_line(rows: Any, match: str, how: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=match):
        sb.embed(rows, **how)


def test_dicts_may_lack_keys() -> None:
    found = table_of([{"text": "a"}, {"text": "b", "lang": "en"}])
    assert found.to_pylist() == [{"text": "a", "lang": None}, {"text": "b", "lang": "en"}]


def test_other_machines_do_not_get_rows_in_memory(how: dict[str, Any]) -> None:
    flags = ["--runner=DataflowRunner", "--project=p", "--region=r", "--temp_location=gs://b/t"]
    flags.append("--sdk_container_image=r/i:t")
    with pytest.raises(OptionError, match="in this process"):
        sb.embed(TEXTS, beam_flags=flags, **how)
