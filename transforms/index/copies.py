"""Pairs of rows, from pairs of the distinct vectors that rows share."""

from __future__ import annotations

import numpy as np

from transforms.index.near_pairs import TopPairs


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
