"""Correlations of pairs' scores with gold scores, over all pairs of a task and over its subsets."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from transforms.calibration.quality import average_ranks
from transforms.evaluation.evidence import ALL, MEAN, WMEAN, BySubset

# a centred sum of squares that is a smaller part of the whole one is nothing but rounding
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Correlations:
    """Scores float64 [m, n] of pairs whose gold scores are [n], in subsets that follow each other
    (name, length).

    `ranked`: Spearman's correlation, else Pearson's. `all` is one correlation over all pairs;
    `mean` and `wmean` average the subsets that are defined, the latter by their length. When
    methods are swapped, it is their ranks.
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
        return self._by_subset(lambda part: correlation(*self._in_place(part)))

    def resampled(self, counts: np.ndarray) -> BySubset:
        return self._by_subset(lambda part: self._of_counts(part, counts[:, part]))

    def swapped(self, method: int, swaps: np.ndarray) -> BySubset:
        def of(part: slice) -> np.ndarray:
            values, gold = self._in_place(part)
            ours, first, gold = values[method], values[0], gold - gold.mean()
            taken = swaps[:, part] @ np.stack(
                [first - ours, first**2 - ours**2, (first - ours) * gold], axis=1
            )
            whole = np.array(
                [
                    [ours.sum(), (ours**2).sum(), ours @ gold],
                    [first.sum(), (first**2).sum(), first @ gold],
                ]
            )
            scale, n = gold @ gold, len(gold)
            one, other = (
                _from_sums(n, sums.T, scale) for sums in (whole[0] + taken, whole[1] - taken)
            )
            return (one - other)[None]

        return {name: found[0] for name, found in self._by_subset(of).items()}

    def _by_subset(self, compute: Callable[[slice], np.ndarray]) -> BySubset:
        """What `compute` gives [rows, ...] for all pairs and for each subset, and the subsets'
        means.
        """
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
        """The weighted mean of the first axis over the subsets that are defined for a method; NaN
        for none of them.
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
        scored = [correlation(*self._in_place(part)) for part in self._parts.values()]
        return np.isfinite(np.stack(scored, axis=1))

    def _in_place(self, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """Values [m, n] and gold scores [n] of some pairs, as ranks where these are correlated."""
        values, gold = self.values[:, part], self.gold[part]
        if not self.ranked:
            return values, gold
        return np.stack([average_ranks(row) for row in values]), average_ranks(gold)

    def _of_counts(self, part: slice, counts: np.ndarray) -> np.ndarray:
        values, gold = self.values[:, part], self.gold[part]
        if self.ranked:
            gold_ranks = counted_ranks(gold, counts)
            weighted = counts * gold_ranks
            return np.stack(
                [
                    _counted_correlation(counted_ranks(row, counts), gold_ranks, weighted, counts)
                    for row in values
                ]
            )
        weights, n = counts.astype(np.float64), counts.sum(axis=1)
        gold = gold - gold.mean()
        gold_sum, gold_squares = weights @ gold, weights @ gold**2
        scale = gold_squares - gold_sum**2 / n
        rows = []
        for row in values - values.mean(axis=1, keepdims=True):
            sums = weights @ np.stack([row, row**2, row * gold], axis=1)
            squares = sums[:, 1] - sums[:, 0] ** 2 / n
            squares[squares < ROUNDING * sums[:, 1]] = 0.0
            rows.append(_ratio(sums[:, 2] - sums[:, 0] * gold_sum / n, squares, scale, n))
        return np.stack(rows)


def correlation(values: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Pearson's correlation [m] of the rows of values [m, n] with gold [n]; NaN where one is
    constant.
    """
    vary = (np.ptp(values, axis=1) > 0) & (np.ptp(gold) > 0)
    values, gold = values - values.mean(axis=1, keepdims=True), gold - gold.mean()
    squares = np.einsum("mn,mn->m", values, values)
    return np.where(
        vary, _ratio(values @ gold, squares, np.float64(gold @ gold), len(gold)), np.nan
    )


def _from_sums(n: int, sums: np.ndarray, scale: float) -> np.ndarray:
    """Correlations from sums of x, x^2 and x times the centred gold, [3, r]; `scale`: the gold's
    sum of squares.
    """
    return _ratio(sums[2], sums[1] - sums[0] ** 2 / n, np.float64(scale), n)


def _ratio(
    product: np.ndarray, one: np.ndarray, other: np.ndarray | np.float64, n: int | np.ndarray
) -> np.ndarray:
    """product / sqrt(one * other); NaN where one of the sums of squares is nothing but rounding."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found = product / np.sqrt(one * other)
    return np.where((one > 0) & (other > 0) & (np.asarray(n) > 1), np.clip(found, -1, 1), np.nan)


def counted_ranks(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The average ranks [r, n] of values [n] that occur `counts` [r, n] times, less the mean rank
    of all.
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
    """The correlation [r] of centred ranks [r, n] that occur `counts` times; `weighted_gold` is
    their product.
    """
    product = np.einsum("rn,rn->r", values, weighted_gold)
    squares = np.einsum("rn,rn->r", values, values * counts)
    return _ratio(product, squares, np.einsum("rn,rn->r", gold, weighted_gold), counts.sum(axis=1))
