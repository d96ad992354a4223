"""The most similar pairs: brute force, whatever the blocks, the ties, the copies; and by an
index.
"""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from helpers.examples import examples
from helpers.index_data import small_integers, trained, unit_vectors
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.index import TrainedIndex
from sentence_beam.transforms.index.copies import add_copies
from sentence_beam.transforms.index.near_pairs import (
    TopPairs,
    find_lists_near,
    find_top_pairs,
    measure_share_of_nearest,
    put_in_one_list,
)

DIM = 12


def brute_force(vectors: np.ndarray, k: int) -> list[tuple[float, int, int]]:
    """Every pair, sorted by score and rows."""
    scores = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    pairs = [
        (float(np.float32(scores[a, b])), a, b) for a, b in combinations(range(len(vectors)), 2)
    ]
    return sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2]))[:k]


def listed(pairs: TopPairs) -> list[tuple[float, int, int]]:
    return [(float(score), int(a), int(b)) for score, a, b in zip(*pairs, strict=True)]


def exact_pairs(vectors: np.ndarray, k: int, block: int = 2048) -> TopPairs:
    """The pairs of rows that all lie in one list."""
    return find_top_pairs(vectors, put_in_one_list(len(vectors)), k, side=block)


@settings(max_examples=examples(60), deadline=None)
@given(
    n=st.integers(0, 40), k=st.integers(1, 900), block=st.integers(1, 45), seed=st.integers(0, 99)
)
def test_every_pair_is_compared_ties_included(n: int, k: int, block: int, seed: int) -> None:
    vectors = small_integers(n, DIM, seed)
    found = exact_pairs(vectors, k, block=block)
    assert [pair[0] for pair in listed(found)] == [pair[0] for pair in brute_force(vectors, k)]
    assert len(set(listed(found))) == len(found.scores) == min(k, n * (n - 1) // 2)
    assert all(a < b for _, a, b in listed(found))


@pytest.mark.parametrize("k", [1, 10, 500, 5000])
def test_real_numbers_in_any_blocks(k: int) -> None:
    vectors = unit_vectors(300, DIM)
    whole = exact_pairs(vectors, k)
    for block in (7, 64, 299):
        assert listed(exact_pairs(vectors, k, block=block)) == listed(whole)
    expected = brute_force(vectors, k)
    assert [pair[1:] for pair in listed(whole)] == [pair[1:] for pair in expected]
    np.testing.assert_allclose(whole.scores, [pair[0] for pair in expected], atol=1e-6)


def test_vectors_may_be_mapped_from_a_file(tmp_path: Path) -> None:
    vectors = unit_vectors(200, DIM)
    mapped = np.memmap(tmp_path / "vectors", np.float32, "w+", shape=vectors.shape)
    mapped[:] = vectors
    assert listed(exact_pairs(mapped, 20, block=50)) == listed(exact_pairs(vectors, 20))


def test_near_copies_within_rounding_are_told_apart() -> None:
    vectors = np.repeat(unit_vectors(1, 256), 50, axis=0)
    vectors += np.random.default_rng(0).standard_normal(vectors.shape).astype(np.float32) * 1e-5
    found = exact_pairs(vectors, 30, block=16)
    assert listed(found) == brute_force(vectors, 30)


@settings(max_examples=examples(60), deadline=None)
@given(
    of=st.lists(st.integers(0, 7), min_size=1, max_size=20),
    k=st.integers(1, 200),
    seed=st.integers(0, 99),
)
def test_rows_that_are_copies_are_pairs_too(of: list[int], k: int, seed: int) -> None:
    _, place = np.unique(of, return_inverse=True)
    vectors = unit_vectors(len(set(of)), DIM, seed)
    found = add_copies(exact_pairs(vectors, k), vectors, place, k)
    assert [pair[1:] for pair in listed(found)] == [
        pair[1:] for pair in brute_force(vectors[place], k)
    ]
    np.testing.assert_allclose(
        found.scores, [pair[0] for pair in brute_force(vectors[place], k)], atol=1e-6
    )


def test_a_text_of_very_many_rows_costs_no_more_than_k() -> None:
    vectors = unit_vectors(2, DIM)
    of = np.zeros(1_000_000, np.int64)
    of[500] = 1
    found = add_copies(exact_pairs(vectors, 5), vectors, of, 5)
    assert listed(found)[4][1:] == (0, 5)
    everything = add_copies(exact_pairs(vectors, 5), vectors, np.array([0, 1, 0, 1]), 9)
    assert [pair[1:] for pair in listed(everything)[2:]] == [(0, 1), (0, 3), (1, 2), (2, 3)]


@settings(max_examples=examples(60), deadline=None)
@given(
    n=st.integers(2, 60),
    k=st.integers(1, 200),
    lists=st.integers(1, 4),
    side=st.integers(1, 30),
    seed=st.integers(0, 99),
)
def test_in_lists_the_best_of_the_pairs_that_meet_are_found(
    n: int, k: int, lists: int, side: int, seed: int
) -> None:
    vectors = unit_vectors(n, DIM, seed)
    near = np.argsort(vectors[:, :5], axis=1)[:, :lists].astype(np.int32)
    meet = [
        pair
        for pair in brute_force(vectors, n * n)
        if near[pair[1], 0] in near[pair[2]] or near[pair[2], 0] in near[pair[1]]
    ]
    found = find_top_pairs(vectors, near, k, side=side)
    assert [pair[1:] for pair in listed(found)] == [pair[1:] for pair in meet[:k]]
    np.testing.assert_allclose(found.scores, [pair[0] for pair in meet[:k]], atol=1e-6)


def test_rows_in_no_list_are_in_no_pair() -> None:
    vectors = unit_vectors(40, DIM)
    near = put_in_one_list(40)
    near[::2] = -1
    found = find_top_pairs(vectors, near, 1000)
    assert {row for pair in listed(found) for row in pair[1:]} == set(range(1, 40, 2))
    assert measure_share_of_nearest(vectors, near) == 1


def test_lists_find_nearly_all_of_them() -> None:
    vectors = unit_vectors(6000, DIM, seed=3)
    vectors[3000:3100] = vectors[:100] + 0.05 * unit_vectors(100, DIM, seed=4)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    near = find_lists_near(vectors, TrainedIndex.from_bytes(trained("IVF64,Flat", "ip", DIM)), 16)
    pairs = find_top_pairs(vectors, near, 100)
    true = {pair[1:] for pair in listed(exact_pairs(vectors, 100))}
    found = [pair[1:] for pair in listed(pairs)]
    assert len(found) == len(set(found)) == 100
    assert len(true & set(found)) >= 90
    assert 0.5 < measure_share_of_nearest(vectors, near) <= 1
    assert (np.diff(pairs.scores) <= 0).all()
