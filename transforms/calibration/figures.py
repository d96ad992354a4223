"""Figures of vectors before and after a calibration: spectra, cosines of pairs, their mean."""

import math
from dataclasses import dataclass

import numpy as np

from sentence_beam.transforms.calibration.quality import mean_cosine, unit

BINS = 100
PAIRED_ROWS = 2000


@dataclass(frozen=True)
class Shape:
    """The distribution of vectors.

    `spectrum`: deviations along the principal directions (singular values of the centred rows over
    the square root of their number), largest first. `cosines`: share of the pairs of rows in each
    of 100 bins from -1 to 1. `mean_cosine` over all pairs of different rows (Ethayarajh 2019), None
    below two rows.
    """

    spectrum: tuple[float, ...]
    cosines: tuple[float, ...]
    mean_cosine: float | None

    @classmethod
    def from_rows(cls, rows: np.ndarray, covariance: np.ndarray) -> "Shape":
        """Return the shape of a sample of rows [n, d]; `covariance` [d, d] is that of all rows."""
        mean = mean_cosine(rows)
        finite_mean = mean if math.isfinite(mean) else None
        return cls(spectrum(covariance), cosine_histogram(rows), finite_mean)


def spectrum(covariance: np.ndarray) -> tuple[float, ...]:
    """Return the square roots of the eigenvalues of a covariance, largest first."""
    values = np.linalg.eigvalsh(covariance)[::-1]
    return tuple(float(value) for value in np.sqrt(np.maximum(values, 0.0)))


def cosine_histogram(rows: np.ndarray) -> tuple[float, ...]:
    """Return the share of pairs with a cosine in each of 100 bins from -1 to 1.

    The pairs are those of the first 2000 rows.
    """
    rows = unit(rows[:PAIRED_ROWS])
    first, second = np.triu_indices(len(rows), 1)
    counts, _ = np.histogram(np.clip((rows @ rows.T)[first, second], -1, 1), BINS, (-1.0, 1.0))
    return tuple(float(count) / max(len(first), 1) for count in counts)
