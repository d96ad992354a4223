"""Fitting any calibration, with figures of the vectors before and after it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from transforms.calibration.affine import Fitted, affine_map
from transforms.calibration.calibration import Calibration
from transforms.calibration.figures import Shape
from transforms.calibration.methods import AFFINE, fit_affine
from transforms.calibration.moments import Moments
from transforms.calibration.moved import FittedMoments
from transforms.calibration.spec import CalibrationSpec

Progress = Callable[[int, int, float], None]
SHOWN_ROWS = 10_000  # of the sample, for the figures


@dataclass(frozen=True)
class Outcome:
    """A fitted calibration, and the shapes of the vectors before and after it."""

    calibration: Calibration
    before: Shape
    after: Shape


def fit_calibration(
    spec: CalibrationSpec,
    moments: Moments | None,
    sample: np.ndarray,
    fitted_on: Mapping[str, Any],
    *,
    narrow: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """A calibration fitted on the moments of all rows, or, where these are None and for a flow, on
    the sample alone.

    `sample` float32 [n, p] in an order that means nothing; `narrow`: the rows passed through 16-bit
    numbers; `progress(step, steps, loss)` is called while a flow trains. Raises `OptionError` where
    the rows do not suffice.
    """
    if spec.name not in AFFINE or moments is None:
        moments = Moments.of(sample)
    spec = spec.fitted_to(moments.width)
    fitted_on = {**fitted_on, "n": moments.n, "moments": FittedMoments.of(moments).to_json()}
    fitted = (
        fit_affine(spec, moments, narrow)
        if spec.name in AFFINE
        else _fit_flow(spec, sample, moments, progress)
    )
    width = moments.width
    calibration = Calibration.make(
        spec, fitted.tensors, (width, _output_width(fitted, width)), fitted_on, {}
    )
    shown = sample[:SHOWN_ROWS]
    calibrated = calibration.apply(shown)
    before = Shape.of(shown, moments.covariance())
    after = Shape.of(calibrated, _covariance_after(spec, fitted, moments, calibrated))
    summary = _summary(fitted, before, after, len(shown))
    return Outcome(
        Calibration({**calibration.info, "summary": summary}, calibration.tensors), before, after
    )


def _fit_flow(
    spec: CalibrationSpec, sample: np.ndarray, moments: Moments, progress: Progress | None
) -> Fitted:
    from transforms.calibration.flow import FlowParameters
    from transforms.calibration.flow_fit import fit_flow

    tensors, history = fit_flow(sample, FlowParameters(**spec.parameters), progress)  # type: ignore[arg-type]
    live = tensors["live"].astype(bool)
    values = np.linalg.eigvalsh(moments.covariance()[np.ix_(live, live)])
    figures = {
        "k_eff": int(live.sum()),
        "condition": float(values[-1] / values[0]) if values[0] > 0 else None,
    }
    dead = (
        (f"{int((~live).sum())} of {len(live)} components are constant and stay near 0",)
        if not live.all()
        else ()
    )
    return Fitted(tensors, {**figures, "explained_variance": 1.0, "flow": history}, dead)


def _output_width(fitted: Fitted, width: int) -> int:
    return fitted.tensors["kernel"].shape[1] if "kernel" in fitted.tensors else width


def _covariance_after(
    spec: CalibrationSpec, fitted: Fitted, moments: Moments, calibrated: np.ndarray
) -> np.ndarray:
    """The covariance of calibrated vectors: exact for an affine map, from the sample for any
    other.
    """
    if spec.name not in AFFINE:
        return Moments.of(calibrated).covariance()
    matrix, _ = affine_map(fitted.tensors, moments.width)
    return matrix.T @ moments.covariance() @ matrix


def _summary(fitted: Fitted, before: Shape, after: Shape, rows: int) -> dict[str, Any]:
    spectra = {
        name: {"largest": shape.spectrum[0], "median": shape.spectrum[len(shape.spectrum) // 2],
               "smallest": shape.spectrum[-1]}
        for name, shape in (("before", before), ("after", after))
    }  # fmt: skip
    cosine = {"before": before.mean_cosine, "after": after.mean_cosine, "rows": rows}
    return {
        **fitted.figures,
        "spectrum": spectra,
        "mean_cosine": cosine,
        "warnings": list(fitted.warnings),
    }
