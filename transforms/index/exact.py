"""Exact neighbours by brute force; scores and ties do not depend on the cut into blocks.

A matrix product finds candidates fast, but its last bits depend on the shape of the block. So the
candidates are scored again pair by pair, and the search goes deeper wherever the product's rounding
could have hidden a better row or a tie. Inside this module, and wherever "gain" is written, larger
is better: the score for ip, minus the score for l2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from sentence_beam.transforms.index.faiss_module import load_faiss
from sentence_beam.transforms.index.metric_vectors import (
    as_vectors,
    check_metric,
    find_faiss_metric,
    squared_lengths,
)

Scan = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray, np.ndarray]]
_MARGIN = 8  # candidates beyond k that nearly always settle rounding
_DEEPER = 8
_CELLS = 1 << 22  # most (query, candidate) pairs held at once
_PRODUCT_ROWS = 1 << 16  # of a block that is compared by one product
_PRODUCT_THREADS = 2


def exact_search(
    blocks: Iterable[tuple[np.ndarray, int]], queries: np.ndarray, k: int, metric: str
) -> tuple[np.ndarray, np.ndarray]:
    """The true top k over blocks of vectors.

    `blocks` yields (float32 [n, d], position of its first row); `queries` float32 [q, d]. Returns
    scores float32 [q, k] and positions int64 [q, k], best first, ties by position, -1 if there
    are fewer than k rows. Memory: one block.
    """
    queries = as_vectors(queries, queries.shape[-1], "queries")
    best = start_results(len(queries), k)
    for block, base in blocks:
        block = as_vectors(block, queries.shape[1], "block")
        gains, rows = find_block_top_k(queries, block, k, metric)
        best = merge_top_k([best, (gains, np.where(rows >= 0, rows + base, -1))], k)
    return gains_to_scores(best[0], metric), best[1]


def start_results(n_queries: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The results of n queries before any row: gains -inf [q, k] and positions -1 [q, k]."""
    return np.full((n_queries, k), -np.inf, np.float32), np.full((n_queries, k), -1, np.int64)


def gains_to_scores(gains: np.ndarray, metric: str) -> np.ndarray:
    """Return scores in the metric's own direction from gains; also gains from scores."""
    return gains if check_metric(metric) == "ip" else -gains


