"""The metric of an index: what the model says, what is asked for, and cosine over rows of any
length.
"""

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import nights as helper
from helpers.nights import DIM, Nights

from sentence_beam.transforms.beam import IndexRequest
from sentence_beam.transforms.index.metric_vectors import prepare_vectors
from sentence_beam.transforms.search import Searcher
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.manifest import Manifest

pytest.importorskip("faiss")

ROWS = {
    f"f{f}": [(f"{f}-{n}", f"{'abcdefgh'[n % 8]} row {f} {n}") for n in range(60)] for f in range(4)
}
MORE = {**ROWS, "new": [(f"new-{n}", f"{'abcd'[n % 4]} new {n}") for n in range(12)]}


def long_or_short(text: str, dim: int = DIM) -> np.ndarray:
    """The vector of a text, as long as its hash says: 0.5 to 50."""
    length = 0.5 * 10 ** (2 * (zlib.crc32(text.encode()) % 1000) / 1000)
    return (unit(text, dim) * length).astype(np.float32)


unit = helper.vector_of


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    """An empty store whose vectors are not normalised."""
    monkeypatch.setattr(helper, "vector_of", long_or_short)
    return Nights(tmp_path / "store", replace(helper.space_of(), normalize=False))


def vectors_of(files: dict[str, list[tuple[str, str]]]) -> tuple[list[str], np.ndarray]:
    """Ids and vectors of all rows."""
    rows = [row for rows in files.values() for row in rows]
    return [i for i, _ in rows], np.array([long_or_short(text) for _, text in rows])


def expected(
    files: dict[str, list[tuple[str, str]]], query: str, metric: str, k: int = 5
) -> list[str]:
    """The ids of the nearest rows by brute force."""
    ids, vectors = vectors_of(files)
    q = long_or_short(query)
    scores = {
        "cosine": vectors @ q / np.linalg.norm(vectors, axis=1),
        "ip": vectors @ q,
        "l2": -((vectors - q) ** 2).sum(axis=1),
    }[metric]
    return [ids[i] for i in np.argsort(-scores, kind="stable")[:k]]


def found(store: Nights, query: str, exact: bool = False) -> list[str]:
    """The ids that a search finds, with every list probed."""
    data = dict(store.manifest.data)
    data["index"] = {**data["index"], "nprobe": 4}
    searcher = Searcher(Manifest.from_data(store.manifest.root, data))
    return [
        row["id"]
        for row in searcher.rows.describe(
            searcher.nearest(long_or_short(query)[None], 5, exact=exact)
        )[0]
    ]


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
@pytest.mark.parametrize("factory", ["Flat", "IVF4,Flat"])
def test_index_and_exact_search_rank_by_the_metric(
    store: Nights, factory: str, metric: str
) -> None:
    store.commit(ROWS, IndexRequest(factory, metric))
    index = store.commit(MORE, IndexRequest(factory, metric))
    assert (index["metric"], index["change"]["what"]) == (metric, "followed")
    assert index["recall"]["value"] > 0.9
    for query in ("a row 1 8", "d asked", "new"):
        assert (
            found(store, query) == found(store, query, exact=True) == expected(MORE, query, metric)
        )


def test_auto_is_cosine_unless_the_model_says_otherwise(
    store: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.commit(ROWS, IndexRequest("Flat"))["metric"] == "cosine"
    monkeypatch.setattr(store, "options", RememberedOptions(metric="ip"))
    assert store.commit(MORE, IndexRequest("Flat"))["metric"] == "cosine", (
        "an index keeps its metric"
    )
    assert store.commit(MORE, IndexRequest("Flat", "ip"))["metric"] == "ip"
    other = Nights(
        store.root.with_name("other"), store.space, options=RememberedOptions(metric="ip")
    )
    assert other.commit(ROWS, IndexRequest("Flat"))["metric"] == "ip"


def test_a_metric_said_while_there_was_no_index_is_that_of_the_next_one(
    store: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "options", RememberedOptions(metric="cosine"))
    store.commit(ROWS, IndexRequest("Flat"))
    store.commit_without_index(ROWS)
    assert store.commit(ROWS, IndexRequest("Flat"))["metric"] == "cosine"
    store.commit_without_index(ROWS)
    monkeypatch.setattr(store, "options", RememberedOptions(metric="l2"))
    store.commit_without_index(ROWS)
    assert store.commit(ROWS, IndexRequest("Flat"))["metric"] == "l2"


def test_an_index_of_an_earlier_version_keeps_its_inner_product(store: Nights) -> None:
    store.commit(ROWS, IndexRequest("IVF4,Flat", "ip"))
    index = store.commit(MORE)
    assert (index["metric"], index["change"]["what"]) == ("ip", "followed")


def test_over_rows_of_length_1_cosine_is_the_inner_product(tmp_path: Path) -> None:
    store = Nights(tmp_path / "store")
    store.commit(ROWS, IndexRequest("IVF4,Flat", "ip"))
    assert store.commit(MORE, IndexRequest("IVF4,Flat", "cosine"))["change"]["what"] == "followed"


def test_only_rows_of_another_length_are_scaled() -> None:
    rows: Any = np.array([[3, 4], [0.6, 0.8], [0, 0]], np.float32)
    assert np.allclose(prepare_vectors(rows, "cosine"), [[0.6, 0.8], [0.6, 0.8], [0, 0]])
    assert prepare_vectors(rows, "cosine")[1].tobytes() == rows[1].tobytes()
    assert prepare_vectors(rows, "ip") is rows
