"""Figures of vectors alone: cosines of pairs, uniformity, spectrum."""

import math
from collections.abc import Collection

import numpy as np

from transforms.calibration.figures import BINS, PAIRED_ROWS, cosine_histogram, spectrum
from transforms.calibration.moments import Moments
from transforms.calibration.quality import mean_cosine, uniformity
from transforms.evaluation.diagnostics.figures import Row, figure


def of_vectors(pooler: str, rows: np.ndarray, asked: Collection[str]) -> list[Row]:
    """The figures of a pooler's vectors float32 [n, d], not normalised, that are asked for."""
    n, found = len(rows), []
    if "cosines" in asked:
        found.append(figure("mean-cosine", mean_cosine(rows), n, pooler))
        pairs = min(n, PAIRED_ROWS)
        for place, share in enumerate(cosine_histogram(rows)):
            low = -1 + 2 * place / BINS
            found.append(figure("cosine-share", share, pairs, pooler, low=low, high=low + 2 / BINS))
    if "uniformity" in asked:
        value, error = uniformity(rows)
        found.append(figure("uniformity", value, n, pooler, error=error))
    if "spectrum" in asked:
        deviations = spectrum(Moments.of(rows).covariance())
        found.append(
            figure("effective-rank", effective_rank(deviations), n, pooler, dim=rows.shape[1])
        )
        found += [
            figure("deviation", value, n, pooler, component=i)
            for i, value in enumerate(deviations, 1)
        ]
    return found


def effective_rank(deviations: Collection[float]) -> float:
    """exp of the entropy of the deviations' shares (Roy & Vetterli 2007): d where all are equal, 1
    where one is not 0.

    NaN where all are 0.
    """
    values = np.asarray(list(deviations), np.float64)
    shares = values[values > 0] / values.sum() if values.sum() > 0 else values[:0]
    return float(np.exp(-(shares * np.log(shares)).sum())) if len(shares) else math.nan
