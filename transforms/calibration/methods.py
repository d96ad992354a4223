"""What fits and applies each calibration: one table, so that a new one has one place."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from transforms.calibration.affine import Fitted, Tensors, apply_affine, fit_standardize
from transforms.calibration.moments import Moments

Parameters = Mapping[str, Any]


def _apply_affine(tensors: Tensors, parameters: Parameters, rows: np.ndarray) -> np.ndarray:
    return apply_affine(tensors, rows.astype(np.float64))


def _apply_flow(tensors: Tensors, parameters: Parameters, rows: np.ndarray) -> np.ndarray:
    from transforms.calibration.flow import FlowParameters, apply_flow  # torch, which importing this module needs not

    return apply_flow(tensors, FlowParameters(**parameters), rows)


# Of those that are fitted on moments.
FIT: dict[str, Callable[[Moments, Parameters], Fitted]] = {"standardize": fit_standardize}
AFFINE = ("standardize", "remove-top", "standardize+remove-top", "whitening")
# (tensors, parameters, rows float32 [n, p]) -> [n, dim], each row for itself
APPLY: dict[str, Callable[[Tensors, Parameters, np.ndarray], np.ndarray]] = {
    **{name: _apply_affine for name in AFFINE},
    "flow": _apply_flow,
}
