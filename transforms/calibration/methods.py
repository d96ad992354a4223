"""The functions that fit and apply each calibration, in one table, so that a new one has one
place.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from transforms.calibration import affine
from transforms.calibration.affine import Fitted, Tensors
from transforms.calibration.moments import Moments
from transforms.calibration.spec import CalibrationSpec

Parameters = Mapping[str, Any]
FLOOR, NARROW_FLOOR = 1e-8, 1e-6


def _apply_affine(tensors: Tensors, parameters: Parameters, rows: np.ndarray) -> np.ndarray:
    """By torch, whose products keep to the cores of the thread that asks for them; numpy's take all
    there are.
    """
    import torch

    found = {name: torch.from_numpy(tensor) for name, tensor in tensors.items()}
    return affine.apply_affine(found, torch.from_numpy(rows.astype(np.float64))).numpy()


def _apply_flow(tensors: Tensors, parameters: Parameters, rows: np.ndarray) -> np.ndarray:
    # torch, which importing this module needs not
    from transforms.calibration.flow import FlowParameters, apply_flow

    return apply_flow(tensors, FlowParameters(**parameters), rows)


# Of those that are fitted on moments alone.
_FIT: dict[str, Callable[[Moments, Parameters], Fitted]] = {
    "standardize": affine.fit_standardize,
    "remove-top": affine.fit_remove_top,
    "standardize+remove-top": affine.fit_standardize_remove_top,
    "whitening": affine.fit_whitening,
}
AFFINE = tuple(_FIT)
# (tensors, parameters, rows float32 [n, p]) -> [n, dim], each row for itself
APPLY: dict[str, Callable[[Tensors, Parameters, np.ndarray], np.ndarray]] = {
    **{name: _apply_affine for name in AFFINE},
    "flow": _apply_flow,
}


def fit_affine(spec: CalibrationSpec, moments: Moments, narrow: bool = False) -> Fitted:
    """Fit an affine calibration; `narrow`: the rows passed through 16-bit numbers, so that their
    noise is larger.

    Raises `OptionError` where the rows are too few or too alike, or do not have so many components.
    """
    parameters = dict(spec.parameters)
    if parameters.get("floor") == "auto":
        parameters["floor"] = NARROW_FLOOR if narrow else FLOOR
    return _FIT[spec.name](moments, parameters)
