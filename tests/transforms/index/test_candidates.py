"""Candidates: at each nprobe the best rows of the lists searched so far, on made-up lists."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from sentence_beam.transforms.index.candidates import Candidates
from sentence_beam.transforms.index.exact import best_first

GRID = (1, 2, 4)
QUERIES = np.zeros((3, 2), np.float32)
DEPTH = 4


class Lists:
    """An index that is nothing but the gains of the rows in each of four lists, for each query."""

    def __init__(self, seed: int, rows_per_list: int = 5):
        drawn = np.random.default_rng(seed)
        # few values, so that many rows tie
        self.gains = drawn.integers(0, 6, (len(QUERIES), 4, rows_per_list)).astype(np.float32)
        self.rows = drawn.permutation(4 * rows_per_list).reshape(4, rows_per_list)

    def best(self, first: int, stop: int, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """The best rows of some lists, filled up to `depth`."""
        gains = self.gains[:, first:stop].reshape(len(QUERIES), -1)
        rows = np.tile(self.rows[first:stop].ravel(), (len(QUERIES), 1))
        fill = ((0, 0), (0, depth))
        gains = np.pad(gains, fill, constant_values=-np.inf)
        return best_first(gains, np.pad(rows, fill, constant_values=-1), depth)

    def steps(
        self, queries: np.ndarray, depth: int, nprobes: Sequence[int], threads: int | None
    ) -> Iterator[Any]:
        """As a SegmentedIndex's."""
        for start, stop in zip((0, *nprobes[:-1]), nprobes, strict=True):
            yield self.best(start, stop, depth), self.best(0, stop, depth)


def search(lists: Lists, segment: int = 0, depth: int = DEPTH) -> Candidates:
    return Candidates.search(lists, QUERIES, depth, GRID, segment=segment)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rows", [5, 1])
def test_positions_at_an_nprobe_are_those_of_a_search_with_it(seed: int, rows: int) -> None:
    lists = Lists(seed, rows)
    found = search(lists)
    for nprobe in GRID:
        for depth in (None, 2):
            wanted = lists.best(0, nprobe, depth or DEPTH)[1]
            np.testing.assert_array_equal(found.positions(nprobe, depth), wanted)


@pytest.mark.parametrize("seed", range(6))
def test_segments_merge_into_one_index(seed: int) -> None:
    one, other = Lists(seed), Lists(seed + 100)
    for merged in (search(one).merge(search(other, 1)), search(other, 1).merge(search(one))):
        for nprobe in GRID:
            first, second = one.best(0, nprobe, DEPTH), other.best(0, nprobe, DEPTH)
            shifted = np.where(second[1] >= 0, second[1] + (1 << 32), -1)
            gains = np.concatenate([first[0], second[0]], axis=1)
            wanted = best_first(gains, np.concatenate([first[1], shifted], axis=1), DEPTH)[1]
            np.testing.assert_array_equal(merged.positions(nprobe), wanted)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rows", [5, 1])
def test_candidates_of_a_deeper_search_outlive_some_deleted_rows(seed: int, rows: int) -> None:
    lists = Lists(seed, rows)
    wide = search(lists, depth=DEPTH + 2)
    np.testing.assert_array_equal(wide.trimmed(DEPTH).positions(4), search(lists).positions(4))
    short = []
    for count in range(8):
        gone = np.random.default_rng(count).permutation(4 * rows)[:count]
        left = Lists(seed, rows)
        left.gains[:, np.isin(left.rows, gone)] = -np.inf
        short.append(wide.is_short(gone, DEPTH))
        found = wide.without(gone).trimmed(DEPTH)
        for nprobe in GRID:
            gains, wanted = left.best(0, nprobe, DEPTH)
            wanted = np.where(np.isfinite(gains), wanted, -1)
            same = (found.positions(nprobe) == wanted).all(axis=1)
            assert (same | short[-1]).all()
    assert not any(some.any() for some in short[:3])  # as many as are to spare
    assert any(some.any() for some in short) == (rows > 1)


def test_bytes_hold_the_grid_and_the_candidates() -> None:
    found = search(Lists(3))
    again = Candidates.from_bytes(found.to_bytes())
    assert (again.nprobes, again.depth) == (list(GRID), DEPTH)
    for nprobe in GRID:
        np.testing.assert_array_equal(again.positions(nprobe), found.positions(nprobe))
    assert again.to_bytes() == found.to_bytes()


def test_without_queries_there_are_no_candidates() -> None:
    nothing = Candidates([1], 2, *(np.empty((0, 0), kind) for kind in ("f4", "i8", "u1")))
    assert nothing.positions(1).shape == (0, 2)
    assert nothing.merge(nothing).positions(1).shape == (0, 2)
