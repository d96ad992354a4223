"""Results of several methods for the items of a task: scores, resamples and swaps.

Methods are rows `m`, items are columns `n`, in the same order for all. Results are by subset of the
task: `all`, and for tasks of several files `mean`, `wmean` and each file's name. Scores are not
multiplied by 100 here.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

BySubset = dict[str, np.ndarray]
ALL = "all"
MEAN = "mean"
WMEAN = "wmean"


class Evidence(Protocol):
    """The results of several methods for the items of a task."""

    @property
    def strata(self) -> tuple[int, ...]:
        """The lengths of the runs of items within which items are resampled."""

    def scores(self) -> BySubset:
        """Return the score [m] of each method, NaN if it is undefined."""

    def resampled(self, counts: np.ndarray) -> BySubset:
        """Return the scores [m, r] of resamples in which item `i` occurs `counts[r, i]` times."""

    def swapped(self, method: int, swaps: np.ndarray) -> BySubset:
        """Return the differences [r] of a method and the first one after swaps of items.

        The two exchange the items with `swaps[r, i]` 1, not 0.
        """


@dataclass(frozen=True, eq=False)
class Means:
    """Items with a value each, float64 [m, n]: a task's score is their mean."""

    values: np.ndarray

    @property
    def strata(self) -> tuple[int, ...]:
        return (self.values.shape[1],)

    def scores(self) -> BySubset:
        return {ALL: self.values.mean(axis=1)}

    def resampled(self, counts: np.ndarray) -> BySubset:
        return {ALL: self.values @ counts.T.astype(np.float64) / self.values.shape[1]}

    def swapped(self, method: int, swaps: np.ndarray) -> BySubset:
        apart = self.values[method] - self.values[0]
        return {ALL: (apart.sum() - 2 * (swaps @ apart)) / len(apart)}
