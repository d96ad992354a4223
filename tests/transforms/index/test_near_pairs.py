"""Pairs above a threshold, and the groups that they make."""

import numpy as np
import pytest
from helpers.index_data import trained, unit_vectors
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.index import TrainedIndex
from sentence_beam.transforms.index.near_pairs import (
    Components,
    find_lists_near,
    find_near_pairs,
    measure_share_found,
)

DIM = 8


def crowded(rows: int) -> np.ndarray:
    """Vectors, each fifth of them near an earlier one, and some copies."""
    vectors = unit_vectors(rows, DIM)
    vectors[1::5] = vectors[::5] + 0.1 * unit_vectors(len(vectors[1::5]), DIM, seed=4)
    vectors[2::50] = vectors[1::50]
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def by_brute_force(vectors: np.ndarray, threshold: float) -> set[tuple[int, int]]:
    scores = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    first, second = np.nonzero(np.triu(scores >= threshold, 1))
    return set(zip(first.tolist(), second.tolist(), strict=True))


def found_pairs(
    vectors: np.ndarray, near: np.ndarray, threshold: float, side: int
) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for first, second in find_near_pairs(vectors, near, threshold, side=side):
        low, high = np.minimum(first, second), np.maximum(first, second)
        found += zip(low.tolist(), high.tolist(), strict=True)
    return found


@pytest.mark.parametrize("side", [2048, 31])
@pytest.mark.parametrize("lists", [1, 2, 4])
def test_every_pair_whose_lists_meet_is_found_once(lists: int, side: int) -> None:
    vectors = crowded(600)
    near = find_lists_near(vectors, TrainedIndex.from_bytes(trained("IVF4,Flat", "ip", DIM)), lists)
    found, wanted = found_pairs(vectors, near, 0.9, side), by_brute_force(vectors, 0.9)
    meet = {(a, b) for a, b in wanted if near[a, 0] in near[b] or near[b, 0] in near[a]}
    assert len(set(found)) == len(found)
    assert set(found) == (wanted if lists == 4 else meet)
    share, pairs = measure_share_found(vectors, near, 0.9)
    assert share == 1 if lists == 4 else 0.5 < share <= 1
    assert pairs > 50


@given(
    st.integers(1, 30).flatmap(
        lambda n: st.tuples(
            st.just(n), st.lists(st.lists(st.tuples(*[st.integers(0, n - 1)] * 2), max_size=8))
        )
    )
)
def test_groups_are_what_pairs_hold_together(case: tuple[int, list[list[tuple[int, int]]]]) -> None:
    rows, batches = case
    components, group = Components(rows), list(range(rows))
    for batch in batches:
        pairs = np.array(batch, np.int64).reshape(-1, 2)
        components.join(pairs[:, 0], pairs[:, 1])
        for a, b in batch:
            low, high = sorted((group[a], group[b]))
            group = [low if g == high else g for g in group]
    assert components.first.tolist() == group
