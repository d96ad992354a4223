"""Recall against exact search, measured segment by segment and merged into one report.

The position of a row, `segment << 32 | local row`, identifies it across segments. A result counts
as found if its exact score reaches that of the k-th true neighbour, so a copy of a neighbour counts
as the neighbour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sentence_beam.transforms.index.array_bytes import pack, unpack
from sentence_beam.transforms.index.candidates import Candidates
from sentence_beam.transforms.index.exact import (
    find_block_top_k,
    gains_to_scores,
    merge_top_k,
    sort_best_first,
    start_results,
)
from sentence_beam.transforms.index.index_kinds import choose_depth
from sentence_beam.transforms.index.metric_vectors import as_vectors, check_metric

_Z95 = 1.959963984540054
TARGET_RECALL = 0.95
KEPT = 4  # true neighbours to keep, times k
MORE = 100  # true neighbours to keep beyond k at most
STEP = 1.1  # of the grid of nprobe, beyond its first ten
_UNSEEN = 0.5  # unmeasured queries that the low end of an interval adds
_ENOUGH = 20  # queries needed for a meaningful recall among some rows


def nprobe_grid(nlist: int, most: int = 256) -> list[int]:
    """Return the values of nprobe to try, each a tenth (or 1) above the last; [1] without lists.

    The last value is `most` or `nlist`, whichever is less.
    """
    limit = max(1, min(nlist, most))
    grid = [1]
    while grid[-1] < limit:
        grid.append(min(max(grid[-1] + 1, int(grid[-1] * STEP)), limit))
    return grid


class ExactNeighbours:
    """The true neighbours of the held-out queries, collected by block and merged by segment.

    Keeps 4k neighbours, or k + 100 if that is less, and for each query an upper bound of the gains
    of all other rows. The k nearest therefore stay known while rows are added and deleted, until
    too many of the kept rows are deleted (`settled`). If a run of copies is longer than the kept
    list, an index that prefers low positions among equal codes, as `SegmentedIndex` does, still
    returns k rows of the run.
    """

    def __init__(self, queries: np.ndarray, k: int, metric: str = "ip"):
        """`queries` are float32 [q, d]; q may be 0."""
        self.queries = as_vectors(queries, queries.shape[-1], "held-out queries")
        self.k = k
        self.metric = check_metric(metric)
        self._best = start_results(len(queries), min(KEPT * k, k + MORE))
        self._bound = np.full(len(queries), -np.inf, np.float32)

    def add(self, block: np.ndarray, positions: int | np.ndarray) -> None:
        """Add rows float32 [n, d].

        `positions` are ascending int64 [n], or the position of the first of consecutive rows.
        """
        if not len(block) or not len(self.queries):
            return
        block = as_vectors(block, self.queries.shape[1], "block")
        gains, rows = find_block_top_k(self.queries, block, self._best[0].shape[1], self.metric)
        best = positions[rows] if isinstance(positions, np.ndarray) else rows + positions
        self._add_best((gains, np.where(rows >= 0, best, -1)), self._bound)

    def merge(self, other: ExactNeighbours) -> ExactNeighbours:
        """Return the neighbours among the rows of both.

        The two must have disjoint rows and the same queries.
        """
        merged = ExactNeighbours.from_lists(self.queries, self.k, self.metric, *self.lists())
        merged._add_best(other._best, other._bound)
        return merged

    def _add_best(self, best: tuple[np.ndarray, np.ndarray], bound: np.ndarray) -> None:
        self._best = merge_top_k([self._best, best], self._best[0].shape[1])
        # A full list may have pushed rows out; those are no better than its last.
        self._bound = np.maximum(np.maximum(self._bound, bound), self._best[0][:, -1])

    def at(self, k: int) -> ExactNeighbours:
        """Return the same neighbours for a smaller k."""
        return ExactNeighbours.from_lists(self.queries, k, self.metric, *self.lists())

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """Return scores float32 and positions int64 [q, kept], best first, ties by position.

        Missing rows have position -1.
        """
        return gains_to_scores(self._best[0], self.metric), self._best[1]

    @property
    def settled(self) -> np.ndarray:
        """Whether a query's k nearest are known, bool [q]: no other row can be among them."""
        return self._best[0][:, self.k - 1] >= self._bound

    def lists(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return gains float32, positions int64 [q, kept], best first, and bounds float32 [q]."""
        return *self._best, self._bound

    @classmethod
    def from_lists(
        cls,
        queries: np.ndarray,
        k: int,
        metric: str,
        gains: np.ndarray,
        positions: np.ndarray,
        bound: np.ndarray,
    ) -> ExactNeighbours:
        """Return neighbours from unsorted lists; missing rows have position -1 and gain -inf."""
        exact = cls(queries, k, metric)
        exact._best = sort_best_first(gains, positions, gains.shape[1])
        exact._bound = bound.astype(np.float32)
        return exact

    def to_bytes(self) -> bytes:
        """Return the neighbours as bytes, without the queries."""
        gains, positions, bound = self.lists()
        arrays = {"gains": gains, "positions": positions, "bound": bound}
        return pack(**arrays, k=np.array(self.k), metric=np.array(self.metric))

    @classmethod
    def from_bytes(cls, data: bytes, queries: np.ndarray) -> ExactNeighbours:
        """Return the neighbours that `to_bytes` wrote, for the same queries."""
        arrays = unpack(data)
        lists = (arrays[name] for name in ("gains", "positions", "bound"))
        return cls.from_lists(queries, int(arrays["k"]), str(arrays["metric"]), *lists)


def recall_at_k(exact: ExactNeighbours, results: np.ndarray) -> np.ndarray:
    """Return the recall of each query, float64 [q]; nan without any row.

    Recall is the fraction found of its k true neighbours, or of all rows if there are fewer.
    `results` are positions int64 [q, depth]; depth > k assumes an exact rerank to k.
    """
    gains, positions, _ = exact.lists()
    near = (gains >= gains[:, exact.k - 1 : exact.k]) & (positions >= 0)
    hits = _count_hits(results, positions, near)
    wanted = np.minimum(near.sum(axis=1), exact.k)
    with np.errstate(invalid="ignore"):
        return np.minimum(hits, wanted) / wanted


def _count_hits(results: np.ndarray, positions: np.ndarray, is_wanted: np.ndarray) -> np.ndarray:
    """Return the number of each query's wanted positions in its results [q, depth]: int64 [q]."""
    counts = []
    for own, row, wanted in zip(results, positions, is_wanted, strict=True):
        counts.append(np.isin(row[wanted], own).sum())
    return np.array(counts, np.int64)


def interval(recalls: np.ndarray, k: int) -> tuple[float, float, float]:
    """Return mean recall with a 95 % interval over queries: (value, low, high).

    This is Wilson's interval, which stays inside 0..1 and has a width at 1.0 too. Its number of
    trials is chosen to give the variance between queries: at least one a query, because hits of one
    query are not independent, and at most k a query. The low end adds half a query with recall 0.5,
    because near 1 the few queries that lose much may be missing from the sample.
    """
    mean = float(recalls.mean())
    low, _ = _wilson(mean, _estimate_trials(recalls, k, _UNSEEN))
    _, high = _wilson(mean, _estimate_trials(recalls, k, 0.0))
    return mean, max(0.0, min(mean, low)), min(1.0, max(mean, high))


def _estimate_trials(recalls: np.ndarray, k: int, unseen: float) -> float:
    """Return the number of independent trials with the variance of the recalls.

    `unseen` queries with recall 0.5 are added.
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
    """Tune nprobe on some queries and return the recall of the others, as JSON values.

    `tuning` (bool [q]) selects the queries to tune on; None selects every other query. `depth` is
    the number of candidates that a search requests (None: the kept depth); more than k are ranked
    exactly. Chooses the smallest nprobe whose lower bound reaches `target`, or the largest of the
    grid if none does. `queries` counts the reported queries. If either half is empty, all queries
    tune and report. Queries with unsettled neighbours are ignored. Returns None without queries or
    rows.
    """
    tuned, reported = split_halves(exact, tuning)
    depth = depth or candidates.depth
    for nprobe in candidates.nprobes:
        recalls = recall_at_k(exact, candidates.positions(nprobe, depth))
        if not len(reported) or np.isnan(recalls[reported]).any():
            return None
        if interval(recalls[tuned], exact.k)[1] >= target:
            break
    measured = _summarise(recalls[reported], exact.k)
    rerank = depth if depth > exact.k else 0
    return {**measured, "nprobe": nprobe, "rerank": rerank, "target": target}


def tuned(
    exact: ExactNeighbours, candidates: Candidates, rerank: int, target: float, tuning: np.ndarray
) -> dict[str, Any] | None:
    """Return `measure_recall` with as many reranked candidates as the target needs.

    Their number doubles, up to eightfold, while the largest nprobe of the grid is needed.
    """
    depth = choose_depth(exact.k, rerank)
    measured = measure_recall(exact, candidates, target=target, tuning=tuning, depth=depth)
    largest = candidates.nprobes[-1]
    while measured and rerank and measured["nprobe"] == largest and 2 * depth <= candidates.depth:
        depth *= 2
        measured = measure_recall(exact, candidates, target=target, tuning=tuning, depth=depth)
    return measured


def split_halves(
    exact: ExactNeighbours, tuning: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the settled queries to tune nprobe on, and to report recall on."""
    settled = np.flatnonzero(exact.settled)
    is_tuning = np.arange(len(settled)) % 2 == 0 if tuning is None else tuning[settled]
    if is_tuning.all() or not is_tuning.any():
        return settled, settled
    return settled[is_tuning], settled[~is_tuning]


def measure_known_recall(
    exact: ExactNeighbours, results: np.ndarray, is_known: np.ndarray
) -> dict[str, Any] | None:
    """Return the recall of the known queries, bool [q]; None without such queries, or without rows.

    `results` are positions int64 [q, depth]. Queries with unsettled neighbours are ignored.
    """
    recalls = recall_at_k(exact, results)[exact.settled & is_known]
    if not len(recalls) or np.isnan(recalls).any():
        return None
    return _summarise(recalls, exact.k)


def measure_recall_among(
    exact: ExactNeighbours,
    results: np.ndarray,
    is_known: np.ndarray,
    among: Callable[[np.ndarray], np.ndarray],
) -> dict[str, Any] | None:
    """Return recall over some rows only: the fraction found of these among the true neighbours.

    `results` are positions int64 [q, depth], `is_known` bool [q] the queries that count. `among`
    selects the rows: it takes positions, int64, and returns bool of their shape. Queries with
    unsettled neighbours are ignored. Returns None if fewer than twenty queries have such a row
    among their k true neighbours.
    """
    gains, positions, _ = exact.lists()
    near = (gains >= gains[:, exact.k - 1 : exact.k]) & (positions >= 0)
    is_wanted = near & among(positions)
    hits = _count_hits(results, positions, is_wanted)
    queries = np.flatnonzero(is_wanted.any(axis=1) & exact.settled & is_known)
    if len(queries) < _ENOUGH:
        return None
    wanted = np.minimum(is_wanted[queries].sum(axis=1), exact.k)
    return _summarise(np.minimum(hits[queries], wanted) / wanted, exact.k)


def _summarise(recalls: np.ndarray, k: int) -> dict[str, Any]:
    value, low, high = interval(recalls, k)
    return {"k": k, "value": value, "low": low, "high": high, "queries": len(recalls)}
