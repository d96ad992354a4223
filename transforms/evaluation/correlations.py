"""Correlate the scores of pairs with gold scores, over all pairs of a task and by subset."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sentence_beam.transforms.calibration.quality import average_ranks
from sentence_beam.transforms.evaluation.evidence import ALL, MEAN, WMEAN, BySubset

# a centered sum of squares that is a smaller part of the whole one is only rounding
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Correlations:
    """Scores float64 [m, n] of pairs with gold scores [n], in consecutive subsets (name, length).

    `ranked`: Spearman's correlation, else Pearson's. `all` is one correlation over all pairs;
    `mean` and `wmean` average the subsets that are defined, `wmean` by their length. A swap of two
    methods exchanges their ranks.
    """

    values: np.ndarray
    gold: np.ndarray
    subsets: tuple[tuple[str, int], ...]
    ranked: bool = True

    @property
    def strata(self) -> tuple[int, ...]:
        return tuple(length for _, length in self.subsets)

    @cached_property
    def _parts(self) -> dict[str, slice]:
        ends = np.cumsum(self.strata)
        return {
            name: slice(end - length, end)
            for (name, length), end in zip(self.subsets, ends.tolist(), strict=True)
        }

    def scores(self) -> BySubset:
        return self._compute_by_subset(lambda part: correlation(*self._select_part(part)))

    def resampled(self, counts: np.ndarray) -> BySubset:
        return self._compute_by_subset(lambda part: self._resample_part(part, counts[:, part]))

    def swapped(self, method: int, swaps: np.ndarray) -> BySubset:
        def differences(part: slice) -> np.ndarray:
            values, gold = self._select_part(part)
            ours = values[method]
            first = values[0]
            gold = gold - gold.mean()
            exchanged = swaps[:, part] @ np.stack(
                [first - ours, first**2 - ours**2, (first - ours) * gold], axis=1
            )
            whole = np.array(
                [
                    [ours.sum(), (ours**2).sum(), ours @ gold],
                    [first.sum(), (first**2).sum(), first @ gold],
                ]
            )
            scale = gold @ gold
            n = len(gold)
            one = _correlation_from_sums(n, (whole[0] + exchanged).T, scale)
            other = _correlation_from_sums(n, (whole[1] - exchanged).T, scale)
            return (one - other)[None]

        return {name: values[0] for name, values in self._compute_by_subset(differences).items()}

    def _compute_by_subset(self, compute: Callable[[slice], np.ndarray]) -> BySubset:
        """Compute [rows, ...] for all pairs and for each subset, and add the subsets' means."""
        if len(self.subsets) == 1:
            return dict.fromkeys(
                [ALL, MEAN, WMEAN, self.subsets[0][0]], compute(slice(0, len(self.gold)))
            )
        each = {name: compute(part) for name, part in self._parts.items()}
        stacked = np.stack(list(each.values()))
        means = {
            MEAN: self._mean(stacked, np.ones(len(each))),
            WMEAN: self._mean(stacked, np.array(self.strata)),
        }
        return {ALL: compute(slice(0, len(self.gold))), **means, **each}

    def _mean(self, each: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Average the first axis, weighted, over the subsets that are defined for a method.

        It is NaN if none is.
        """
        every = self._defined
        defined = every if each.shape[1] == len(every) else np.all(every, axis=0, keepdims=True)
        weights = (weights[:, None] * defined.T)[(...,) + (None,) * (each.ndim - 2)]
        total = weights.sum(axis=0)
        summed = np.where(weights > 0, each, 0.0) * weights
        with np.errstate(invalid="ignore"):
            return summed.sum(axis=0) / total

    @cached_property
    def _defined(self) -> np.ndarray:
        """Whether each method [m] has a score in each subset [subsets], bool."""
        scored = [correlation(*self._select_part(part)) for part in self._parts.values()]
        return np.isfinite(np.stack(scored, axis=1))

    def _select_part(self, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """Return values [m, n] and gold scores [n] of some pairs, or their ranks if `ranked`."""
        values = self.values[:, part]
        gold = self.gold[part]
        if not self.ranked:
            return values, gold
        return np.stack([average_ranks(row) for row in values]), average_ranks(gold)

    def _resample_part(self, part: slice, counts: np.ndarray) -> np.ndarray:
        values = self.values[:, part]
        gold = self.gold[part]
        if self.ranked:
            gold_ranks = counted_ranks(gold, counts)
            weighted = counts * gold_ranks
            return np.stack(
                [
                    _counted_correlation(counted_ranks(row, counts), gold_ranks, weighted, counts)
                    for row in values
                ]
            )
        weights = counts.astype(np.float64)
        n = counts.sum(axis=1)
        gold = gold - gold.mean()
        gold_sum = weights @ gold
        gold_squares = weights @ gold**2
        scale = gold_squares - gold_sum**2 / n
        rows = []
        for row in values - values.mean(axis=1, keepdims=True):
            sums = weights @ np.stack([row, row**2, row * gold], axis=1)
            squares = sums[:, 1] - sums[:, 0] ** 2 / n
            squares[squares < ROUNDING * sums[:, 1]] = 0.0
            rows.append(_ratio(sums[:, 2] - sums[:, 0] * gold_sum / n, squares, scale, n))
        return np.stack(rows)


def correlation(values: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Return Pearson's correlation [m] of the rows of values [m, n] with gold [n].

    It is NaN if one of the two is constant.
    """
    vary = (np.ptp(values, axis=1) > 0) & (np.ptp(gold) > 0)
    values = values - values.mean(axis=1, keepdims=True)
    gold = gold - gold.mean()
    squares = np.einsum("mn,mn->m", values, values)
    return np.where(
        vary, _ratio(values @ gold, squares, np.float64(gold @ gold), len(gold)), np.nan
    )


def _correlation_from_sums(n: int, sums: np.ndarray, scale: float) -> np.ndarray:
    """Return correlations from the sums of x, x^2 and x times the centered gold, [3, r].

    `scale` is the gold's sum of squares.
    """
    return _ratio(sums[2], sums[1] - sums[0] ** 2 / n, np.float64(scale), n)


def _ratio(
    product: np.ndarray, one: np.ndarray, other: np.ndarray | np.float64, n: int | np.ndarray
) -> np.ndarray:
    """Return product / sqrt(one * other), NaN if a sum of squares is only rounding."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = product / np.sqrt(one * other)
    return np.where((one > 0) & (other > 0) & (np.asarray(n) > 1), np.clip(ratio, -1, 1), np.nan)


def counted_ranks(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the average ranks [r, n] of values [n] that occur `counts` [r, n] times.

    The mean rank is subtracted.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    up_to = np.cumsum(counts[:, order], axis=1, dtype=np.int32)[:, ends]
    before = np.concatenate([np.zeros((len(counts), 1), np.int32), up_to[:, :-1]], axis=1)
    middle = (before + up_to - up_to[:, -1:]) * 0.5
    group = np.empty(len(values), np.int64)
    group[order] = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=-1))
    return middle[:, group]


def _counted_correlation(
    values: np.ndarray, gold: np.ndarray, weighted_gold: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Return the correlation [r] of centered ranks [r, n] that occur `counts` times.

    `weighted_gold` is the gold's ranks times the counts.
    """
    product = np.einsum("rn,rn->r", values, weighted_gold)
    squares = np.einsum("rn,rn->r", values, values * counts)
    return _ratio(product, squares, np.einsum("rn,rn->r", gold, weighted_gold), counts.sum(axis=1))
