"""The nearest row of each query by a matrix product."""

import numpy as np
import pytest
from helpers.index_data import unit_vectors

from sentence_beam.transforms.index import nearest_row as module
from sentence_beam.transforms.index.faiss_module import load_faiss
from sentence_beam.transforms.index.nearest_row import find_nearest_row


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few queries are compared at once, and threads share them."""
    monkeypatch.setattr(module, "PRODUCTS", 500)
    monkeypatch.setattr(module, "FEW", 1)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_it_is_the_one_that_faiss_finds(metric: str) -> None:
    queries = 3 * unit_vectors(101, 16, seed=1)
    rows = unit_vectors(40, 16, seed=2) * np.linspace(0.5, 2, 40, dtype=np.float32)[:, None]
    scores, numbers = find_nearest_row(queries, rows, metric)
    faiss = load_faiss()
    kind = {"ip": faiss.METRIC_INNER_PRODUCT, "l2": faiss.METRIC_L2}[metric]
    expected, places = faiss.knn(queries, rows, 1, metric=kind)
    sign = {"ip": 1, "l2": -1}[metric]
    np.testing.assert_array_equal(numbers, places[:, 0])
    np.testing.assert_allclose(scores, sign * expected[:, 0], atol=1e-4)
    assert scores.dtype == np.float32


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_first_of_equal_rows_at_any_number_of_threads(threads: int) -> None:
    faiss = load_faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        rows = np.repeat(unit_vectors(4, 8, seed=1), 2, axis=0)
        _, numbers = find_nearest_row(rows, rows, "ip")
        assert numbers.tolist() == [0, 0, 2, 2, 4, 4, 6, 6]
    finally:
        faiss.omp_set_num_threads(before)


def test_no_queries() -> None:
    scores, numbers = find_nearest_row(np.empty((0, 8), np.float32), unit_vectors(3, 8), "l2")
    assert len(scores) == len(numbers) == 0
