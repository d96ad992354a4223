"""Mean and covariance of any number of rows in float64, from parts that merge in any order."""

from dataclasses import dataclass

import numpy as np

BATCH_ROWS = 4096


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean float64 [d], and sum of outer products of deviations from it float64 [d, d].

    Merging is associative and commutative up to rounding of about 1e-15 relative (Chan, Golub,
    LeVeque 1979).
    """

    n: int
    mean: np.ndarray
    m2: np.ndarray

    @classmethod
    def empty(cls, width: int) -> "Moments":
        """Return the moments of no rows."""
        return cls(0, np.zeros(width), np.zeros((width, width)))

    @classmethod
    def from_rows(cls, rows: np.ndarray) -> "Moments":
        """Return the moments of finite rows of any float type [n, d]; widens 4096 at a time."""
        total = cls.empty(rows.shape[1])
        for start in range(0, len(rows), BATCH_ROWS):
            batch = rows[start : start + BATCH_ROWS].astype(np.float64)
            mean = batch.mean(axis=0)
            batch -= mean
            total = total.merge(cls(len(batch), mean, batch.T @ batch))
        return total

    def merge(self, other: "Moments") -> "Moments":
        """Return the moments of the rows of both."""
        if not self.n:
            return other
        if not other.n:
            return self
        n = self.n + other.n
        apart = other.mean - self.mean
        m2 = np.outer(apart, apart)
        m2 *= self.n * other.n / n
        m2 += self.m2
        m2 += other.m2
        return Moments(n, self.mean + apart * (other.n / n), m2)

    @property
    def width(self) -> int:
        """Number of components of a row."""
        return len(self.mean)

    def covariance(self, sample: bool = False) -> np.ndarray:
        """Return the covariance float64 [d, d]: over n, or n - 1 for the `sample` covariance."""
        return self.m2 / self._choose_divisor(sample)

    def deviations(self, sample: bool = False) -> np.ndarray:
        """Return the standard deviation of each component, float64 [d]."""
        return np.sqrt(np.diag(self.m2) / self._choose_divisor(sample))

    def _choose_divisor(self, sample: bool) -> int:
        return self.n - 1 if sample else self.n
