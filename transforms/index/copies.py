"""The best pairs of rows, from the best pairs of the distinct vectors that rows share."""

from __future__ import annotations

import numpy as np

from sentence_beam.transforms.index.near_pairs import TopPairs


def add_copies(pairs: TopPairs, vectors: np.ndarray, of: np.ndarray, k: int) -> TopPairs:
    """The k best pairs of rows, from those of distinct vectors float32 [n, d].

    `of` int64 [rows] has each row's vector. Rows of the same vector are pairs too; their score is
    the vector's with itself.
    """
    order = np.argsort(of, kind="stable")
    counts = np.bincount(of, minlength=len(vectors))
    ends = np.cumsum(counts)
    several = np.flatnonzero(counts > 1)
    first, second = (np.concatenate([column, several]) for column in (pairs.first, pairs.second))
    same = np.einsum("nd,nd->n", vectors[several], vectors[several], dtype=np.float64).astype(
        np.float32
    )
    scores = np.concatenate([pairs.scores, same])
    places = _select_best(scores, _count_row_pairs(counts, first, second), k)
    rows = [
        _pair_rows(order[ends[a] - counts[a] : ends[a]], order[ends[b] - counts[b] : ends[b]], k)
        for a, b in zip(first[places], second[places], strict=True)
    ]
    expanded = np.concatenate([np.empty((0, 2), np.int64), *rows])
    repeated = np.repeat(scores[places], [len(copies) for copies in rows])
    best = np.lexsort((expanded[:, 1], expanded[:, 0], -repeated))[:k]
    return TopPairs(repeated[best], expanded[best, 0], expanded[best, 1])


def _count_row_pairs(counts: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The number of pairs of rows for each pair of vectors."""
    same = counts[first] * (counts[first] - 1) // 2
    return np.where(first == second, same, counts[first] * counts[second])


def _select_best(scores: np.ndarray, sizes: np.ndarray, k: int) -> np.ndarray:
    """Places of the best scores whose sizes sum to k, and of the scores equal to the last."""
    order = np.argsort(-scores, kind="stable")
    if not len(order):
        return order
    last = min(int(np.searchsorted(np.cumsum(sizes[order]), k)), len(order) - 1)
    return order[scores[order] >= scores[order[last]]]


def _pair_rows(a: np.ndarray, b: np.ndarray, k: int) -> np.ndarray:
    """The first k pairs (smaller, larger) of a row of `a` and one of `b`, int64 [m, 2].

    `a` and `b` are equal or disjoint.
    """
    rows = np.union1d(a, b)
    in_a = np.isin(rows, a)
    pairs = [np.empty((0, 2), np.int64)]
    room = k
    for row, is_of_a in zip(rows, in_a, strict=True):
        others = b if is_of_a else a
        larger = others[np.searchsorted(others, row, "right") :][:room]
        pairs.append(np.stack([np.full(len(larger), row), larger], axis=1))
        room -= len(larger)
        if not room:
            break
    return np.concatenate(pairs)
