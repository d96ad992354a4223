"""The functions that fit and apply each calibration, in one table."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sentence_beam.transforms.calibration import affine
from sentence_beam.transforms.calibration.affine import Fitted, Tensors
from sentence_beam.transforms.calibration.calibration_spec import CalibrationSpec
from sentence_beam.transforms.calibration.moments import Moments

Parameters = Mapping[str, Any]
FLOOR = 1e-8
NARROW_FLOOR = 1e-6


def _apply_affine(tensors: Tensors, parameters: Parameters, rows: np.ndarray) -> np.ndarray:
    """Apply an affine calibration by torch, which keeps to the thread's cores; numpy takes all."""
    import torch

    on_torch = {name: torch.from_numpy(tensor) for name, tensor in tensors.items()}
    return affine.apply_affine(on_torch, torch.from_numpy(rows.astype(np.float64))).numpy()


def _apply_flow(tensors: Tensors, parameters: Parameters, rows: np.ndarray) -> np.ndarray:
    # late, because it imports torch
    from sentence_beam.transforms.calibration.flow import FlowParameters, apply_flow

    return apply_flow(tensors, FlowParameters(**parameters), rows)


# Methods that need only mean and covariance.
_FIT: dict[str, Callable[[Moments, Parameters], Fitted]] = {
    "standardize": affine.fit_standardize,
    "remove-top": affine.fit_remove_top,
    "standardize+remove-top": affine.fit_standardize_remove_top,
    "whitening": affine.fit_whitening,
}
AFFINE = tuple(_FIT)
# (tensors, parameters, rows float32 [n, p]) -> [n, dim], each row independently
APPLY: dict[str, Callable[[Tensors, Parameters, np.ndarray], np.ndarray]] = {
    **{name: _apply_affine for name in AFFINE},
    "flow": _apply_flow,
}


def fit_affine(spec: CalibrationSpec, moments: Moments, narrow: bool = False) -> Fitted:
    """Fit an affine calibration; `narrow`: the rows were rounded to 16 bits, which adds noise.

    Raises `OptionError` if the rows are too few or too alike, or have too few components.
    """
    parameters = dict(spec.parameters)
    if parameters.get("floor") == "auto":
        parameters["floor"] = NARROW_FLOOR if narrow else FLOOR
    return _FIT[spec.name](moments, parameters)
