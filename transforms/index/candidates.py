"""Candidates: an index's results at each nprobe of a grid, collected segment by segment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sentence_beam.transforms.index.array_bytes import pack, unpack
from sentence_beam.transforms.index.segment_search import SegmentedIndex


class Candidates:
    """The results of an index for the held-out queries at each nprobe of a grid.

    A row is kept once, with the place in the grid at which its list is first searched. A row that
    is among the best at a later nprobe is among the best there too, because later lists only add
    other rows. The gains of all rows that are not kept have an upper bound, so the results stay
    known while rows are added and deleted, until too many of the kept ones are deleted (`settled`).
    """

    def __init__(
        self,
        nprobes: Sequence[int],
        depth: int,
        gains: np.ndarray,
        kept: np.ndarray,
        steps: np.ndarray,
        bound: np.ndarray,
    ):
        """`gains` float32, `kept` positions int64 and `steps` uint8, places in the grid: [q, any].

        Best first; missing rows have position -1. `bound` float32 [q, grid].
        """
        self.nprobes = list(nprobes)
        self.depth = depth
        self._gains = gains
        self.kept = kept
        self._steps = steps
        self._bound = bound

    @classmethod
    def none(cls, queries: int, depth: int, nprobes: Sequence[int]) -> Candidates:
        """Return no results of any query, of an index without rows."""
        gains, positions, steps = (np.empty((queries, 0), kind) for kind in ("f4", "i8", "u1"))
        bound = np.full((queries, len(nprobes)), -np.inf, np.float32)
        return cls(nprobes, depth, gains, positions, steps, bound)

    @classmethod
    def search(
        cls,
        index: SegmentedIndex,
        queries: np.ndarray,
        depth: int,
        nprobes: Sequence[int],
        *,
        segment: int = 0,
    ) -> Candidates:
        """Return the top `depth` (k, or the number scored again) of an index.

        Its first segment has the number `segment`.
        """
        base = segment << 32
        candidates = cls.none(len(queries), depth, nprobes)
        parts: list[tuple[np.ndarray, ...]] = [candidates._rows]
        for step, (new, best) in enumerate(index.steps(queries, depth, nprobes)):
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
        return candidates._replace_rows(parts)._cut()

    @property
    def _rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._gains, self.kept, self._steps

    def _replace_rows(self, parts: Sequence[tuple[np.ndarray, ...]]) -> Candidates:
        """Return the candidates with other rows, in parts."""
        return Candidates(self.nprobes, self.depth, *_join_sorted(parts), self._bound)

    def _cut(self) -> Candidates:
        """Return the best candidates at each nprobe, as many as the depth."""
        gains, positions, bound = self._gains.copy(), self.kept.copy(), self._bound.copy()
        for step in range(len(self.nprobes)):
            searched = (self._steps <= step) & (positions >= 0)
            ahead = np.cumsum(searched, axis=1)
            # a list that is full may have pushed rows out, which are no better than its last
            last = np.where(searched & (ahead == self.depth), gains, np.float32(-np.inf))
            bound[:, step] = np.maximum(bound[:, step], last.max(axis=1, initial=-np.inf))
            late = (self._steps == step) & (ahead > self.depth)
            gains[late] = -np.inf
            positions[late] = -1
        rows = _join_sorted([(gains, positions, self._steps)])
        return Candidates(self.nprobes, self.depth, *rows, bound)

    def merge(self, other: Candidates) -> Candidates:
        """Return the candidates of two groups of segments with the same grid and depth."""
        bound = np.maximum(self._bound, other._bound)
        rows = _join_sorted([self._rows, other._rows])
        return Candidates(self.nprobes, self.depth, *rows, bound)._cut()

    def only(self, stays: np.ndarray) -> Candidates:
        """Return the candidates for which `stays`, bool as `kept`, is True."""
        gains = np.where(stays, self._gains, np.float32(-np.inf))
        return self._replace_rows([(gains, np.where(stays, self.kept, -1), self._steps)])

    def of(self, place: np.ndarray) -> Candidates:
        """Return the candidates of some queries, by numbers int64 [m]; of -1 there are none."""
        arrays = []
        for array, missing in zip(
            (*self._rows, self._bound), (-np.inf, -1, 0, -np.inf), strict=True
        ):
            last = np.full((1, array.shape[1]), missing, array.dtype)
            arrays.append(np.concatenate([array, last])[place])
        return Candidates(self.nprobes, self.depth, *arrays)

    def narrow(self, nprobes: Sequence[int]) -> Candidates:
        """Return the candidates at fewer values of nprobe, of those in the grid."""
        step = np.searchsorted(nprobes, self.nprobes)[self._steps]
        late = step >= len(nprobes)
        gains = np.where(late, np.float32(-np.inf), self._gains)
        positions = np.where(late, -1, self.kept)
        rows = _join_sorted([(gains, positions, np.where(late, 0, step))])
        bound = self._bound[:, [self.nprobes.index(nprobe) for nprobe in nprobes]]
        return Candidates(nprobes, self.depth, *rows, bound)

    def positions(self, nprobe: int, depth: int | None = None) -> np.ndarray:
        """Return positions int64 [q, depth] at one nprobe of the grid (None: the kept depth)."""
        depth = depth or self.depth
        is_searched = (self._steps <= self.nprobes.index(nprobe)) & (self.kept >= 0)
        place = np.cumsum(is_searched, axis=1) - 1
        query, column = np.nonzero(is_searched & (place < depth))
        positions = np.full((len(is_searched), depth), -1)
        positions[query, place[query, column]] = self.kept[query, column]
        return positions

    def settled(self, nprobe: int, depth: int) -> np.ndarray:
        """Return whether a query's best `depth` at one nprobe are known, bool [q]."""
        step = self.nprobes.index(nprobe)
        searched = (self._steps <= step) & (self.kept >= 0)
        last = searched & (np.cumsum(searched, axis=1) == depth)
        gain = np.where(last, self._gains, np.float32(-np.inf)).max(axis=1, initial=-np.inf)
        return gain >= self._bound[:, step]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the candidates and their grid as named arrays."""
        grid = np.array([self.depth, *self.nprobes], np.int64)
        gains, positions, steps = self._rows
        return {
            "grid": grid, "gains": gains, "positions": positions, "steps": steps,
            "bound": self._bound,
        }  # fmt: skip

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Candidates:
        """Return the candidates of the arrays that `arrays` gave."""
        depth, *nprobes = arrays["grid"].tolist()
        rows = (arrays[name] for name in ("gains", "positions", "steps", "bound"))
        return cls(nprobes, depth, *rows)

    def to_bytes(self) -> bytes:
        """Return the candidates and their grid as bytes."""
        return pack(**self.arrays())

    @classmethod
    def from_bytes(cls, data: bytes) -> Candidates:
        """Return the candidates that `to_bytes` wrote."""
        return cls.from_arrays(unpack(data))


def _join_sorted(
    parts: Sequence[tuple[np.ndarray, ...]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
