"""Average precision and best F1 of finding pairs of one kind, such as duplicates, by their
scores.
"""

from dataclasses import dataclass

import numpy as np

from transforms.calibration.quality import average_ranks
from transforms.evaluation.bias import corrected
from transforms.evaluation.evidence import ALL, BySubset


@dataclass(frozen=True, eq=False)
class Detections:
    """Scores float64 [m, n] of pairs that are (`labels` True) or are not what is looked for.

    `measure` ap: average precision, precision at each threshold times what it adds to recall; f1:
    the best F1 that any threshold gives. Both are too high on few pairs, and higher still on
    resamples, in which pairs occur twice; this is corrected. Resamples of F1 are decided by the
    best threshold for all pairs, since their own best one is too good. Pairs with equal scores are
    found together. When methods are swapped, it is their ranks.
    """

    values: np.ndarray
    labels: np.ndarray
    measure: str

    @property
    def strata(self) -> tuple[int, ...]:
        return (len(self.labels),)

    def scores(self) -> BySubset:
        once = np.ones((1, len(self.labels)), np.int32)
        return {
            ALL: np.concatenate([self._measured(row, self.labels, once) for row in self.values])
        }

    def resampled(self, counts: np.ndarray) -> BySubset:
        found = np.stack([self._measured(row, self.labels, counts) for row in self.values])
        scores = self.scores()[ALL][:, None]
        if self.measure == "ap":
            return {ALL: corrected(found, found, scores, len(self.labels))}
        return {ALL: corrected(self._decided(counts), found, scores, len(self.labels))}

    def _decided(self, counts: np.ndarray) -> np.ndarray:
        """The F1 [m, r] of resamples at the best threshold for all pairs."""
        found = np.stack([row >= best_threshold(row, self.labels) for row in self.values])
        right, total = (
            (found & self.labels).astype(np.int32) @ counts.T,
            counts @ self.labels.astype(np.int32),
        )
        return _f1(right, found.astype(np.int32) @ counts.T, total)

    def swapped(self, method: int, swaps: np.ndarray) -> BySubset:
        both = np.concatenate([average_ranks(self.values[method]), average_ranks(self.values[0])])
        labels, swaps = np.concatenate([self.labels, self.labels]), swaps.astype(np.int32)
        one, other = (
            self._measured(both, labels, np.concatenate(picked, axis=1))
            for picked in ((1 - swaps, swaps), (swaps, 1 - swaps))
        )
        return {ALL: one - other}

    def _measured(self, values: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> np.ndarray:
        compute = _average_precision if self.measure == "ap" else _best_f1
        return compute(*_found(values, labels, counts))


@dataclass(frozen=True, eq=False)
class Decisions:
    """What classifiers found among pairs: bool [m, n], of which `labels` bool [n] are right; the
    score is F1.
    """

    found: np.ndarray
    labels: np.ndarray

    @property
    def strata(self) -> tuple[int, ...]:
        return (len(self.labels),)

    def scores(self) -> BySubset:
        once = np.ones((1, len(self.labels)), np.int32)
        return {ALL: self._f1(self.found, once)[:, 0]}

    def resampled(self, counts: np.ndarray) -> BySubset:
        return {ALL: self._f1(self.found, counts)}

    def swapped(self, method: int, swaps: np.ndarray) -> BySubset:
        ours, first = (row.astype(np.int32) for row in (self.found[method], self.found[0]))
        taken = swaps.astype(np.int32)
        one, other = (first - ours) * taken + ours, (ours - first) * taken + first
        return {ALL: self._of_rows(one) - self._of_rows(other)}

    def _f1(self, found: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """F1 [m, r] of items that occur `counts` [r, n] times."""
        counts = counts.astype(np.int64)
        right = (found & self.labels).astype(np.int64) @ counts.T
        return _f1(right, found.astype(np.int64) @ counts.T, counts @ self.labels.astype(np.int64))

    def _of_rows(self, found: np.ndarray) -> np.ndarray:
        """F1 [r] of decisions int32 [r, n]."""
        return _f1(found @ self.labels.astype(np.int32), found.sum(axis=1), int(self.labels.sum()))


def _found(
    values: np.ndarray, labels: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How many pairs are found rightly, and found at all, at each score from the highest on:
    float64 [r, scores].
    """
    order = np.argsort(-values, kind="stable")
    ordered, counts = values[order], counts[:, order]
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    right, found = (
        np.cumsum(part, axis=1, dtype=np.int64)[:, ends]
        for part in (counts * labels[order], counts)
    )
    return right.astype(np.float64), found.astype(np.float64)


def best_threshold(values: np.ndarray, labels: np.ndarray) -> float:
    """The score [n] from which on pairs are taken for duplicates such that F1 is best; the highest
    of equals.
    """
    right, found = _found(values, labels, np.ones((1, len(labels)), np.int32))
    return float(np.unique(values)[::-1][np.argmax(_f1(right, found, right[:, -1:]))])


def _average_precision(right: np.ndarray, found: np.ndarray) -> np.ndarray:
    added = np.diff(right, prepend=0.0, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = np.where(found > 0, right / found, 0.0)
        return np.einsum("rn,rn->r", added, precision) / right[:, -1]


def _best_f1(right: np.ndarray, found: np.ndarray) -> np.ndarray:
    total = right[:, -1:]
    return np.where(total[:, 0] > 0, _f1(right, found, total).max(axis=1), np.nan)


def _f1(right: np.ndarray, found: np.ndarray, total: np.ndarray | int) -> np.ndarray:
    """2 * precision * recall / (precision + recall), from counts."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return 2 * right / (found + total)
