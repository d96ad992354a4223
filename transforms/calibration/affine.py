"""Affine calibrations: centre, scale, remove directions, rotate. float64."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from transforms.calibration.moments import Moments
from transforms.errors import OptionError

Tensors = Mapping[str, np.ndarray]
CONSTANT = 1e-6  # a component whose deviation is below this share of the largest one's is taken for constant


@dataclass(frozen=True)
class Fitted:
    """What a fit gives: tensors, figures for people, and what they should be warned of."""

    tensors: Tensors
    summary: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def apply_affine(tensors: Tensors, rows: np.ndarray) -> np.ndarray:
    """Calibrated rows float64 [n, dim] of float64 [n, p]; each of the four steps where there is a tensor for it.

    `mean` [p] is subtracted, `scale` [p] multiplied, `directions` [D, p] (orthonormal) projected out, `kernel` [p, dim]
    multiplied from the right.
    """
    if "mean" in tensors:
        rows = rows - tensors["mean"]
    if "scale" in tensors:
        rows = rows * tensors["scale"]
    if "directions" in tensors:
        directions = tensors["directions"]
        rows = rows - (rows @ directions.T) @ directions
    return rows @ tensors["kernel"] if "kernel" in tensors else rows


def fit_standardize(moments: Moments, parameters: Mapping[str, Any]) -> Fitted:
    """Every component to mean 0 and variance 1, constant ones to 0 (Li et al., arXiv:2011.05864, section 5)."""
    if moments.n < 2:
        raise OptionError(f"standardize needs two rows or more, not {moments.n}; fit it on a larger store")
    deviations = moments.deviations(parameters["variance"] == "sample")
    alive = deviations > CONSTANT * deviations.max()
    scale = np.divide(1.0, deviations, out=np.zeros_like(deviations), where=alive)
    return Fitted({"mean": moments.mean, "scale": scale})
