"""Pairs of rows with a high cosine: all above a threshold, or the k highest; and their groups.

Rows lie in lists, each at its nearest centroid. A row is compared with all rows of the lists near
it, so a pair is found if either row has the other's list among its own. In one list every pair is
compared. Matrix products find candidates. A score in doubt is then computed for its pair alone, so
that it depends neither on blocks nor on threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.index.by_lists import search_coarse
from sentence_beam.transforms.index.trained import TrainedIndex

BLOCK = 16_384
SIDE = 2048  # rows on each side of a matrix product, more if the other side has fewer
ROUNDING = 1e-4  # a float32 matrix product is nearer to the true cosine
SAMPLE = 200  # rows with which the share of found pairs is measured
SCORED = 1 << 14  # pairs of the k highest whose scores are computed at once

Pairs = tuple[np.ndarray, np.ndarray]


class TopPairs(NamedTuple):
    """Pairs of rows with their scores, first < second, best first, ties by rows."""

    scores: np.ndarray  # float32 [m]
    first: np.ndarray  # int64 [m]
    second: np.ndarray  # int64 [m]


def choose_list_count(threshold: float) -> int:
    """The number of lists near a row with which it is compared.

    The farther apart the rows of a pair are, the more lists may lie between them.
    """
    if threshold >= 0.9:
        return 8
    if threshold >= 0.8:
        return 16
    return 32


def put_in_one_list(rows: int) -> np.ndarray:
    """The list near each row, int32 [n, 1], if all rows are in the same one."""
    return np.zeros((rows, 1), np.int32)


def find_lists_near(vectors: np.ndarray, trained: TrainedIndex, lists: int) -> np.ndarray:
    """The lists near each row float32 [n, d], nearest first, int32 [n, lists].

    The row lies in the first of them.
    """
    near = np.empty((len(vectors), min(lists, trained.index.nlist)), np.int32)
    for start in progress.count_over(
        range(0, len(vectors), BLOCK), "choosing lists", "blocks of rows"
    ):
        block = np.ascontiguousarray(vectors[start : start + BLOCK])
        near[start : start + BLOCK] = search_coarse(trained, block, near.shape[1]).lists
    return near


def find_near_pairs(
    vectors: np.ndarray, near: np.ndarray, threshold: float, *, side: int = SIDE
) -> Iterator[Pairs]:
    """Pairs of rows float32 [n, d] of length 1 with a cosine of at least `threshold`.

    `near` int32 [n, lists] are the lists near each row; pairs are found if their lists meet. A row
    whose lists are all -1 is in no pair. Yields the rows int64 [m] of pairs, each pair once, block
    by block. `vectors` may be mapped from a file.
    """
    for first, second, scores in _compare(vectors, _Lists(near, side), lambda: threshold):
        doubtful = np.abs(scores - threshold) <= ROUNDING
        good = np.ones(len(first), bool)
        good[doubtful] = cosines(vectors, first[doubtful], second[doubtful]) >= threshold
        yield first[good], second[good]


def find_top_pairs(
    vectors: np.ndarray, near: np.ndarray, k: int, *, least: float = -np.inf, side: int = SIDE
) -> TopPairs:
    """The k pairs of rows with the highest cosine, `least` or more; all if there are fewer.

    For rows and their lists see `find_near_pairs`.
    """
    best = _Best(vectors, k, least)
    for first, second, _ in _compare(vectors, _Lists(near, side), lambda: best.low, k):
        best.offer(np.minimum(first, second), np.maximum(first, second))
    return best.pairs()


class _Lists:
    """The rows of each list: `members` lie in it, visitors lie in other lists near it."""

    def __init__(self, near: np.ndarray, side: int):
        home = near[:, 0]
        others = near[:, 1:]
        bounds = np.arange(int(home.max(initial=-1)) + 2)
        visits = np.argsort(others, axis=None, kind="stable")
        self._members = np.argsort(home, kind="stable")
        self._first_member = np.searchsorted(home[self._members], bounds)
        self._visitors = visits // max(1, others.shape[1])
        self._first_visitor = np.searchsorted(others.reshape(-1)[visits], bounds)
        self.count = len(bounds) - 1
        self.near = near
        self.side = side

    def members(self, number: int) -> np.ndarray:
        """The rows that lie in a list, in their order."""
        return self._members[self._first_member[number] : self._first_member[number + 1]]

    def looking(self, number: int) -> np.ndarray:
        """The rows that are compared with a list's members: the members first."""
        visitors = self._visitors[self._first_visitor[number] : self._first_visitor[number + 1]]
        return np.concatenate([self.members(number), visitors])

    def blocks(self) -> list[tuple[int, int, int]]:
        """The blocks of a comparison: list, first of the looking rows, first of the members.

        A block of members with earlier members is left out: its pairs are those of the mirrored
        block.
        """
        pairs = []
        for number in range(self.count):
            members = int(self._first_member[number + 1] - self._first_member[number])
            visitors = int(self._first_visitor[number + 1] - self._first_visitor[number])
            step = self.step(members)
            for start in range(0, members + visitors, step):
                lowest = 0
                if min(start + step, members + visitors) <= members and members > self.side:
                    lowest = start
                pairs += [(number, start, other) for other in range(lowest, members, self.side)]
        return pairs

    def step(self, members: int) -> int:
        """The number of rows to compare at once with a list's members, more if these are few."""
        return max(self.side, min(BLOCK, self.side**2 // max(1, members)))


def _compare(
    vectors: np.ndarray, lists: _Lists, floor: Callable[[], float], most: int | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows int64 [m] of the pairs that may reach `floor`, and their rough scores float32 [m].

    Each pair is yielded once. `most` limits a block to its best pairs, and to those that rounding
    may put among them.
    """
    near = lists.near
    here: tuple[int, int] | None = None
    members = np.empty(0, np.int64)
    looking = members
    left_rows = members
    left = np.empty((0, 0), np.float32)
    for number, start, other in progress.count_over(lists.blocks(), "comparing", "blocks of pairs"):
        if here is None or here[0] != number:
            members = lists.members(number)
            looking = lists.looking(number)
        if here != (number, start):
            left_rows = looking[start : start + lists.step(len(members))]
            left = _take(vectors, left_rows)
            here = (number, start)
        right_rows = members[other : other + lists.side]
        scores = left @ _take(vectors, right_rows).T
        own = max(0, min(len(left), len(members) - start))
        if start + own > other:
            places = np.arange(start, start + own)[:, None]
            scores[:own][places >= np.arange(other, other + len(right_rows))] = -np.inf
        one, two = _select_above(scores, floor(), most)
        first = left_rows[one]
        second = right_rows[two]
        # If both rows have the other's list among theirs, the pair is met twice.
        again = (one >= own) & (first > second) & (near[second] == near[first, :1]).any(axis=1)
        once = ~again
        yield first[once], second[once], scores[one[once], two[once]]


def _take(vectors: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows of vectors; a view if they are consecutive, as the members of a list are."""
    start = int(rows[0])
    stop = int(rows[-1])
    if stop - start == len(rows) - 1 and (np.diff(rows) == 1).all():
        return vectors[start : stop + 1]
    return vectors[rows]


def _select_above(scores: np.ndarray, low: float, most: int | None) -> Pairs:
    """Places of the scores that may reach `low` and be among the `most` best."""
    flat = scores.reshape(-1)
    places = np.flatnonzero(flat >= max(low - ROUNDING, np.finfo(np.float32).min))
    if most is not None and len(places) > most:
        candidates = flat[places]
        places = places[candidates >= np.partition(candidates, -most)[-most] - 2 * ROUNDING]
    return np.divmod(places, scores.shape[1])


class _Best:
    """The k best pairs so far with `least` or more; a further pair has to reach `low`."""

    def __init__(self, vectors: np.ndarray, k: int, least: float):
        self._vectors = vectors
        self._k = k
        self._least = least
        self._waiting: list[np.ndarray] = []
        self._pairs = np.empty((2, 0), np.int64)
        self._scores = np.empty(0, np.float32)
        self.low = least

    def offer(self, first: np.ndarray, second: np.ndarray) -> None:
        """Add pairs, none of which was added before."""
        if not len(first):
            return
        self._waiting.append(np.stack([first, second]))
        waiting = sum(pairs.shape[1] for pairs in self._waiting)
        if waiting > max(self._k, SCORED) or self.low == -np.inf:
            self._settle()

    def _settle(self) -> None:
        new = np.concatenate(self._waiting, axis=1)
        self._waiting = []
        pairs = np.concatenate([self._pairs, new], axis=1)
        scores = np.concatenate([self._scores, cosines(self._vectors, *new)])
        order = np.lexsort((pairs[1], pairs[0], -scores))
        order = order[scores[order] >= self._least][: self._k]
        self._pairs = pairs[:, order]
        self._scores = scores[order]
        if len(order) == self._k:
            self.low = float(self._scores[-1])

    def pairs(self) -> TopPairs:
        """The best pairs so far."""
        if self._waiting:
            self._settle()
        return TopPairs(self._scores, *self._pairs)


def cosines(vectors: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The inner product of each pair of rows, float32 [m], the same in any batch."""
    products = np.empty(len(first), np.float32)
    for start in range(0, len(first), BLOCK):
        part = slice(start, start + BLOCK)
        products[part] = np.einsum(
            "nd,nd->n", vectors[first[part]], vectors[second[part]], dtype=np.float64
        )
    return products


def measure_share_found(
    vectors: np.ndarray, near: np.ndarray, threshold: float
) -> tuple[float, int]:
    """The share of some rows' pairs whose lists meet, and the number of these pairs.

    SAMPLE rows are compared with all others. The share is 1.0 if they have no pair.
    """
    count = min(SAMPLE, len(vectors))
    rows = np.sort(np.random.default_rng(0).choice(len(vectors), count, replace=False))
    sample = vectors[rows]
    met = 0
    pairs = 0
    for start in progress.count_over(
        range(0, len(vectors), BLOCK), "measuring what is found", "blocks of rows"
    ):
        one, other = np.nonzero(sample @ vectors[start : start + BLOCK].T >= threshold)
        differ = rows[one] != other + start
        first = rows[one[differ]]
        second = other[differ] + start
        meet = (near[first] == near[second, :1]).any(axis=1)
        meet |= (near[second] == near[first, :1]).any(axis=1)
        met += int(meet.sum())
        pairs += len(first)
    return (met / pairs, pairs) if pairs else (1.0, 0)


def measure_share_of_nearest(vectors: np.ndarray, near: np.ndarray) -> float:
    """The share of some rows whose nearest other row, or one as near, is met in their lists.

    SAMPLE rows are compared with all others; rows in no list are left out. The share is 1.0 without
    rows.
    """
    listed = np.flatnonzero(near[:, 0] >= 0)
    rows = np.random.default_rng(1).choice(listed, min(SAMPLE, len(listed)), replace=False)
    sample = vectors[rows]
    best = np.full(len(rows), -np.inf, np.float32)
    met = np.full(len(rows), -np.inf, np.float32)
    for start in progress.count_over(
        range(0, len(vectors), BLOCK), "measuring what is found", "blocks of rows"
    ):
        scores = sample @ vectors[start : start + BLOCK].T
        here = (rows >= start) & (rows < start + scores.shape[1])
        scores[here, rows[here] - start] = -np.inf
        others = near[start : start + BLOCK]
        scores[:, others[:, 0] < 0] = -np.inf
        best = np.maximum(best, scores.max(axis=1))
        meet = (near[rows][:, :, None] == others[:, 0]).any(axis=1)
        for column in others.T:
            meet |= near[rows, :1] == column
        met = np.maximum(met, np.where(meet, scores, -np.inf).max(axis=1))
    return float((met >= best - ROUNDING).mean()) if len(rows) else 1.0


class Components:
    """Groups of rows that are connected by pairs; a group is named by its first row."""

    def __init__(self, rows: int):
        self._parent = np.arange(rows)

    def join(self, first: np.ndarray, second: np.ndarray) -> None:
        """Join the groups of the two rows of each pair."""
        first = self._find_roots(first)
        second = self._find_roots(second)
        while len(first):
            apart = first != second
            first = first[apart]
            second = second[apart]
            np.minimum.at(self._parent, np.maximum(first, second), np.minimum(first, second))
            first = self._find_roots(first)
            second = self._find_roots(second)

    def _find_roots(self, rows: np.ndarray) -> np.ndarray:
        roots = self._parent[rows]
        while len(roots) and (roots != (above := self._parent[roots])).any():
            roots = above
        self._parent[rows] = roots
        return roots

    @property
    def first(self) -> np.ndarray:
        """The first row of each row's group, int64 [n]."""
        return self._find_roots(np.arange(len(self._parent)))
