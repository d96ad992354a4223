"""Lists found in two levels."""

import numpy as np
import pytest
from helpers.index_data import small_integers, unit_vectors
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.index import cells
from sentence_beam.transforms.index.cells import (
    allot_lists,
    average_lists,
    count_cells,
    find_lists_of_cell,
    find_nearest,
    find_nearest_of_cells,
    remove_copies,
)
from sentence_beam.transforms.index.kmeans import kmeans


@given(st.integers(1, 200), st.lists(st.integers(0, 100), min_size=1, max_size=20))
def test_lists_are_given_to_cells_by_their_rows(lists: int, rows: list[int]) -> None:
    counts = np.array(rows)
    given = allot_lists(lists, counts)
    assert given.sum() == min(lists, counts.sum())
    assert (given <= counts).all()
    assert (given[counts > 0] > 0).all() or lists < np.count_nonzero(counts)
    if lists >= np.count_nonzero(counts):
        order = np.argsort(counts, kind="stable")
        assert (np.diff(given[order]) >= -1).all()


def test_few_lists_are_found_at_once_and_many_in_about_the_root_of_them() -> None:
    assert [count_cells(lists) for lists in (1, 2048, 8192, 8193, 65536, 1048576)] == [
        0,
        0,
        0,
        91,
        256,
        1024,
    ]


def test_copies_of_rows_are_left_out() -> None:
    rows = small_integers(500, 4, 1)
    found = remove_copies(rows)
    assert len(found) == len({row.tobytes() for row in rows}) < 500
    assert {row.tobytes() for row in found} == {row.tobytes() for row in rows}
    assert remove_copies(found) is found


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_the_nearest_list_is_found_among_all_where_all_cells_are_near(metric: str) -> None:
    rows, centroids = unit_vectors(300, 8), unit_vectors(20, 8, seed=1)
    coarse, bounds = unit_vectors(4, 8, seed=2), np.array([0, 5, 5, 12, 20])
    found = find_nearest_of_cells(rows, coarse, centroids, bounds, metric)
    assert np.array_equal(found, find_nearest(rows, centroids, metric)[1][:, 0])


def test_the_middle_of_a_lists_rows() -> None:
    rows, former = unit_vectors(10, 4), unit_vectors(3, 4, seed=1)
    numbers = np.array([0, 2, 2, 0, 0, 2, 2, 2, 0, 0])
    found = average_lists(rows, numbers, former, "l2")
    assert np.array_equal(found[1], former[1])
    np.testing.assert_allclose(
        found[[0, 2]], [rows[numbers == n].mean(axis=0) for n in (0, 2)], atol=1e-6
    )
    np.testing.assert_allclose(
        np.linalg.norm(average_lists(rows, numbers, former, "ip"), axis=1), 1, atol=1e-6
    )


def test_a_heavy_cell_is_cut_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "ONE_LEVEL", 8)
    rows = unit_vectors(2000, 8)
    assert find_lists_of_cell(rows, 30, "ip").shape == (30, 8)
    assert len(find_lists_of_cell(np.repeat(rows[:5], 100, axis=0), 30, "ip")) == 5


def test_two_levels_and_passes_over_all_rows_are_nearly_as_good_as_one() -> None:
    """Rows of 60 topics of uneven size, in 64 lists by 8 cells."""
    rng = np.random.default_rng(0)
    topic = rng.choice(60, 4000, p=1 / np.arange(1, 61) / (1 / np.arange(1, 61)).sum())
    rows = unit_vectors(60, 24, seed=1)[topic] + 0.8 * unit_vectors(4000, 24)
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    coarse = kmeans(rows[:2048], 8, "ip")
    cell = find_nearest(rows, coarse, "ip")[1][:, 0]
    lists = allot_lists(64, np.bincount(cell, minlength=8))
    found = np.concatenate(
        [find_lists_of_cell(rows[cell == c], int(lists[c]), "ip") for c in range(8)]
    )
    bounds, closeness = np.concatenate([[0], np.cumsum(lists)]), []
    for _ in range(1 + cells.PASSES):
        closeness.append(find_nearest(rows, found, "ip")[0].mean())
        found = average_lists(
            rows, find_nearest_of_cells(rows, coarse, found, bounds, "ip"), found, "ip"
        )
    one = find_nearest(rows, kmeans(rows, 64, "ip"), "ip")[0].mean()
    assert closeness == sorted(closeness)
    assert closeness[-1] > 0.99 * one
