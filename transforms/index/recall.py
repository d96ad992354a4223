"""Recall against exact search, measured in pieces: each segment gives its part, the parts merge, one report comes out.

A row is known across segments by its position, `segment << 32 | local row`. A result counts as found when its exact
score reaches that of the k-th true neighbour, so a copy of a neighbour counts as the neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np

from transforms.index.exact import best_first, block_top_k, gains_to_scores, merge_top_k, no_results
from transforms.index.faiss_module import use_threads
from transforms.index.search import SegmentedIndex, positions_of
from transforms.index.vectors import as_vectors, check_metric

_Z95 = 1.959963984540054
TARGET_RECALL = 0.95


def segment_base(segment: int) -> int:
    """Position of a segment's first row."""
    return segment << 32


def nprobe_grid(nlist: int, most: int = 256) -> list[int]:
    """1, 2, 4, ... up to `most`, ending with `nlist` where that is smaller; [1] without lists."""
    limit = max(1, min(nlist, most))
    return sorted({*(1 << power for power in range(limit.bit_length()) if 1 << power <= limit), limit})


class ExactNeighbours:
    """The true neighbours of the held-out queries, gathered block by block and merged segment by segment.

    Keeps 2k of them. An index that prefers low positions among equal codes, as `SegmentedIndex` does, has by then been
    seen to return at least k rows of any run of copies that reaches further.
    """

    def __init__(self, queries: np.ndarray, k: int, metric: str = "ip"):
        """`queries` float32 [q, d]; q may be 0."""
        self.queries = as_vectors(queries, queries.shape[-1], "held-out queries")
        self.k = k
        self.metric = check_metric(metric)
        self._best = no_results(len(queries), 2 * k)

    def add(self, block: np.ndarray, base: int, *, threads: int | None = None) -> None:
        """Count in float32 [n, d] rows at positions base, base+1, ..."""
        if not len(block) or not len(self.queries):
            return
        block = as_vectors(block, self.queries.shape[1], "block")
        with use_threads(threads) as faiss:
            gains, rows = block_top_k(faiss, self.queries, block, 2 * self.k, self.metric)
        self._best = merge_top_k(self._best, (gains, np.where(rows >= 0, rows + base, -1)), 2 * self.k)

    def merge(self, other: ExactNeighbours) -> ExactNeighbours:
        """Both together; the rows of the two must be disjoint, the queries the same."""
        merged = ExactNeighbours(self.queries, self.k, self.metric)
        merged._best = merge_top_k(self._best, other._best, 2 * self.k)
        return merged

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores float32 and positions int64 [q, 2k], best first, ties by position, -1 for missing."""
        return gains_to_scores(self._best[0], self.metric), self._best[1]

    def to_bytes(self) -> bytes:
        """The neighbours, without the queries."""
        return _pack(gains=self._best[0], positions=self._best[1], k=np.array(self.k), metric=np.array(self.metric))

    @classmethod
    def from_bytes(cls, data: bytes, queries: np.ndarray) -> ExactNeighbours:
        """What `to_bytes` gave, for the same queries."""
        arrays = _unpack(data)
        exact = cls(queries, int(arrays["k"]), str(arrays["metric"]))
        exact._best = (arrays["gains"], arrays["positions"])
        return exact


class Candidates:
    """What the index found for the held-out queries at each nprobe of a grid; merges over segments as search does."""

    def __init__(self, nprobes: Sequence[int], gains: np.ndarray, positions: np.ndarray):
        """Gains float32 and positions int64 [len(nprobes), q, depth]."""
        self.nprobes = list(nprobes)
        self._gains = gains
        self._positions = positions

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
        """The top `depth` (k, or the number re-ranked) of an index whose first segment has the number `segment`."""
        found = index.sweep(queries, depth, nprobes, threads=threads)
        positions = np.stack([positions_of(result) for result in found])
        gains = np.stack([gains_to_scores(result.scores, index.metric) for result in found])
        return cls(nprobes, gains, np.where(positions >= 0, positions + segment_base(segment), -1))

    @property
    def depth(self) -> int:
        """Results kept per query."""
        return int(self._gains.shape[2])

    def merge(self, other: Candidates) -> Candidates:
        """Both together, for segments searched apart with the same grid and depth."""
        merged = [
            best_first(np.concatenate([a, b], axis=1), np.concatenate([i, j], axis=1), self.depth)
            for a, b, i, j in zip(self._gains, other._gains, self._positions, other._positions, strict=True)
        ]
        return Candidates(self.nprobes, *(np.stack(arrays) for arrays in zip(*merged, strict=True)))

    def positions(self, nprobe: int) -> np.ndarray:
        """Positions int64 [q, depth] found at one nprobe of the grid."""
        return self._positions[self.nprobes.index(nprobe)]

    def to_bytes(self) -> bytes:
        """All of it."""
        return _pack(nprobes=np.array(self.nprobes, np.int64), gains=self._gains, positions=self._positions)

    @classmethod
    def from_bytes(cls, data: bytes) -> Candidates:
        """What `to_bytes` gave."""
        arrays = _unpack(data)
        return cls([int(nprobe) for nprobe in arrays["nprobes"]], arrays["gains"], arrays["positions"])


def recall_at_k(exact: ExactNeighbours, found: np.ndarray) -> np.ndarray:
    """Recall of each query: the share of its k true neighbours (or of all rows, where there are fewer) that was found.

    `found` int64 [q, depth] positions; with depth > k an exact re-rank to k is meant. float64 [q]; nan without any row.
    """
    scores, positions = exact.result()
    gains = gains_to_scores(scores, exact.metric)
    near = (gains >= gains[:, exact.k - 1 : exact.k]) & (positions >= 0)
    hits = ((found[:, :, None] == positions[:, None, :]) & near[:, None, :]).any(axis=2).sum(axis=1)
    wanted = np.minimum(near.sum(axis=1), exact.k)
    with np.errstate(invalid="ignore"):
        return np.minimum(hits, wanted) / wanted


def interval(recalls: np.ndarray, k: int) -> tuple[float, float, float]:
    """Mean recall with a 95 % interval over queries: (value, low, high).

    Wilson's interval, which stays inside 0..1 and has width at 1.0 too, for as many trials as give the variance seen
    between queries: at least one a query (hits of one query are not independent), at most k a query.
    """
    n, mean = len(recalls), float(recalls.mean())
    spread = float(recalls.var(ddof=1)) / n if n > 1 else 0.0
    trials = min(max(mean * (1 - mean) / spread, n), n * k) if spread > 0 else n
    shrink = 1 + _Z95**2 / trials
    middle = (mean + _Z95**2 / (2 * trials)) / shrink
    half = _Z95 / shrink * float(np.sqrt(mean * (1 - mean) / trials + _Z95**2 / (4 * trials**2)))
    return mean, max(0.0, min(mean, middle - half)), min(1.0, max(mean, middle + half))


def measure_recall(
    exact: ExactNeighbours, candidates: Candidates, *, target: float = TARGET_RECALL
) -> dict[str, Any] | None:
    """Tune nprobe on every other query, report recall on the rest; JSON-able. None without queries or rows.

    Chosen is the smallest nprobe whose lower bound reaches `target`, or the largest of the grid where none does.
    `queries` counts those reported on. With fewer than two queries the same one tunes and reports.
    """
    recalls = {nprobe: recall_at_k(exact, candidates.positions(nprobe)) for nprobe in candidates.nprobes}
    first = recalls[candidates.nprobes[0]]
    if not first.size or np.isnan(first).any():
        return None
    nprobe = next((n for n, r in recalls.items() if interval(r[::2], exact.k)[1] >= target), candidates.nprobes[-1])
    reported = recalls[nprobe][1::2] if first.size > 1 else first
    value, low, high = interval(reported, exact.k)
    rerank = candidates.depth if candidates.depth > exact.k else 0
    return {
        "k": exact.k,
        "value": value,
        "low": low,
        "high": high,
        "queries": len(reported),
        "nprobe": nprobe,
        "rerank": rerank,
        "target": target,
    }


def _pack(**arrays: np.ndarray) -> bytes:
    file = BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _unpack(data: bytes) -> dict[str, np.ndarray]:
    with np.load(BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)
