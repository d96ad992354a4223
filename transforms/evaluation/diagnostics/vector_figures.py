"""Figures of vectors alone: cosines of pairs, uniformity, spectrum."""

import math
from collections.abc import Collection

import numpy as np

from sentence_beam.transforms.calibration.figures import (
    BINS,
    PAIRED_ROWS,
    cosine_histogram,
    spectrum,
)
from sentence_beam.transforms.calibration.moments import Moments
from sentence_beam.transforms.calibration.quality import mean_cosine, uniformity
from sentence_beam.transforms.evaluation.diagnostics.figure_rows import Row, figure


def vector_figures(pooler: str, rows: np.ndarray, requested: Collection[str]) -> list[Row]:
    """Return the requested figures of a pooler's vectors float32 [n, d], not normalised."""
    n = len(rows)
    figures = []
    if "cosines" in requested:
        figures.append(figure("mean-cosine", mean_cosine(rows), n, pooler))
        pairs = min(n, PAIRED_ROWS)
        for place, share in enumerate(cosine_histogram(rows)):
            low = -1 + 2 * place / BINS
            high = low + 2 / BINS
            figures.append(figure("cosine-share", share, pairs, pooler, low=low, high=high))
    if "uniformity" in requested:
        value, error = uniformity(rows)
        figures.append(figure("uniformity", value, n, pooler, error=error))
    if "spectrum" in requested:
        deviations = spectrum(Moments.from_rows(rows).covariance())
        figures.append(
            figure("effective-rank", effective_rank(deviations), n, pooler, dim=rows.shape[1])
        )
        figures += [
            figure("deviation", value, n, pooler, component=i)
            for i, value in enumerate(deviations, 1)
        ]
    return figures


def effective_rank(deviations: Collection[float]) -> float:
    """Return exp of the entropy of the deviations' shares (Roy & Vetterli 2007).

    It is d if all are equal, 1 if one is not 0, NaN if all are 0.
    """
    values = np.asarray(list(deviations), np.float64)
    if not values.sum() > 0:
        return math.nan
    shares = values[values > 0] / values.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))