def merge_top_k(
    parts: Sequence[tuple[np.ndarray, np.ndarray]], k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The best k of several lists of (gains, positions) [q, any]; ties by position."""
    gains, positions = zip(*parts, strict=True)
    return sort_best_first(np.concatenate(gains, axis=1), np.concatenate(positions, axis=1), k)


def sort_best_first(gains: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Gains and rows [q, any] sorted by (gain descending, row), cut to k."""
    if (gains[:, 1:] > gains[:, :-1]).any():
        order = np.argsort(-gains, axis=1)
        gains = np.take_along_axis(gains, order, axis=1)
        rows = np.take_along_axis(rows, order, axis=1)
    # Ties are rare, so only queries that have some among their first k+1 pay for a sort by two
    # keys.
    head = gains[:, : k + 1]
    tied = np.flatnonzero(((head[:, 1:] == head[:, :-1]) & np.isfinite(head[:, 1:])).any(axis=1))
    top = gains[:, :k].copy(), rows[:, :k].copy()
    if tied.size:
        order = np.lexsort((rows[tied], -gains[tied]), axis=-1)[:, :k]
        top[0][tied] = np.take_along_axis(gains[tied], order, axis=1)
        top[1][tied] = np.take_along_axis(rows[tied], order, axis=1)
    return top


def complete_top_k(
    scan: Scan, n_queries: int, k: int, n_rows: int, margin: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """The top k with every tie settled by row, from a `scan` that leaves ties and roundings open.

    `scan(queries' numbers [m], depth)` returns gains and rows [m, depth], and what no row left out
    exceeds [m]. Queries whose k-th gain is not above that are scanned again, deeper. Rows are -1
    if there are fewer than k.
    """
    gains, rows = start_results(n_queries, k)
    pending = np.arange(n_queries)
    depth = min(n_rows, k + margin)
    while pending.size and depth:
        size = max(1, _CELLS // depth)
        parts = [pending[start : start + size] for start in range(0, pending.size, size)]
        pending = np.concatenate(
            [_settle(scan, part, depth, n_rows, (gains, rows)) for part in parts]
        )
        depth = min(n_rows, depth * _DEEPER)
    return gains, rows


def _settle(
    scan: Scan, part: np.ndarray, depth: int, n_rows: int, out: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Scan these queries, write settled results to `out`, return the other queries."""
    gains, rows, bound = scan(part, depth)
    k = min(out[0].shape[1], gains.shape[1])
    gains, rows = sort_best_first(gains, rows, k)
    settled = (depth >= n_rows) | (bound < gains[:, -1]) | np.isneginf(bound)
    out[0][part[settled], :k] = gains[settled]
    out[1][part[settled], :k] = rows[settled]
    return part[~settled]


def find_block_top_k(
    queries: np.ndarray,
    block: np.ndarray,
    k: int,
    metric: str,
    *,
    margin: int = _MARGIN,
    longest: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Gains float32 and rows int64 [q, k] of the true top k in one block float32 [n, d].

    Queries and block must be checked already. `longest` is a bound on the lengths of the block's
    rows, if the caller knows one.
    """
    slack = rounding(queries, longest_row(block) if longest is None else longest, metric)

    def scan(which: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        part = queries[which] if len(which) < len(queries) else queries
        rows, least = _find_candidates(part, block, depth, metric)
        bound = least + slack[which]
        return gains_to_scores(score_pairs(part, block, rows, metric), metric), rows, bound

    return complete_top_k(scan, len(queries), k, len(block), margin)


def _find_candidates(
    queries: np.ndarray, block: np.ndarray, depth: int, metric: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best rows int64 [q, depth] by a matrix product, and the least gain of each query.

    For few threads numpy's product and selection take a half to a fifth of the time of faiss's
    search, which shares the selection among threads.
    """
    faiss = load_faiss()
    if len(block) > _PRODUCT_ROWS or faiss.omp_get_max_threads() > _PRODUCT_THREADS:
        rough, rows = faiss.knn(queries, block, depth, metric=find_faiss_metric(metric))
        return rows, gains_to_scores(rough[:, -1], metric)
    rows = np.empty((len(queries), depth), np.int64)
    least = np.empty(len(queries), np.float32)
    size = max(1, _CELLS // len(block))
    for start in range(0, len(queries), size):
        gains = _multiply(queries[start : start + size], block, metric)
        best = np.argpartition(gains, len(block) - depth, axis=1)[:, -depth:]
        rows[start : start + size] = best
        least[start : start + size] = np.take_along_axis(gains, best[:, :1], axis=1)[:, 0]
    return rows, least


def _multiply(queries: np.ndarray, block: np.ndarray, metric: str) -> np.ndarray:
    """Return the gain of each query with each row by a matrix product, float32 [q, n]."""
    gains = queries @ block.T
    if metric != "ip":
        gains *= 2
        gains -= squared_lengths(queries)[:, None]
        gains -= squared_lengths(block)
    return gains


def longest_row(block: np.ndarray) -> float:
    """The length of the longest row of float32 [n, d]; 0 without rows."""
    return float(np.sqrt(squared_lengths(block).max(initial=0)))


def rounding(queries: np.ndarray, longest: float, metric: str) -> np.ndarray:
    """Return the largest error of a float32 matrix product for each query: 2 d u |q| |x|."""
    lengths = np.sqrt(squared_lengths(queries))
    scale = lengths * longest if metric == "ip" else (lengths + longest) ** 2
    return (queries.shape[1] * 2.0**-23 * scale).astype(np.float32)


def score_pairs(
    queries: np.ndarray, block: np.ndarray, rows: np.ndarray, metric: str
) -> np.ndarray:
    """Return the score of query i with each of block's rows[i], float32 [q, m].

    A row of -1 gets the worst score.
    """
    scores = np.empty(rows.shape, np.float32)
    rows = np.ascontiguousarray(rows, dtype=np.int64)
    faiss = load_faiss()
    function = faiss.fvec_inner_products_by_idx if metric == "ip" else faiss.fvec_L2sqr_by_idx
    pointers = (faiss.swig_ptr(array) for array in (scores, queries, block, rows))
    function(*pointers, queries.shape[1], *rows.shape)
    worst = np.float32(-np.inf if metric == "ip" else np.inf)
    return np.where(rows >= 0, scores, worst)
