"""Average precision and best F1 of finding pairs of one kind, such as duplicates, by scores."""

from dataclasses import dataclass

import numpy as np

from sentence_beam.transforms.calibration.quality import average_ranks
from sentence_beam.transforms.evaluation.bias import correct_bias
from sentence_beam.transforms.evaluation.evidence import ALL, BySubset


@dataclass(frozen=True, eq=False)
class Detections:
    """Scores float64 [m, n] of pairs that are (`labels` True) or are not to be found.

    `measure` ap: average precision, precision at each threshold times what it adds to recall; f1:
    the best F1 of any threshold. Both are too high on few pairs, and higher still on resamples, in
    which pairs occur twice; this is corrected. The F1 of a resample is taken at the best threshold
    for all pairs, since its own best one is too good. Pairs with equal scores are found together. A
    swap of two methods exchanges their ranks.
    """

    values: np.ndarray
    labels: np.ndarray
    measure: str

    @property
    def strata(self) -> tuple[int, ...]:
        return (len(self.labels),)

    def scores(self) -> BySubset:
        once = np.ones((1, len(self.labels)), np.int32)
        return {ALL: np.concatenate([self._measure(row, self.labels, once) for row in self.values])}

    def resampled(self, counts: np.ndarray) -> BySubset:
        resampled = np.stack([self._measure(row, self.labels, counts) for row in self.values])
        scores = self.scores()[ALL][:, None]
        if self.measure == "ap":
            return {ALL: correct_bias(resampled, resampled, scores, len(self.labels))}
        decisions = np.stack([row >= best_threshold(row, self.labels) for row in self.values])
        decided = Decisions(decisions, self.labels).resampled(counts)[ALL]
        return {ALL: correct_bias(decided, resampled, scores, len(self.labels))}

    def swapped(self, method: int, swaps: np.ndarray) -> BySubset:
        both = np.concatenate([average_ranks(self.values[method]), average_ranks(self.values[0])])
        labels = np.concatenate([self.labels, self.labels])
        swaps = swaps.astype(np.int32)
        one = self._measure(both, labels, np.concatenate([1 - swaps, swaps], axis=1))
        other = self._measure(both, labels, np.concatenate([swaps, 1 - swaps], axis=1))
        return {ALL: one - other}

    def _measure(self, values: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> np.ndarray:
        right, retrieved = _count_retrieved(values, labels, counts)
        if self.measure == "ap":
            return _average_precision(right, retrieved)
        total = right[:, -1:]
        return np.where(total[:, 0] > 0, _f1(right, retrieved, total).max(axis=1), np.nan)


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions of classifiers, bool [m, n], beside the right ones, `labels` bool [n].

    The score is F1.
    """

    decisions: np.ndarray
    labels: np.ndarray

    @property
    def strata(self) -> tuple[int, ...]:
        return (len(self.labels),)

    def scores(self) -> BySubset:
        once = np.ones((1, len(self.labels)), np.int32)
        return {ALL: self.resampled(once)[ALL][:, 0]}

    def resampled(self, counts: np.ndarray) -> BySubset:
        right = (self.decisions & self.labels).astype(np.int32) @ counts.T
        retrieved = self.decisions.astype(np.int32) @ counts.T
        return {ALL: _f1(right, retrieved, counts @ self.labels.astype(np.int32))}

    def swapped(self, method: int, swaps: np.ndarray) -> BySubset:
        ours, first = (row.astype(np.int32) for row in (self.decisions[method], self.decisions[0]))
        exchanged = swaps.astype(np.int32)
        one = (first - ours) * exchanged + ours
        other = (ours - first) * exchanged + first
        return {ALL: self._f1_of_decisions(one) - self._f1_of_decisions(other)}

    def _f1_of_decisions(self, decisions: np.ndarray) -> np.ndarray:
        """Return the F1 [r] of decisions int32 [r, n]."""
        right = decisions @ self.labels.astype(np.int32)
        return _f1(right, decisions.sum(axis=1), int(self.labels.sum()))


def _count_retrieved(
    values: np.ndarray, labels: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Count the pairs found rightly, and all pairs found, at each threshold.

    Returns two arrays float64 [r, scores], from the highest score on.
    """
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    counts = counts[:, order]
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    right = np.cumsum(counts * labels[order], axis=1, dtype=np.int64)[:, ends]
    retrieved = np.cumsum(counts, axis=1, dtype=np.int64)[:, ends]
    return right.astype(np.float64), retrieved.astype(np.float64)


def best_threshold(values: np.ndarray, labels: np.ndarray) -> float:
    """Return the lowest score of a duplicate for which F1 is best, the highest of equals."""
    right, retrieved = _count_retrieved(values, labels, np.ones((1, len(labels)), np.int32))
    best = np.argmax(_f1(right, retrieved, right[:, -1:]))
    return float(np.unique(values)[::-1][best])


def _average_precision(right: np.ndarray, retrieved: np.ndarray) -> np.ndarray:
    added = np.diff(right, prepend=0.0, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = np.where(retrieved > 0, right / retrieved, 0.0)
        return np.einsum("rn,rn->r", added, precision) / right[:, -1]


def _f1(right: np.ndarray, retrieved: np.ndarray, total: np.ndarray | int) -> np.ndarray:
    """Return 2 * precision * recall / (precision + recall), from counts."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return 2 * right / (retrieved + total)
