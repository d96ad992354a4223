"""Fit any calibration, with figures of the vectors before and after it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sentence_beam.transforms.calibration.affine import Fitted, affine_map
from sentence_beam.transforms.calibration.calibration import Calibration
from sentence_beam.transforms.calibration.calibration_spec import CalibrationSpec
from sentence_beam.transforms.calibration.figures import Shape
from sentence_beam.transforms.calibration.methods import AFFINE, fit_affine
from sentence_beam.transforms.calibration.moments import Moments
from sentence_beam.transforms.calibration.moved import FittedMoments

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
    """Fit a calibration on the moments of all rows; without moments, or for a flow, on the sample.

    `sample` float32 [n, p] in random order; `narrow`: the rows were rounded to 16 bits;
    `progress(step, steps, loss)` is called while a flow trains. Raises `OptionError` if the rows
    do not suffice.
    """
    if spec.name not in AFFINE or moments is None:
        moments = Moments.from_rows(sample)
    spec = spec.fit_to(moments.width)
    fitted_on = {
        **fitted_on,
        "n": moments.n,
        "moments": FittedMoments.from_moments(moments).to_json(),
    }
    if spec.name in AFFINE:
        fitted = fit_affine(spec, moments, narrow)
    else:
        fitted = _fit_flow(spec, sample, moments, progress)
    kernel = fitted.tensors.get("kernel")
    output_width = moments.width if kernel is None else kernel.shape[1]
    widths = (moments.width, output_width)
    calibration = Calibration.make(spec, fitted.tensors, widths, fitted_on, {})
    shown = sample[:SHOWN_ROWS]
    calibrated = calibration.apply(shown)
    before = Shape.from_rows(shown, moments.covariance())
    after = Shape.from_rows(calibrated, _find_covariance(spec, fitted, moments, calibrated))
    info = {**calibration.info, "summary": _summarise(fitted, before, after, len(shown))}
    return Outcome(Calibration(info, calibration.tensors), before, after)


def _fit_flow(
    spec: CalibrationSpec, sample: np.ndarray, moments: Moments, progress: Progress | None
) -> Fitted:
    from sentence_beam.transforms.calibration.flow import FlowParameters
    from sentence_beam.transforms.calibration.flow_fit import fit_flow

    parameters: Mapping[str, Any] = spec.parameters
    tensors, history = fit_flow(sample, FlowParameters(**parameters), progress)
    live = tensors["live"].astype(bool)
    values = np.linalg.eigvalsh(moments.covariance()[np.ix_(live, live)])
    condition = float(values[-1] / values[0]) if values[0] > 0 else None
    figures = {
        "k_eff": int(live.sum()),
        "condition": condition,
        "explained_variance": 1.0,
        "flow": history,
    }
    warnings = []
    if not live.all():
        constant = int((~live).sum())
        warnings.append(f"{constant} of {len(live)} components are constant and stay near 0")
    return Fitted(tensors, figures, tuple(warnings))


def _find_covariance(
    spec: CalibrationSpec, fitted: Fitted, moments: Moments, calibrated: np.ndarray
) -> np.ndarray:
    """Return the covariance of calibrated vectors: exact for an affine map, else of the sample."""
    if spec.name not in AFFINE:
        return Moments.from_rows(calibrated).covariance()
    matrix, _ = affine_map(fitted.tensors, moments.width)
    return matrix.T @ moments.covariance() @ matrix


def _summarise(fitted: Fitted, before: Shape, after: Shape, rows: int) -> dict[str, Any]:
    cosine = {"before": before.mean_cosine, "after": after.mean_cosine, "rows": rows}
    return {
        **fitted.figures,
        "spectrum": {"before": _measure(before.spectrum), "after": _measure(after.spectrum)},
        "mean_cosine": cosine,
        "warnings": list(fitted.warnings),
    }


def _measure(spectrum: tuple[float, ...]) -> dict[str, float]:
    median = spectrum[len(spectrum) // 2]
    return {"largest": spectrum[0], "median": median, "smallest": spectrum[-1]}
