"""All pairs of rows whose cosine is not below a threshold, and the groups that they hold together.

Rows lie in lists, each at its nearest centroid, and a row is compared with all rows of the lists
near it: so a pair is found where either row has the other's list among its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from transforms.base import progress
from transforms.index.by_lists import coarse_search
from transforms.index.trained import TrainedIndex

BLOCK = 16_384
CELLS = 1 << 22  # scores held at once
ROUNDING = 1e-4  # a float32 matrix product is nearer than that to the true cosine
SAMPLE = 200  # rows on which the share of pairs that are found is measured


def lists_for(threshold: float) -> int:
    """How many lists a row looks into: the farther the rows of a pair are, the more lists may lie
    between them.
    """
    return 8 if threshold >= 0.9 else 16 if threshold >= 0.8 else 32


def lists_near(vectors: np.ndarray, trained: TrainedIndex, lists: int) -> np.ndarray:
    """The lists near each row float32 [n, d], nearest first, int32 [n, lists]; the first is the one
    that it lies in.
    """
    near = np.empty((len(vectors), min(lists, trained.index.nlist)), np.int32)
    for start in progress.over(range(0, len(vectors), BLOCK), "choosing lists", "blocks of rows"):
        block = np.ascontiguousarray(vectors[start : start + BLOCK])
        near[start : start + BLOCK] = coarse_search(trained, block, near.shape[1]).lists
    return near


def near_pairs(
    vectors: np.ndarray, near: np.ndarray, threshold: float
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of rows float32 [n, d] of length 1 whose cosine is `threshold` or more, as far as their
    lists meet.

    Both int64 [m], each pair once, block by block; `vectors` may be mapped from a file.
    """
    home = near[:, 0]
    members, visits = np.argsort(home, kind="stable"), np.argsort(near, axis=None, kind="stable")
    bounds = np.arange(int(home.max(initial=-1)) + 2)
    first, firsts = (
        np.searchsorted(home[members], bounds),
        np.searchsorted(near.reshape(-1)[visits], bounds),
    )
    for number in progress.over(bounds[:-1], "comparing", "lists"):
        rows, visitors = (
            members[first[number] : first[number + 1]],
            visits[firsts[number] : firsts[number + 1]],
        )
        step = max(1, CELLS // max(1, len(rows)))
        for part in (
            visitors[start : start + step] // near.shape[1]
            for start in range(0, len(visitors), step)
        ):
            if len(rows):
                yield _above(vectors, near, part, rows, threshold)


def _above(
    vectors: np.ndarray, near: np.ndarray, visitors: np.ndarray, rows: np.ndarray, threshold: float
) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of a visitor with a row of a list; none that the list of the visitor has too."""
    scores = vectors[visitors] @ vectors[rows].T
    one, other = np.nonzero(scores >= threshold - ROUNDING)
    first, second, scores = visitors[one], rows[other], scores[one, other]
    again = (near[second] == near[first, :1]).any(axis=1) & (first > second)
    good = (first != second) & ~again
    first, second, doubtful = (
        first[good],
        second[good],
        np.abs(scores[good] - threshold) <= ROUNDING,
    )
    good = np.ones(len(first), bool)
    good[doubtful] = cosines(vectors, first[doubtful], second[doubtful]) >= threshold
    return first[good], second[good]


def cosines(vectors: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The inner product of each pair of rows, float32 [m], whatever else is asked for."""
    found = np.empty(len(first), np.float32)
    for start in range(0, len(first), BLOCK):
        part = slice(start, start + BLOCK)
        found[part] = np.einsum(
            "nd,nd->n", vectors[first[part]], vectors[second[part]], dtype=np.float64
        )
    return found


def share_found(vectors: np.ndarray, near: np.ndarray, threshold: float) -> tuple[float, int]:
    """Of the pairs of some rows with any other, the share whose lists meet, and how many pairs
    these are; 1.0 of none.

    These rows are compared with all others.
    """
    rows = np.sort(
        np.random.default_rng(0).choice(len(vectors), min(SAMPLE, len(vectors)), replace=False)
    )
    asked, met, pairs = vectors[rows], 0, 0
    for start in progress.over(
        range(0, len(vectors), BLOCK), "measuring what is found", "blocks of rows"
    ):
        one, other = np.nonzero(asked @ vectors[start : start + BLOCK].T >= threshold)
        first, second = rows[one], other + start
        first, second = first[first != second], second[first != second]
        looks = (near[first] == near[second, :1]).any(axis=1) | (
            near[second] == near[first, :1]
        ).any(axis=1)
        met, pairs = met + int(looks.sum()), pairs + len(first)
    return (met / pairs if pairs else 1.0), pairs


class Components:
    """Groups of rows that pairs hold together: each row's is named by its first row."""

    def __init__(self, rows: int):
        self._parent = np.arange(rows)

    def join(self, first: np.ndarray, second: np.ndarray) -> None:
        """Put the groups of the rows of each pair together."""
        first, second = self._roots(first), self._roots(second)
        while len(first):
            apart = first != second
            first, second = first[apart], second[apart]
            np.minimum.at(self._parent, np.maximum(first, second), np.minimum(first, second))
            first, second = self._roots(first), self._roots(second)

    def _roots(self, rows: np.ndarray) -> np.ndarray:
        found = self._parent[rows]
        while len(found) and (found != (above := self._parent[found])).any():
            found = above
        self._parent[rows] = found
        return found

    @property
    def first(self) -> np.ndarray:
        """The first row of each row's group, int64 [n]."""
        return self._roots(np.arange(len(self._parent)))
