"""The most similar pairs of rows in a collection: all pairs compared in blocks, or, where they are
too many, an index.

Similarity is the inner product, so cosine for vectors of length 1. Matrix products find candidates;
a pair's score is then computed by itself, so that it depends neither on blocks nor on threads.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transforms.base import progress
from transforms.index.choose import IndexPlan, choose_index
from transforms.index.search import SegmentedIndex
from transforms.index.segment import SegmentFile, SegmentWriter
from transforms.index.train import train
from transforms.index.vectors import as_vectors

EXACT_BELOW = 250_000  # rows; every pair of so many takes some minutes on two cores
BLOCK = 2048
NEIGHBOURS = 64  # that an index is asked for, for each row, at most
SAMPLE = 200  # rows on which the share of nearest neighbours that the index finds is measured
_SCORED = 1 << 14  # pairs whose scores are computed at once
_ROUGH = 0.05  # how far a score of the index may be from the true one


class TopPairs(NamedTuple):
    """Pairs of rows with their scores, first < second, best first, ties by rows."""

    scores: np.ndarray  # float32 [m]
    first: np.ndarray  # int64 [m]
    second: np.ndarray  # int64 [m]


def exact_pairs(
    vectors: np.ndarray, k: int, *, block: int = BLOCK, least: float = -np.inf
) -> TopPairs:
    """The k pairs of rows float32 [n, d] with the highest inner product, `least` or more; all where
    there are fewer.

    Memory beside the vectors: one block of scores, and the pairs. `vectors` may be mapped from a
    file.
    """
    best, n = _Best(vectors, k, least), len(vectors)
    starts = range(0, n, block)
    blocks = [(start, other) for start in starts for other in starts if other >= start]
    left = vectors[:0]
    for start, other in progress.over(blocks, "comparing", "blocks of pairs"):
        if other == start:
            left = np.ascontiguousarray(vectors[start : start + block])
        right = left if other == start else np.ascontiguousarray(vectors[other : other + block])
        scores = left @ right.T
        if other == start:
            scores[np.tri(len(left), dtype=bool)] = -np.inf
        rows, columns = _above(scores, best.low, _rounding(left, right), k)
        best.offer(rows + start, columns + other)
    return best.pairs()


def _above(
    scores: np.ndarray, low: float, rounding: float, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Places of the scores that may be `low` or above, but for those that k others exceed;
    `rounding` is in doubt.
    """
    flat = scores.reshape(-1)
    places = np.flatnonzero(flat > max(low - rounding, np.finfo(np.float32).min))
    if len(places) > k:
        found = flat[places]
        places = places[found >= np.partition(found, -k)[-k] - 2 * rounding]
    return np.divmod(places, scores.shape[1])


def _rounding(left: np.ndarray, right: np.ndarray) -> float:
    """How far a float32 matrix product can be from the true scores."""
    longest = [
        float(np.sqrt(np.einsum("nd,nd->n", part, part).max(initial=0))) for part in (left, right)
    ]
    return left.shape[1] * 2.0**-23 * longest[0] * longest[1]


class _Best:
    """The k best of the pairs that were offered, with `least` or more; `low` is the score that a
    pair has to reach.
    """

    def __init__(self, vectors: np.ndarray, k: int, least: float):
        self._vectors, self._k, self._least = vectors, k, least
        self._waiting: list[np.ndarray] = []
        self._best = np.empty((2, 0), np.int64), np.empty(0, np.float32)
        self.low = least

    def offer(self, first: np.ndarray, second: np.ndarray) -> None:
        """Take these pairs into account; a pair may be offered again."""
        if len(first):
            self._waiting.append(np.stack([first, second]))
            if (
                sum(pairs.shape[1] for pairs in self._waiting) > max(self._k, _SCORED)
                or self.low == -np.inf
            ):
                self._settle()

    def _settle(self) -> None:
        pairs = np.concatenate([self._best[0], *self._waiting], axis=1)
        self._waiting = []
        known = self._best[0].shape[1]
        scores = np.concatenate([self._best[1], self._scores(pairs[:, known:])])
        order = np.lexsort((pairs[1], pairs[0], -scores))
        pairs, scores = pairs[:, order], scores[order]
        again = np.zeros(len(scores), bool)
        again[1:] = (pairs[:, 1:] == pairs[:, :-1]).all(axis=0)
        again |= scores < self._least
        self._best = pairs[:, ~again][:, : self._k], scores[~again][: self._k]
        if len(self._best[1]) == self._k:
            self.low = float(self._best[1][-1])

    def _scores(self, pairs: np.ndarray) -> np.ndarray:
        found = np.empty(pairs.shape[1], np.float32)
        for start in range(0, len(found), _SCORED):
            first, second = (self._vectors[rows[start : start + _SCORED]] for rows in pairs)
            found[start : start + _SCORED] = np.einsum("nd,nd->n", first, second, dtype=np.float64)
        return found

    def pairs(self) -> TopPairs:
        """The best pairs of those offered so far."""
        if self._waiting:
            self._settle()
        return TopPairs(self._best[1], *self._best[0])


