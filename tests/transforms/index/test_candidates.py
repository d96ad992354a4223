"""Candidates: at each nprobe the best rows of the lists searched so far, on made-up lists."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from sentence_beam.transforms.index.candidates import Candidates
from sentence_beam.transforms.index.exact import sort_best_first

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
        return sort_best_first(gains, np.pad(rows, fill, constant_values=-1), depth)

    def steps(self, queries: np.ndarray, depth: int, nprobes: Sequence[int]) -> Iterator[Any]:
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
            wanted = sort_best_first(gains, np.concatenate([first[1], shifted], axis=1), DEPTH)[1]
            np.testing.assert_array_equal(merged.positions(nprobe), wanted)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rows", [5, 1])
def test_candidates_of_a_deeper_search_outlive_some_deleted_rows(seed: int, rows: int) -> None:
    lists = Lists(seed, rows)
    wide = search(lists, depth=DEPTH + 2)
    unknown = []
    for count in range(8):
        gone = np.random.default_rng(count).permutation(4 * rows)[:count]
        left = Lists(seed, rows)
        left.gains[:, np.isin(left.rows, gone)] = -np.inf
        found = wide.only(~np.isin(wide.kept, gone))
        for nprobe in GRID:
            gains = left.best(0, nprobe, DEPTH)[0]
            settled = found.settled(nprobe, DEPTH)
            mine = gains_at(lists, found.positions(nprobe, DEPTH))
            np.testing.assert_array_equal(mine[settled], gains[settled])
            unknown.append((count, not settled.all()))
    assert not any(short for count, short in unknown if count < 3)  # as many as are to spare
    if rows == 1:  # all rows of the lists are kept
        assert not any(short for _, short in unknown)


def gains_at(lists: Lists, positions: np.ndarray) -> np.ndarray:
    """The gains of rows of the lists, -inf for missing ones: float32 [q, any]."""
    place = np.argsort(lists.rows.ravel())
    every = np.concatenate(
        [lists.gains.reshape(len(QUERIES), -1)[:, place], np.full((len(QUERIES), 1), -np.inf)], 1
    )
    return np.take_along_axis(every, np.where(positions < 0, every.shape[1] - 1, positions), axis=1)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_added_to_candidates_with_deleted_rows_is_counted_with_what_was_cut(
    seed: int,
) -> None:
    """The candidates of a night: without deleted rows, with those of a new segment."""
    one, other = Lists(seed), Lists(seed + 100)
    gone = np.random.default_rng(seed).permutation(20)[:6]
    wide = search(one, depth=DEPTH + 2)
    kept = wide.only(~np.isin(wide.kept, gone))
    merged = kept.merge(search(other, 1, depth=DEPTH + 2))
    one.gains[:, np.isin(one.rows, gone)] = -np.inf
    known = 0
    for nprobe in GRID:
        parts = [lists.best(0, nprobe, DEPTH)[0] for lists in (one, other)]
        gains = -np.sort(-np.concatenate(parts, axis=1), axis=1)[:, :DEPTH]
        positions = merged.positions(nprobe, DEPTH)
        old = gains_at(one, np.where(positions >> 32 == 0, positions, -1))
        new = gains_at(other, np.where(positions >> 32 == 1, positions & 0xFFFFFFFF, -1))
        settled = merged.settled(nprobe, DEPTH)
        np.testing.assert_array_equal(np.maximum(old, new)[settled], gains[settled])
        known += settled.sum()
    assert known


def test_candidates_of_some_queries_at_fewer_nprobes() -> None:
    found = search(Lists(5)).narrow([1, 4])
    assert found.nprobes == [1, 4]
    np.testing.assert_array_equal(found.positions(4), search(Lists(5)).positions(4))
    some = found.of(np.array([2, -1, 0]))
    np.testing.assert_array_equal(some.positions(1)[[0, 2]], found.positions(1)[[2, 0]])
    assert (some.positions(4)[1] == -1).all()
    assert some.settled(4, DEPTH).all()


def test_bytes_hold_the_grid_and_the_candidates() -> None:
    found = search(Lists(3))
    again = Candidates.from_bytes(found.to_bytes())
    assert (again.nprobes, again.depth) == (list(GRID), DEPTH)
    for nprobe in GRID:
        np.testing.assert_array_equal(again.positions(nprobe), found.positions(nprobe))
    assert again.to_bytes() == found.to_bytes()


def test_without_queries_there_are_no_candidates() -> None:
    nothing = Candidates.none(0, 2, [1])
    assert nothing.positions(1).shape == (0, 2)
    assert nothing.merge(nothing).positions(1).shape == (0, 2)
