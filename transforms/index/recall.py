"""Recall against exact search, measured in pieces: each segment gives its part, the parts merge,
one report comes out.

A row is known across segments by its position, `segment << 32 | local row`. A result counts as
found when its exact score reaches that of the k-th true neighbour, so a copy of a neighbour counts
as the neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import numpy as np

from transforms.index.choose import depth_for
from transforms.index.exact import best_first, block_top_k, gains_to_scores, merge_top_k, no_results
from transforms.index.faiss_module import use_threads
from transforms.index.search import SegmentedIndex
from transforms.index.vectors import as_vectors, check_metric

_Z95 = 1.959963984540054
TARGET_RECALL = 0.95
KEPT = 4  # times k, but at most MORE more: the true neighbours that are remembered
MORE = 100
STEP = 1.1  # of the grid of nprobe, beyond its first ten
_UNSEEN = 0.5  # queries that the low end of an interval counts beside those that were asked
_ENOUGH = 20  # queries below which a share of their neighbours says nothing


def segment_base(segment: int) -> int:
    """The position of a segment's first row."""
    return segment << 32


def nprobe_grid(nlist: int, most: int = 256) -> list[int]:
    """The values of nprobe to try, each a tenth (or 1) above the last, up to `most` or `nlist`; [1]
    without lists.
    """
    limit, grid = max(1, min(nlist, most)), [1]
    while grid[-1] < limit:
        grid.append(min(max(grid[-1] + 1, int(grid[-1] * STEP)), limit))
    return grid


