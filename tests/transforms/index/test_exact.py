"""Exact neighbours: as pair by pair in float64, whatever the blocks; ties by position."""

from collections.abc import Sequence

import numpy as np
import pytest
from helpers.index_data import brute_force, small_integers, unit_vectors

from sentence_beam.transforms.index.exact import (
    complete_top_k,
    exact_search,
    gains_to_scores,
    longest_row,
    merge_top_k,
    rounding,
    score_pairs,
    sort_best_first,
    start_results,
)
from sentence_beam.transforms.index.faiss_module import use_threads

CUTS: tuple[Sequence[int], ...] = ((), (1, 2, 50), tuple(range(10, 90, 10)))
THREADS = [1, 3]  # numpy finds the candidates for few threads, faiss for many


def blocks(vectors: np.ndarray, cuts: Sequence[int]) -> list[tuple[np.ndarray, int]]:
    starts = [0, *cuts]
    ends = [*cuts, len(vectors)]
    return [(vectors[start:end], start) for start, end in zip(starts, ends, strict=True)]


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("threads", THREADS)
def test_ties_go_by_position_however_the_vectors_are_cut(
    metric: str, cuts: Sequence[int], threads: int
) -> None:
    vectors = small_integers(90, 4, 1)
    queries = small_integers(7, 4, 2)
    with use_threads(threads):
        scores, positions = exact_search(blocks(vectors, cuts), queries, 20, metric)
    wanted, rows = brute_force(vectors, queries, 20, metric)
    np.testing.assert_array_equal(positions, rows)
    np.testing.assert_array_equal(scores, wanted)


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_scores_are_the_same_to_the_bit_however_the_vectors_are_cut(metric: str) -> None:
    vectors = unit_vectors(90, 33)
    queries = unit_vectors(5, 33, seed=1)
    found = []
    for threads in THREADS:
        with use_threads(threads):
            found += [exact_search(blocks(vectors, cuts), queries, 10, metric) for cuts in CUTS]
    first, *others = found
    for other in others:
        np.testing.assert_array_equal(first[0], other[0])
        np.testing.assert_array_equal(first[1], other[1])
    np.testing.assert_allclose(first[0], brute_force(vectors, queries, 10, metric)[0], atol=1e-5)


def test_fewer_rows_than_asked_for_are_filled_up() -> None:
    vectors = unit_vectors(3, 4)
    scores, positions = exact_search([(vectors, 10)], vectors[:1], 5, "ip")
    assert sorted(positions[0, :3].tolist()) == [10, 11, 12]
    assert positions[0, 3:].tolist() == [-1, -1]
    assert scores[0, 3:].tolist() == [-np.inf, -np.inf]
    assert exact_search([], vectors, 2, "l2")[1].tolist() == [[-1, -1]] * 3


def test_the_best_come_first_and_ties_by_row() -> None:
    gains = np.array([[1.0, 3.0, 3.0, 2.0], [0.0, -np.inf, -np.inf, -np.inf]], np.float32)
    rows = np.array([[4, 9, 7, 1], [5, -1, -1, -1]])
    found = sort_best_first(gains, rows, 3)
    assert found[0].tolist() == [[3, 3, 2], [0, -np.inf, -np.inf]]
    assert found[1].tolist() == [[7, 9, 1], [5, -1, -1]]
    merged = merge_top_k([(gains[:, :2], rows[:, :2]), (gains[:, 2:], rows[:, 2:])], 3)
    np.testing.assert_array_equal(merged[0], found[0])
    np.testing.assert_array_equal(merged[1], found[1])
    unchanged = merge_top_k([found, start_results(2, 3)], 3)
    np.testing.assert_array_equal(unchanged[1], found[1])


def test_a_search_goes_deeper_until_no_tie_is_left_open() -> None:
    """Fifty rows tie for the first three places; the scan returns the last of them first."""
    gains = np.ones(50, np.float32)
    depths = []

    def scan(which: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        depths.append(depth)
        rows = np.tile(np.arange(49, 49 - depth, -1), (len(which), 1))
        return gains[rows], rows, np.ones(len(which), np.float32)

    found = complete_top_k(scan, 2, 3, 50)
    assert found[1].tolist() == [[0, 1, 2]] * 2
    assert depths == [4, 32, 50]


def test_a_row_of_no_number_has_the_worst_score() -> None:
    vectors = unit_vectors(4, 8)
    rows = np.array([[0, -1], [2, 3]])
    for metric, worst in (("ip", -np.inf), ("l2", np.inf)):
        scores = score_pairs(vectors[:2], vectors, rows, metric)
        assert scores[0, 1] == worst
        assert np.isfinite(scores[rows >= 0]).all()
    assert gains_to_scores(np.float32([2.0]), "l2").tolist() == [-2.0]
    assert gains_to_scores(np.float32([2.0]), "ip").tolist() == [2.0]


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_rounding_bounds_the_error_of_a_matrix_product(metric: str) -> None:
    vectors = unit_vectors(200, 300) * 3
    queries = unit_vectors(50, 300, seed=1)
    products = queries @ vectors.T
    exact = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    bound = rounding(queries, longest_row(vectors), metric)
    assert longest_row(vectors) == pytest.approx(3, abs=1e-5)
    assert (np.abs(products - exact).max(axis=1) <= bound).all()
    assert longest_row(vectors[:0]) == 0
