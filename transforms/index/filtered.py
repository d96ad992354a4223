"""Searching some rows of opened segments as if there were no others: all of them where they are
few, else by lists.

Lists without a wanted row are never visited, so that rows far from a query are found as soon as
near ones. How many lists a query needs is not known before: they are doubled until its results stay
as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from transforms.index.exact import block_top_k, no_results
from transforms.index.faiss_module import load_faiss, use_threads
from transforms.index.parts import Coarse, Found, OpenSegment
from transforms.index.search import (
    SearchResult,
    SegmentedIndex,
    merge,
    positions_of,
    rerank,
    result,
    split,
)
from transforms.index.trained import centroids
from transforms.index.vectors import as_vectors, metric_name

# rows that are compared one by one: a matrix product is about as fast as many lists, and finds them
# all
FEW = 50_000
_NPROBE = 16
_DEEPER = 4  # times the candidates, where results change with them
_DEEPEST = 64  # times those at first
Vectors = Callable[[np.ndarray, np.ndarray], np.ndarray]


class FilteredIndex:
    """The rows of opened segments that are wanted and not deleted."""

    def __init__(
        self, index: SegmentedIndex, wanted: Sequence[np.ndarray], vectors: Vectors | None = None
    ):
        """`wanted` bool [n] for each segment.

        `vectors(segment int32 [m], row int64 [m])` gives those float32 [m, d] of rows in lists, by
        which results are to be ranked in the end; None where that is done by the codes.
        """
        self._parts = [part.only(rows) for part, rows in zip(index.parts, wanted, strict=True)]
        self._vectors = vectors
        self._index, self._metric = index, index.metric

    @property
    def rows(self) -> int:
        """The number of rows that are wanted."""
        return sum(part.live for part in self._parts)

    @property
    def is_exact(self) -> bool:
        """Whether each wanted row is compared with each query."""
        return self._block is not None

    def search(
        self,
        queries: np.ndarray,
        k: int,
        *,
        nprobe: int | None = None,
        depth: int | None = None,
        threads: int | None = None,
    ) -> SearchResult:
        """The top k of each query float32 [q, d] among the wanted rows; `nprobe` lists (default 16)
        come first.

        Where rows are ranked by `vectors`, `depth` candidates are, and ever more until the results
        stay as they are.
        """
        with use_threads(threads) as faiss:
            if not self.rows:
                return result(*no_results(len(queries), k), self._metric)
            queries = as_vectors(queries, self._parts[0].index.d, "queries")
            if self._block is not None:
                positions, vectors = self._block
                gains, rows = block_top_k(faiss, queries, vectors, k, self._metric)
                return result(gains, np.where(rows >= 0, positions[rows], -1), self._metric)
            if self._vectors is None:
                return result(*self._by_lists(faiss, queries, k, nprobe or _NPROBE), self._metric)
            return self._ranked(faiss, queries, k, max(depth or k, k), nprobe or _NPROBE)

    def _ranked(
        self, faiss: Any, queries: np.ndarray, k: int, depth: int, nprobe: int
    ) -> SearchResult:
        """The top k by `vectors`: codes tell rows that are about equally far from a query badly
        apart.
        """
        assert self._vectors is not None
        best, pending, most = None, np.arange(len(queries)), min(_DEEPEST * depth, self.rows)
        while pending.size:
            asked = queries[pending]
            found = result(*self._by_lists(faiss, asked, depth, nprobe), self._metric)
            found = rerank(asked, found, k, self._vectors, self._metric)
            if best is None:
                best = found
            else:
                changed = (
                    positions_of(found) != positions_of(SearchResult(*(c[pending] for c in best)))
                ).any(axis=1)
                for column, new in zip(best, found, strict=True):
                    column[pending] = new
                pending = pending[changed]
            if depth >= most:
                break
            depth = min(_DEEPER * depth, most)
        assert best is not None
        return best

    @cached_property
    def _block(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Positions int64 [m], ascending, and vectors float32 [m, d] of all wanted rows; None where
        these are many.

        None too where vectors are not what scores are computed from.
        """
        if self.rows > FEW:
            return None
        found = [self._vectors_of(load_faiss(), part) for part in self._parts if part.live]
        known = [part for part in found if part is not None]
        if len(known) < len(found):
            return None
        positions, vectors = zip(*known, strict=True)
        return np.concatenate(positions), np.concatenate(vectors)

    def _vectors_of(self, faiss: Any, part: OpenSegment) -> tuple[np.ndarray, np.ndarray] | None:
        if self._vectors is None or not part.has_lists:
            found = part.decoded(faiss)
            return None if found is None else (found[0] | part.number << 32, found[1])
        positions = np.flatnonzero(part.is_live) | part.number << 32
        return positions, self._vectors(*split(positions))

    @cached_property
    def _lists(self) -> tuple[np.ndarray, np.ndarray]:
        """The lists with a wanted row, int64 [l], and their centroids float32 [l, d]."""
        parts, faiss = [part for part in self._parts if part.has_lists], load_faiss()
        counts = [part.matches_of_lists(faiss) for part in parts]
        numbers = np.flatnonzero(sum(counts[1:], counts[0])) if counts else np.empty(0, np.int64)
        return numbers, centroids(faiss, parts[0].index)[numbers] if counts else np.empty(
            (0, 0), np.float32
        )

    def _by_lists(self, faiss: Any, queries: np.ndarray, k: int, nprobe: int) -> Found:
        """Gains and positions [q, k]: of all parts without lists, and of ever more lists."""
        lists = len(self._lists[0])
        flat = [part.top_k(faiss, queries, k, None) for part in self._parts if not part.has_lists]
        gains, positions = merge([no_results(len(queries), k), *flat], k)
        queries, pending, done, end = (
            self._index.turned(queries),
            np.arange(len(queries)),
            0,
            min(nprobe, lists),
        )
        while pending.size and done < end:
            coarse = self._coarse(faiss, queries[pending], done, end)
            parts = [
                part.top_k(faiss, queries[pending], k, coarse)
                for part in self._parts
                if part.has_lists
            ]
            best = merge([(gains[pending], positions[pending]), *parts], k)
            stays = (best[1] == positions[pending]).all(axis=1) & (
                best[1][:, min(k, self.rows) - 1] >= 0
            )
            gains[pending], positions[pending] = best
            pending = pending[~stays] if done else pending
            done, end = end, min(2 * end, lists)
        return gains, positions

    def _coarse(self, faiss: Any, queries: np.ndarray, start: int, end: int) -> Coarse:
        """The lists with wanted rows that are nearest to each query, but for the `start`
        nearest.
        """
        numbers, centres = self._lists
        quantizer = faiss.downcast_index(
            next(part.index for part in self._parts if part.has_lists).quantizer
        )
        metric = metric_name(faiss, quantizer.metric_type)
        gains, places = block_top_k(faiss, queries, centres, end, metric, margin=1)
        return Coarse.cut(gains if metric == "ip" else -gains, numbers[places], start, end)