class ExactNeighbours:
    """The true neighbours of the held-out queries, gathered block by block and merged segment by
    segment.

    Keeps 4k of them, or k + 100 where that is less, and for each query a bound that no row left out
    exceeds: so the k nearest stay known while rows come and go, until too many of those kept are
    gone (`settled`). An index that prefers low positions among equal codes, as `SegmentedIndex`
    does, returns k rows of any run of copies that reaches further than what is kept.
    """

    def __init__(self, queries: np.ndarray, k: int, metric: str = "ip"):
        """`queries` float32 [q, d]; q may be 0."""
        self.queries = as_vectors(queries, queries.shape[-1], "held-out queries")
        self.k = k
        self.metric = check_metric(metric)
        self._best = no_results(len(queries), min(KEPT * k, k + MORE))
        self._bound = np.full(len(queries), -np.inf, np.float32)

    def add(
        self, block: np.ndarray, positions: int | np.ndarray, *, threads: int | None = None
    ) -> None:
        """Add rows float32 [n, d]; `positions` are ascending int64 [n], or that of the first of
        consecutive rows.
        """
        if not len(block) or not len(self.queries):
            return
        block = as_vectors(block, self.queries.shape[1], "block")
        with use_threads(threads) as faiss:
            gains, rows = block_top_k(
                faiss, self.queries, block, self._best[0].shape[1], self.metric
            )
        known = positions[rows] if isinstance(positions, np.ndarray) else rows + positions
        self._take((gains, np.where(rows >= 0, known, -1)), self._bound)

    def merge(self, other: ExactNeighbours) -> ExactNeighbours:
        """The neighbours among the rows of both; the rows of the two must be disjoint, the queries
        the same.
        """
        merged = ExactNeighbours.of_lists(self.queries, self.k, self.metric, *self.lists())
        merged._take(other._best, other._bound)
        return merged

    def _take(self, found: tuple[np.ndarray, np.ndarray], bound: np.ndarray) -> None:
        self._best = merge_top_k(self._best, found, self._best[0].shape[1])
        # A full list may have pushed rows out; those are no better than its last.
        self._bound = np.maximum(np.maximum(self._bound, bound), self._best[0][:, -1])

    def at(self, k: int) -> ExactNeighbours:
        """The same neighbours, to tell of recall at another k, which is no larger."""
        return ExactNeighbours.of_lists(self.queries, k, self.metric, *self.lists())

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores float32 and positions int64 [q, kept], best first, ties by position, -1 for
        missing.
        """
        return gains_to_scores(self._best[0], self.metric), self._best[1]

    @property
    def settled(self) -> np.ndarray:
        """Whether a query's k nearest are known, bool [q]: no row left out can be among them."""
        return self._best[0][:, self.k - 1] >= self._bound

    def lists(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Gains float32 and positions int64 [q, kept], best first, and bounds float32 [q]: all but
        the queries.
        """
        return *self._best, self._bound

    @classmethod
    def of_lists(
        cls,
        queries: np.ndarray,
        k: int,
        metric: str,
        gains: np.ndarray,
        positions: np.ndarray,
        bound: np.ndarray,
    ) -> ExactNeighbours:
        """Neighbours from lists in any order in which rows may be missing (position -1, gain
        -inf).
        """
        exact = cls(queries, k, metric)
        exact._best, exact._bound = (
            best_first(gains, positions, gains.shape[1]),
            bound.astype(np.float32),
        )
        return exact

    def to_bytes(self) -> bytes:
        """The neighbours as bytes, without the queries."""
        gains, positions, bound = self.lists()
        arrays = {"gains": gains, "positions": positions, "bound": bound}
        return _pack(**arrays, k=np.array(self.k), metric=np.array(self.metric))

    @classmethod
    def from_bytes(cls, data: bytes, queries: np.ndarray) -> ExactNeighbours:
        """The neighbours that `to_bytes` gave, for the same queries."""
        arrays = _unpack(data)
        lists = (arrays[name] for name in ("gains", "positions", "bound"))
        return cls.of_lists(queries, int(arrays["k"]), str(arrays["metric"]), *lists)


class Candidates:
    """The results of an index for the held-out queries at each nprobe of a grid; they merge over
    segments.

    A row is kept once, with the place in the grid at which its list is first searched: a row that
    is among the best at some nprobe is among the best there already, as later lists only add
    others.
    """

    def __init__(
        self,
        nprobes: Sequence[int],
        depth: int,
        gains: np.ndarray,
        positions: np.ndarray,
        steps: np.ndarray,
    ):
        """Gains float32, positions int64 and places in the grid uint8 [q, any], best first;
        position -1 for none.
        """
        self.nprobes = list(nprobes)
        self.depth = depth
        self._gains, self._positions, self._steps = gains, positions, steps

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
        """The top `depth` (k, or the number scored again) of an index whose first segment has the
        number `segment`.
        """
        found = [
            tuple(np.empty((len(queries), 0), kind) for kind in (np.float32, np.int64, np.uint8))
        ]
        for step, (new, best) in enumerate(index.steps(queries, depth, nprobes, threads=threads)):
            gains, positions = new
            last, place = best[0][:, -1:], best[1][:, -1:]
            stays = (positions >= 0) & (
                (gains > last) | ((gains == last) & (positions <= place)) | (place < 0)
            )
            # the best come first, so what stays does too
            width = int(stays.sum(axis=1).max(initial=0))
            stays, gains, positions = stays[:, :width], gains[:, :width], positions[:, :width]
            base = segment_base(segment)
            found.append(
                (
                    np.where(stays, gains, -np.inf),
                    np.where(stays, positions + base, -1),
                    np.full(stays.shape, step),
                )
            )
        return cls(nprobes, depth, *_in_order(found))

    def merge(self, other: Candidates) -> Candidates:
        """The candidates of both, for segments searched apart with the same grid and depth."""
        parts = [(each._gains, each._positions, each._steps) for each in (self, other)]
        gains, positions, steps = _in_order(parts)
        for step in range(len(self.nprobes)):
            ahead = np.cumsum((steps <= step) & (positions >= 0), axis=1)
            late = (steps == step) & (ahead > self.depth)
            gains[late], positions[late] = -np.inf, -1
        return Candidates(self.nprobes, self.depth, *_in_order([(gains, positions, steps)]))

    def positions(self, nprobe: int, depth: int | None = None) -> np.ndarray:
        """Positions int64 [q, depth] found at one nprobe of the grid (None: all that are kept)."""
        depth = depth or self.depth
        there = (self._steps <= self.nprobes.index(nprobe)) & (self._positions >= 0)
        place = np.cumsum(there, axis=1) - 1
        query, column = np.nonzero(there & (place < depth))
        found = np.full((len(there), depth), -1)
        found[query, place[query, column]] = self._positions[query, column]
        return found

    def to_bytes(self) -> bytes:
        """The candidates and their grid as bytes."""
        grid = np.array([self.depth, *self.nprobes], np.int64)
        return _pack(grid=grid, gains=self._gains, positions=self._positions, steps=self._steps)

    @classmethod
    def from_bytes(cls, data: bytes) -> Candidates:
        """The candidates that `to_bytes` gave."""
        arrays = _unpack(data)
        depth, *nprobes = arrays["grid"].tolist()
        return cls(nprobes, depth, arrays["gains"], arrays["positions"], arrays["steps"])


def _in_order(parts: Sequence[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gains float32, positions int64 and places in the grid uint8 [q, any] of some parts, best
    first, ties by position.

    No wider than the query with most of them; what is missing comes last.
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


def recall_at_k(exact: ExactNeighbours, found: np.ndarray) -> np.ndarray:
    """Recall of each query: the share of its k true neighbours (or of all rows, where there are
    fewer) that was found.

    `found` int64 [q, depth] positions; with depth > k an exact re-rank to k is meant. float64 [q];
    nan without any row.
    """
    scores, positions = exact.result()
    gains = gains_to_scores(scores, exact.metric)
    near = (gains >= gains[:, exact.k - 1 : exact.k]) & (positions >= 0)
    hits = _hits(found, positions, near)
    wanted = np.minimum(near.sum(axis=1), exact.k)
    with np.errstate(invalid="ignore"):
        return np.minimum(hits, wanted) / wanted


def _hits(found: np.ndarray, positions: np.ndarray, meant: np.ndarray) -> np.ndarray:
    """How many of the positions [q, kept] that are meant are among those found [q, depth]: int64
    [q].
    """
    each = zip(found, positions, meant, strict=True)
    return np.array([np.isin(true[those], mine).sum() for mine, true, those in each], np.int64)


def interval(recalls: np.ndarray, k: int) -> tuple[float, float, float]:
    """Mean recall with a 95 % interval over queries: (value, low, high).

    Wilson's interval, which stays inside 0..1 and has width at 1.0 too, for as many trials as give
    the variance seen between queries: at least one a query (hits of one query are not independent),
    at most k a query. The low end counts half a query more that found half: near 1 the few queries
    that lose much may not be among those that were asked.
    """
    mean = float(recalls.mean())
    low, _ = _wilson(mean, _trials(recalls, k, _UNSEEN))
    _, high = _wilson(mean, _trials(recalls, k, 0.0))
    return mean, max(0.0, min(mean, low)), min(1.0, max(mean, high))


def _trials(recalls: np.ndarray, k: int, unseen: float) -> float:
    """How many independent trials have the variance of the recalls and of `unseen` queries with
    recall 0.5.
    """
    n = len(recalls)
    total = n + unseen
    mean = (recalls.sum() + unseen / 2) / total
    squares = ((recalls - mean) ** 2).sum() + unseen * (0.5 - mean) ** 2
    if n == 1 or recalls.min() == recalls.max():
        return n
    return float(min(max(mean * (1 - mean) * n * (total - 1) / squares, n), n * k))


def _wilson(mean: float, trials: float) -> tuple[float, float]:
    shrink = 1 + _Z95**2 / trials
    middle = (mean + _Z95**2 / (2 * trials)) / shrink
    half = _Z95 / shrink * float(np.sqrt(mean * (1 - mean) / trials + _Z95**2 / (4 * trials**2)))
    return middle - half, middle + half


def measure_recall(
    exact: ExactNeighbours,
    candidates: Candidates,
    *,
    target: float = TARGET_RECALL,
    tuning: np.ndarray | None = None,
    depth: int | None = None,
) -> dict[str, Any] | None:
    """Tune nprobe on some queries (bool [q] `tuning`, else every other one), report recall on the
    rest; JSON-able.

    `depth` is the number of candidates a search asks for (None: all that are kept); those beyond k
    are ranked exactly. Chosen is the smallest nprobe whose lower bound reaches `target`, or the
    largest of the grid where none does. `queries` counts those reported on; where either half is
    empty, all tune and report. Queries whose neighbours are not settled do not count. None without
    queries or rows.
    """
    tuned, reported = halves(exact, tuning)
    depth = depth or candidates.depth
    for nprobe in candidates.nprobes:
        recalls = recall_at_k(exact, candidates.positions(nprobe, depth))
        if not len(reported) or np.isnan(recalls[reported]).any():
            return None
        if interval(recalls[tuned], exact.k)[1] >= target:
            break
    measured = _measured(recalls[reported], exact.k)
    return {
        **measured,
        "nprobe": nprobe,
        "rerank": depth if depth > exact.k else 0,
        "target": target,
    }


def tuned(
    exact: ExactNeighbours, found: Candidates, rerank: int, target: float, tuning: np.ndarray
) -> dict[str, Any] | None:
    """What `measure_recall` finds, where candidates that are scored again are as many as the target
    needs.

    They are doubled, up to eight times as many, while all lists of the grid are needed.
    """
    depth = depth_for(exact.k, rerank)
    measured = measure_recall(exact, found, target=target, tuning=tuning, depth=depth)
    while (
        measured and rerank and measured["nprobe"] == found.nprobes[-1] and 2 * depth <= found.depth
    ):
        depth *= 2
        measured = measure_recall(exact, found, target=target, tuning=tuning, depth=depth)
    return measured


def halves(
    exact: ExactNeighbours, tuning: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the settled queries that tune nprobe, and of those that recall is reported on."""
    settled = np.flatnonzero(exact.settled)
    first = np.arange(len(settled)) % 2 == 0 if tuning is None else tuning[settled]
    tuned, reported = settled[first], settled[~first]
    return (tuned, reported) if len(tuned) and len(reported) else (settled, settled)


def recall_of(exact: ExactNeighbours, found: np.ndarray) -> dict[str, Any] | None:
    """Recall of the settled queries; `found` int64 [q, depth] positions. None without such queries,
    or rows.
    """
    recalls = recall_at_k(exact, found)[exact.settled]
    return None if not len(recalls) or np.isnan(recalls).any() else _measured(recalls, exact.k)


def recall_among(
    exact: ExactNeighbours, found: np.ndarray, among: Callable[[np.ndarray], np.ndarray]
) -> dict[str, Any] | None:
    """Recall over some rows only: the share of those among the k true neighbours of the settled
    queries that was found.

    `found` int64 [q, depth] positions; `among` chooses the rows: bool of the shape of the
    positions, int64, that it is given. None where fewer than twenty queries have one.
    """
    scores, positions = exact.result()
    gains = gains_to_scores(scores, exact.metric)
    meant = (gains >= gains[:, exact.k - 1 : exact.k]) & (positions >= 0) & among(positions)
    hits = _hits(found, positions, meant)
    asked = np.flatnonzero(meant.any(axis=1) & exact.settled)
    if len(asked) < _ENOUGH:
        return None
    wanted = np.minimum(meant[asked].sum(axis=1), exact.k)
    return _measured(np.minimum(hits[asked], wanted) / wanted, exact.k)


def _measured(recalls: np.ndarray, k: int) -> dict[str, Any]:
    value, low, high = interval(recalls, k)
    return {"k": k, "value": value, "low": low, "high": high, "queries": len(recalls)}


def _pack(**arrays: np.ndarray) -> bytes:
    file = BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _unpack(data: bytes) -> dict[str, np.ndarray]:
    with np.load(BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)
