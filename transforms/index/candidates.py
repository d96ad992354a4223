"""Candidates: an index's results at each nprobe of a grid, collected segment by segment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sentence_beam.transforms.index.array_bytes import pack, unpack
from sentence_beam.transforms.index.search import SegmentedIndex


class Candidates:
    """The results of an index for the held-out queries at each nprobe of a grid.

    A row is kept once, with the place in the grid at which its list is first searched. A row that
    is among the best at a later nprobe is among the best there too, because later lists only add
    other rows.
    """

    def __init__(
        self,
        nprobes: Sequence[int],
        depth: int,
        gains: np.ndarray,
        positions: np.ndarray,
        steps: np.ndarray,
    ):
        """`gains` float32, `positions` int64 and `steps` uint8, places in the grid: [q, any].

        Best first; missing rows have position -1.
        """
        self.nprobes = list(nprobes)
        self.depth = depth
        self._gains = gains
        self._positions = positions
        self._steps = steps

    @classmethod
    def search(
        cls,
        index: SegmentedIndex,
        queries: np.ndarray,
        depth: int,
        nprobes: Sequence[int],
        *,
        segment: int = 0,
        threads: int | None = None,
    ) -> Candidates:
        """Return the top `depth` (k, or the number scored again) of an index.

        Its first segment has the number `segment`.
        """
        base = segment << 32
        parts: list[tuple[np.ndarray, ...]] = [
            tuple(np.empty((len(queries), 0), kind) for kind in (np.float32, np.int64, np.uint8))
        ]
        for step, (new, best) in enumerate(index.steps(queries, depth, nprobes, threads=threads)):
            gains, positions = new
            last_gain = best[0][:, -1:]
            last_position = best[1][:, -1:]
            wins_tie = (gains == last_gain) & (positions <= last_position)
            is_best = (gains > last_gain) | wins_tie | (last_position < 0)
            stays = (positions >= 0) & is_best
            # both are sorted best first, so rows that stay are in the first columns
            width = int(stays.sum(axis=1).max(initial=0))
            stays = stays[:, :width]
            parts.append(
                (
                    np.where(stays, gains[:, :width], -np.inf),
                    np.where(stays, positions[:, :width] + base, -1),
                    np.full(stays.shape, step),
                )
            )
        return cls(nprobes, depth, *_in_order(parts))

    def merge(self, other: Candidates) -> Candidates:
        """Return the candidates of two groups of segments with the same grid and depth."""
        parts = [(each._gains, each._positions, each._steps) for each in (self, other)]
        return Candidates(self.nprobes, self.depth, *_in_order(parts)).trimmed(self.depth)

    def trimmed(self, depth: int) -> Candidates:
        """Return the best `depth` candidates at each nprobe."""
        gains, positions = self._gains.copy(), self._positions.copy()
        for step in range(len(self.nprobes)):
            ahead = np.cumsum((self._steps <= step) & (positions >= 0), axis=1)
            late = (self._steps == step) & (ahead > depth)
            gains[late] = -np.inf
            positions[late] = -1
        return Candidates(self.nprobes, depth, *_in_order([(gains, positions, self._steps)]))

    def without(self, gone: np.ndarray) -> Candidates:
        """Return the candidates without some positions, int64."""
        is_gone = np.isin(self._positions, gone)
        gains = np.where(is_gone, np.float32(-np.inf), self._gains)
        positions = np.where(is_gone, -1, self._positions)
        return Candidates(self.nprobes, self.depth, *_in_order([(gains, positions, self._steps)]))

    def is_short(self, gone: np.ndarray, depth: int) -> np.ndarray:
        """Return whether a query may have fewer than its best `depth` left, bool [q].

        `gone` int64 positions leave. A query with fewer candidates than it was asked for has all
        rows of its lists.
        """
        is_gone = np.isin(self._positions, gone)
        short = np.zeros(len(self._positions), bool)
        for step in range(len(self.nprobes)):
            searched = (self._steps <= step) & (self._positions >= 0)
            best = searched & (np.cumsum(searched, axis=1) <= self.depth)
            is_cut = best.sum(axis=1) == self.depth
            short |= is_cut & ((best & ~is_gone).sum(axis=1) < depth)
        return short

    def of(self, which: np.ndarray) -> Candidates:
        """Return the candidates of some queries, by bool [q] or numbers int64 [m]."""
        arrays = (self._gains[which], self._positions[which], self._steps[which])
        return Candidates(self.nprobes, self.depth, *arrays)

    def narrowed(self, nprobes: Sequence[int]) -> Candidates:
        """Return the candidates at fewer values of nprobe, of those in the grid."""
        step = np.searchsorted(nprobes, self.nprobes)[self._steps]
        late = step >= len(nprobes)
        gains = np.where(late, np.float32(-np.inf), self._gains)
        positions = np.where(late, -1, self._positions)
        steps = np.where(late, 0, step)
        return Candidates(nprobes, self.depth, *_in_order([(gains, positions, steps)]))

    def with_rows(self, which: np.ndarray, other: Candidates) -> Candidates:
        """Return the candidates with those of some queries, bool [q], replaced."""
        parts = []
        for mine, theirs, missing in (
            (self._gains, other._gains, -np.inf),
            (self._positions, other._positions, -1),
            (self._steps, other._steps, 0),
        ):
            width = max(mine.shape[1], theirs.shape[1])
            array = np.full((len(mine), width), missing, mine.dtype)
            array[:, : mine.shape[1]] = mine
            array[which] = missing
            array[which, : theirs.shape[1]] = theirs
            parts.append(array)
        return Candidates(self.nprobes, self.depth, *_in_order([tuple(parts)]))

    def positions(self, nprobe: int, depth: int | None = None) -> np.ndarray:
        """Return positions int64 [q, depth] at one nprobe of the grid (None: the kept depth)."""
        depth = depth or self.depth
        is_searched = (self._steps <= self.nprobes.index(nprobe)) & (self._positions >= 0)
        place = np.cumsum(is_searched, axis=1) - 1
        query, column = np.nonzero(is_searched & (place < depth))
        positions = np.full((len(is_searched), depth), -1)
        positions[query, place[query, column]] = self._positions[query, column]
        return positions

    def to_bytes(self) -> bytes:
        """Return the candidates and their grid as bytes."""
        grid = np.array([self.depth, *self.nprobes], np.int64)
        return pack(grid=grid, gains=self._gains, positions=self._positions, steps=self._steps)

    @classmethod
    def from_bytes(cls, data: bytes) -> Candidates:
        """Return the candidates that `to_bytes` wrote."""
        arrays = unpack(data)
        depth, *nprobes = arrays["grid"].tolist()
        return cls(nprobes, depth, arrays["gains"], arrays["positions"], arrays["steps"])


def _in_order(parts: Sequence[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Join parts of gains float32, positions int64 and places in the grid uint8, each [q, any].

    Rows are sorted best first, ties by position, missing rows last. The result is as wide as the
    query with the most rows.
    """
    gains, positions, steps = (
        np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True)
    )
    order = np.lexsort((positions, -gains), axis=-1)
    width = int((positions >= 0).sum(axis=1).max(initial=0))
    first = order[:, :width]
    gains, positions, steps = (
        np.take_along_axis(array, first, axis=1) for array in (gains, positions, steps)
    )
    return gains.astype(np.float32), positions, steps.astype(np.uint8)
