"""The order of lists, in which near ones are neighbours."""

import numpy as np
import pytest
from helpers.index_data import unit_vectors

from sentence_beam.transforms.index.walk import walk

pytest.importorskip("faiss")


def steps(rows: np.ndarray) -> float:
    """The mean distance from each row to the next."""
    return float(np.linalg.norm(np.diff(rows, axis=0), axis=1).mean())


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 40, 500])
def test_it_visits_each_centroid_once(rows: int) -> None:
    assert sorted(walk(unit_vectors(rows, 8))) == list(range(rows))


def test_neighbours_are_near() -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat(unit_vectors(20, 8), 15, axis=0)
    rows = (rows + 0.05 * rng.standard_normal(rows.shape)).astype(np.float32)
    rows = rows[rng.permutation(len(rows))]
    order = walk(rows)
    assert steps(rows[order]) < 0.3 * steps(rows)


def test_copies_are_visited_too() -> None:
    assert sorted(walk(np.ones((100, 4), np.float32))) == list(range(100))
