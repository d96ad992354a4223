"""Correct scores that are too high on few items by the bias that resamples show, in log-odds."""

import warnings

import numpy as np


def correct_bias(
    resampled: np.ndarray, biased: np.ndarray, scores: np.ndarray, items: int
) -> np.ndarray:
    """Center resampled scores [m, r] from 0 to 1 on the scores [m, 1] less their bias.

    The scores exceed the truth by about as much as their resamples, `biased` [m, r], exceed the
    scores. In log-odds the result stays within 0 and 1 and reaches further on the side away from
    the nearer end, as the truth may. Undefined resamples stay NaN.
    """
    half = 0.5 / items  # of an item, added to either side, so that 0 and 1 have log-odds
    odds, of_biased, of_scores = (
        np.log((rows + half) / (1 - rows + half)) for rows in (resampled, biased, scores)
    )
    bias = _mean(of_biased) - of_scores
    centred = odds - _mean(odds) + of_scores - bias
    return np.clip((1 + 2 * half) / (1 + np.exp(-centred)) - half, 0, 1)


def _mean(rows: np.ndarray) -> np.ndarray:
    """Return the mean [m, 1] of the defined resamples [m, r], NaN if there are none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nanmean(rows, axis=1, keepdims=True)