def indexed_pairs(
    vectors: np.ndarray, k: int, *, threads: int | None = None, least: float = -np.inf
) -> tuple[TopPairs, float]:
    """About the k pairs with the highest inner product, `least` or more, from rows' nearest
    neighbours by an index.

    Also returns the share of a sample of rows whose nearest neighbour the index found.
    """
    plan = choose_index(*vectors.shape)
    best, depth = _Best(vectors, k, least), min(k, NEIGHBOURS) + 1
    with tempfile.TemporaryDirectory() as folder:
        index = _built(plan, vectors, Path(folder) / "segment", threads)
        for start, block in progress.over(
            list(_blocks(vectors)), "searching the index", "blocks of rows"
        ):
            found = index.search(block, depth, nprobe=plan.nprobe or None, threads=threads)
            row = np.broadcast_to(np.arange(start, start + len(block))[:, None], found.row.shape)
            near = (found.row >= 0) & (found.row != row) & (found.scores >= best.low - _ROUGH)
            best.offer(np.minimum(row, found.row)[near], np.maximum(row, found.row)[near])
        return best.pairs(), _found_nearest(index, plan, vectors, threads)


def _built(plan: IndexPlan, vectors: np.ndarray, path: Path, threads: int | None) -> SegmentedIndex:
    chosen = np.sort(np.random.default_rng(0).choice(len(vectors), plan.train_rows, replace=False))
    writer = SegmentWriter(
        train(plan, np.ascontiguousarray(vectors[chosen]), threads=threads), threads=threads
    )
    for _, block in _blocks(vectors):
        writer.add(block)
    with path.open("wb") as file:
        writer.write(file)
    return SegmentedIndex.open([SegmentFile(path)], writer.trained)


def _blocks(vectors: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    for start in range(0, len(vectors), BLOCK):
        yield start, as_vectors(vectors[start : start + BLOCK], vectors.shape[1])


def _found_nearest(
    index: SegmentedIndex, plan: IndexPlan, vectors: np.ndarray, threads: int | None
) -> float:
    """Share of a sample of rows whose nearest other row, or one as near, is among those that the
    index returns.
    """
    rows = np.random.default_rng(1).choice(len(vectors), min(SAMPLE, len(vectors)), replace=False)
    queries = np.ascontiguousarray(vectors[rows])
    true = np.full(len(rows), -np.inf, np.float32)
    for start, block in _blocks(vectors):
        scores = queries @ block.T
        here = (rows >= start) & (rows < start + len(block))
        scores[here, rows[here] - start] = -np.inf
        true = np.maximum(true, scores.max(axis=1))
    found = index.search(queries, 3, nprobe=plan.nprobe or None, threads=threads)
    other = (found.row >= 0) & (found.row != rows[:, None])
    near = np.einsum("nd,nkd->nk", queries, vectors[np.maximum(found.row, 0)])
    return float((np.where(other, near, -np.inf).max(axis=1) >= true - 1e-4).mean())


def with_copies(pairs: TopPairs, vectors: np.ndarray, of: np.ndarray, k: int) -> TopPairs:
    """The k best pairs of rows, from those of distinct vectors float32 [n, d]; `of` int64 [rows] is
    each row's vector.

    Rows of one vector are pairs too, with its score with itself.
    """
    order, counts = np.argsort(of, kind="stable"), np.bincount(of, minlength=len(vectors))
    ends = np.cumsum(counts)
    several = np.flatnonzero(counts > 1)
    first, second = (np.concatenate([column, several]) for column in (pairs.first, pairs.second))
    same = np.einsum("nd,nd->n", vectors[several], vectors[several], dtype=np.float64).astype(
        np.float32
    )
    scores = np.concatenate([pairs.scores, same])
    places = _enough(scores, _sizes(counts, first, second), k)
    rows = [
        _row_pairs(order[ends[a] - counts[a] : ends[a]], order[ends[b] - counts[b] : ends[b]], k)
        for a, b in zip(first[places], second[places], strict=True)
    ]
    expanded = np.concatenate([np.empty((0, 2), np.int64), *rows])
    repeated = np.repeat(scores[places], [len(found) for found in rows])
    best = np.lexsort((expanded[:, 1], expanded[:, 0], -repeated))[:k]
    return TopPairs(repeated[best], expanded[best, 0], expanded[best, 1])


def _sizes(counts: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """How many pairs of rows each pair of vectors is."""
    same = counts[first] * (counts[first] - 1) // 2
    return np.where(first == second, same, counts[first] * counts[second])


def _enough(scores: np.ndarray, sizes: np.ndarray, k: int) -> np.ndarray:
    """Places of the best scores whose sizes sum to k, and of all that are as good as the last of
    them.
    """
    order = np.argsort(-scores, kind="stable")
    if not len(order):
        return order
    last = min(int(np.searchsorted(np.cumsum(sizes[order]), k)), len(order) - 1)
    return order[scores[order] >= scores[order[last]]]


def _row_pairs(a: np.ndarray, b: np.ndarray, k: int) -> np.ndarray:
    """The first k pairs (smaller, larger) of a row of `a` and one of `b`, which are the same or
    disjoint; [m, 2].
    """
    same = len(a) == len(b) and bool((a == b).all())
    found, room = [np.empty((0, 2), np.int64)], k
    in_a = set(a.tolist())
    for row in a if same else np.sort(np.concatenate([a, b])):
        others = b if same or int(row) in in_a else a
        larger = others[np.searchsorted(others, row, "right") :][:room]
        found.append(np.stack([np.full(len(larger), row), larger], axis=1))
        room -= len(larger)
        if not room:
            break
    return np.concatenate(found)
