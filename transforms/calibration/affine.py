"""Affine calibrations: centre, scale, remove directions, rotate; all in float64."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.calibration.moments import Moments

if TYPE_CHECKING:
    import torch

Tensors = Mapping[str, np.ndarray]
Array = TypeVar("Array", np.ndarray, "torch.Tensor")
CONSTANT = 1e-6  # a component with less than this share of the largest deviation is constant
ROUNDING = 1e-12  # an eigenvalue below this share of the largest is rounding
TIED = 1.01  # two eigenvalues closer than this share their directions
ENOUGH_ROWS = 10  # rows for each component, for a covariance that is worth inverting


@dataclass(frozen=True)
class Fitted:
    """The result of a fit: tensors, figures and warnings for people.

    `figures` holds `k_eff` (dimensions in which calibrated rows differ), `condition` (largest over
    smallest eigenvalue that was used) and `explained_variance` (share of the total variance that
    is kept).
    """

    tensors: Tensors
    figures: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def apply_affine(tensors: Mapping[str, Array], rows: Array) -> Array:
    """Calibrate rows float64 [n, p] to float64 [n, dim], by numpy or torch as the arrays are.

    `mean` [p] is subtracted, `scale` [p] multiplied, `directions` [D, p] (orthonormal) projected
    out, `kernel` [p, dim] multiplied from the right. A step without a tensor is skipped.
    """
    if "mean" in tensors:
        rows = rows - tensors["mean"]
    if "scale" in tensors:
        rows = rows * tensors["scale"]
    if "directions" in tensors:
        directions = tensors["directions"]
        rows = rows - (rows @ directions.T) @ directions
    if "kernel" in tensors:
        rows = rows @ tensors["kernel"]
    return rows


def affine_map(tensors: Tensors, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the matrix float64 [p, dim] and offset [dim] of the map `rows @ matrix + offset`."""
    linear = {name: tensor for name, tensor in tensors.items() if name != "mean"}
    matrix = apply_affine(linear, np.eye(width))
    offset = -tensors["mean"] @ matrix if "mean" in tensors else np.zeros(matrix.shape[1])
    return matrix, offset


