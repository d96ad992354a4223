"""Mean and covariance of any number of rows, from parts that merge: float64, whatever the order and
the split.
"""

from dataclasses import dataclass

import numpy as np

BATCH_ROWS = 4096


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean float64 [d], and sum of outer products of deviations from it float64 [d, d].

    Merging is associative and commutative up to rounding (Chan, Golub, LeVeque 1979; about 1e-15
    relative).
    """

    n: int
    mean: np.ndarray
    m2: np.ndarray

    @classmethod
    def empty(cls, width: int) -> "Moments":
        """The moments of no rows."""
        return cls(0, np.zeros(width), np.zeros((width, width)))

    @classmethod
    def of(cls, rows: np.ndarray) -> "Moments":
        """The moments of finite rows of any float type [n, d]; 4096 at a time are widened."""
        total = cls.empty(rows.shape[1])
        for start in range(0, len(rows), BATCH_ROWS):
            total = total.merge(cls._of_batch(rows[start : start + BATCH_ROWS].astype(np.float64)))
        return total

    @classmethod
    def _of_batch(cls, rows: np.ndarray) -> "Moments":
        mean = rows.mean(axis=0)
        rows -= mean
        return cls(len(rows), mean, rows.T @ rows)

    def merge(self, other: "Moments") -> "Moments":
        """The moments of the rows of both."""
        if not self.n or not other.n:
            return self if self.n else other
        n, apart = self.n + other.n, other.mean - self.mean
        m2 = np.outer(apart, apart)
        m2 *= self.n * other.n / n
        m2 += self.m2
        m2 += other.m2
        return Moments(n, self.mean + apart * (other.n / n), m2)

    @property
    def width(self) -> int:
        """The number of components of a row."""
        return len(self.mean)

    def covariance(self, sample: bool = False) -> np.ndarray:
        """The covariance float64 [d, d]; divided by n, or by n - 1 for the `sample` covariance."""
        return self.m2 / (self.n - 1 if sample else self.n)

    def deviations(self, sample: bool = False) -> np.ndarray:
        """The standard deviation of each component, float64 [d]."""
        return np.sqrt(np.diag(self.m2) / (self.n - 1 if sample else self.n))