def eigen(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues float64 [d], largest first, at least 0, and eigenvectors as columns.

    The entry of largest magnitude of each eigenvector is positive, which settles its sign.
    """
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values[::-1], 0.0)
    vectors = vectors[:, ::-1]
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0)
    return values, vectors * np.where(largest < 0, -1.0, 1.0)


def fit_standardize(moments: Moments, parameters: Mapping[str, Any]) -> Fitted:
    """Fit each component to mean 0 and variance 1, constant ones to 0.

    Li et al., arXiv:2011.05864, section 4.3.
    """
    _check_rows(moments, "standardize")
    scale = _invert_deviations(moments, parameters)
    spread = np.diag(moments.covariance())
    alive = scale > 0
    figures = {
        "k_eff": int(alive.sum()),
        "condition": float(spread[alive].max() / spread[alive].min()),
        "explained_variance": float(spread[alive].sum() / spread.sum()),
    }
    return Fitted({"mean": moments.mean, "scale": scale}, figures, _warn_of_constants(alive))


def fit_remove_top(moments: Moments, parameters: Mapping[str, Any]) -> Fitted:
    """Fit the removal of the first directions of the centred rows, and of the mean.

    Mu & Viswanath, arXiv:1702.01417. With `centred=no` the directions are the first right singular
    vectors of the uncentred rows, and the mean is kept (Arora et al. 2017).
    """
    _check_rows(moments, "remove-top")
    is_centred = parameters["centred"] == "yes"
    second_moment = moments.covariance()
    if not is_centred:
        second_moment += np.outer(moments.mean, moments.mean)
    directions, figures, warnings = _find_directions(second_moment, parameters["top"])
    mean = {"mean": moments.mean} if is_centred else {}
    return Fitted({**mean, "directions": directions}, figures, warnings)


def fit_standardize_remove_top(moments: Moments, parameters: Mapping[str, Any]) -> Fitted:
    """Fit standardising, then the removal of the first eigenvectors of the correlation matrix."""
    _check_rows(moments, "standardize+remove-top")
    scale = _invert_deviations(moments, parameters)
    correlation = moments.covariance() * np.outer(scale, scale)
    directions, figures, warnings = _find_directions(correlation, parameters["top"])
    tensors = {"mean": moments.mean, "scale": scale, "directions": directions}
    return Fitted(tensors, figures, _warn_of_constants(scale > 0) + warnings)


def fit_whitening(moments: Moments, parameters: Mapping[str, Any]) -> Fitted:
    """Fit the first `width` principal components to the identity covariance.

    Su et al., arXiv:2103.15316. Components whose eigenvalue is at most `floor` times the largest
    are omitted (`short=pad`: replaced by zeros). `shrinkage` g and `ridge` e turn each eigenvalue
    into (1 - g) * value + g * mean of the values + e, and keep all components.
    """
    _check_rows(moments, "whitening")
    requested = parameters["width"] if parameters["width"] != "all" else moments.width
    if requested > moments.width:
        raise OptionError(
            f"whitening:{requested}: vectors have {moments.width} components; "
            f"give 1 to {moments.width}"
        )
    variances, vectors = eigen(moments.covariance(parameters["covariance"] == "sample"))
    shrinkage, ridge = parameters["shrinkage"], parameters["ridge"]
    values = (1 - shrinkage) * variances + shrinkage * variances.mean() + ridge
    usable = int((values > parameters["floor"] * values[0]).sum())
    if not shrinkage and not ridge:
        usable = min(usable, moments.n - 1)
    width = min(requested, usable)
    kernel = vectors[:, :width] / np.sqrt(values[:width])
    if parameters["short"] == "pad":
        kernel = np.pad(kernel, ((0, 0), (0, requested - width)))
    figures = {
        "k_eff": width,
        "condition": float(values[0] / values[width - 1]),
        "explained_variance": float(variances[:width].sum() / variances.sum()),
        "floor": parameters["floor"],
    }
    warnings = _warn_of_whitening(moments, requested, width)
    return Fitted({"mean": moments.mean, "kernel": kernel}, figures, warnings)


def _warn_of_whitening(moments: Moments, requested: int, width: int) -> tuple[str, ...]:
    warnings = []
    if width < requested:
        warnings.append(f"only {width} of {requested} components vary above the floor")
    if moments.n < ENOUGH_ROWS * moments.width:
        advice = f"{ENOUGH_ROWS} rows for each of {moments.width} components are advised"
        warnings.append(f"{moments.n:,} rows are few for whitening: {advice}")
    return tuple(warnings)


def _check_rows(moments: Moments, name: str) -> None:
    """Raise OptionError for fewer than two rows, and for rows that are all equal."""
    if moments.n < 2:
        raise OptionError(
            f"{name} needs two rows or more, not {moments.n}; fit it on a larger store"
        )
    if np.trace(moments.m2) / moments.n <= (ROUNDING * np.linalg.norm(moments.mean)) ** 2:
        raise OptionError(f"{name}: all {moments.n:,} rows are equal; fit it on rows that differ")


def _invert_deviations(moments: Moments, parameters: Mapping[str, Any]) -> np.ndarray:
    """Return one over each component's deviation, 0 for a constant one; float64 [p]."""
    deviations = moments.deviations(parameters["variance"] == "sample")
    alive = deviations > CONSTANT * deviations.max()
    return np.divide(1.0, deviations, out=np.zeros_like(deviations), where=alive)


def _warn_of_constants(alive: np.ndarray) -> tuple[str, ...]:
    constant = int((~alive).sum())
    warning = f"{constant} of {len(alive)} components are constant and become 0"
    return (warning,) if constant else ()


def _find_directions(
    matrix: np.ndarray, requested: int
) -> tuple[np.ndarray, dict[str, Any], tuple[str, ...]]:
    """Return the first eigenvectors [D, p] of a second moment, figures of the rest, and warnings.

    Raises OptionError if they are all requested.
    """
    if requested >= len(matrix):
        raise OptionError(
            f"remove-top:{requested}: vectors have {len(matrix)} components; "
            f"give 0 to {len(matrix) - 1}"
        )
    values, vectors = eigen(matrix)
    rank = int((values > ROUNDING * values[0]).sum())
    top = min(requested, rank - 1)
    warnings = []
    figures = {
        "k_eff": rank - top,
        "condition": float(values[0] / values[rank - 1]),
        "explained_variance": float(values[top:].sum() / values.sum()),
    }
    if top < requested:
        warnings.append(f"rows vary in {rank} directions: {top} are removed, not {requested}")
    if 0 < top and values[top - 1] < TIED * values[top]:
        warnings.append(
            f"directions {top} and {top + 1} vary alike: which of them is removed is a matter of "
            "chance"
        )
    return np.ascontiguousarray(vectors[:, :top].T), figures, tuple(warnings)
