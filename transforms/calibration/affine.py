"""Affine calibrations: centre, scale, remove directions, rotate. Everything is fitted and applied
in float64.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from transforms.base.errors import OptionError
from transforms.calibration.moments import Moments

if TYPE_CHECKING:
    import torch

Tensors = Mapping[str, np.ndarray]
Array = TypeVar("Array", np.ndarray, "torch.Tensor")
# a component whose deviation is below this share of the largest one's is taken for constant
CONSTANT = 1e-6
ROUNDING = 1e-12  # an eigenvalue below this share of the largest is rounding
TIED = 1.01  # two eigenvalues closer than this share their directions
ENOUGH_ROWS = 10  # rows for each component, for a covariance that is worth inverting


@dataclass(frozen=True)
class Fitted:
    """What a fit gives: tensors, figures for people, and what they should be warned of.

    `figures` holds `k_eff` (dimensions in which calibrated rows differ), `condition` (largest over
    smallest eigenvalue that was used) and `explained_variance` (share of the total variance in what
    was kept).
    """

    tensors: Tensors
    figures: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def apply_affine(tensors: Mapping[str, Array], rows: Array) -> Array:
    """Calibrated rows float64 [n, dim] of float64 [n, p]; each of the four steps where there is a
    tensor for it.

    `mean` [p] is subtracted, `scale` [p] multiplied, `directions` [D, p] (orthonormal) projected
    out, `kernel` [p, dim] multiplied from the right. By numpy or by torch, as the arrays are.
    """
    if "mean" in tensors:
        rows = rows - tensors["mean"]
    if "scale" in tensors:
        rows = rows * tensors["scale"]
    if "directions" in tensors:
        directions = tensors["directions"]
        rows = rows - (rows @ directions.T) @ directions
    return rows @ tensors["kernel"] if "kernel" in tensors else rows


def affine_map(tensors: Tensors, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The same as one product and one sum: matrix float64 [p, dim] and offset [dim] with `rows @
    matrix + offset`.
    """
    matrix = apply_affine(
        {name: tensor for name, tensor in tensors.items() if name != "mean"}, np.eye(width)
    )
    return matrix, -tensors["mean"] @ matrix if "mean" in tensors else np.zeros(matrix.shape[1])


def eigen(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues float64 [d], largest first, none below 0, and eigenvectors [d, d] as columns.

    Signs are settled: the entry of largest magnitude of each eigenvector is positive.
    """
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0)
    return values, vectors * np.where(largest < 0, -1.0, 1.0)


def fit_standardize(moments: Moments, parameters: Mapping[str, Any]) -> Fitted:
    """Every component to mean 0 and variance 1, constant ones to 0 (Li et al., arXiv:2011.05864,
    section 4.3).
    """
    _check_rows(moments, "standardize")
    scale = _scale(moments, parameters)
    spread, alive = np.diag(moments.covariance()), scale > 0
    figures = {
        "k_eff": int(alive.sum()),
        "condition": float(spread[alive].max() / spread[alive].min()),
        "explained_variance": float(spread[alive].sum() / spread.sum()),
    }
    return Fitted({"mean": moments.mean, "scale": scale}, figures, _constant(alive))


def fit_remove_top(moments: Moments, parameters: Mapping[str, Any]) -> Fitted:
    """The first directions of the centred rows removed (Mu & Viswanath, arXiv:1702.01417), the
    coefficients of the centred rows too; `centred=no`: the first right singular vectors of the rows
    as they are (Arora et al. 2017)."""
    _check_rows(moments, "remove-top")
    covariance, mean = moments.covariance(), moments.mean
    if parameters["centred"] == "no":
        directions, figures, warnings = _directions(
            covariance + np.outer(mean, mean), parameters["top"]
        )
        return Fitted({"directions": directions}, figures, warnings)
    directions, figures, warnings = _directions(covariance, parameters["top"])
    return Fitted({"mean": mean, "directions": directions}, figures, warnings)


def fit_standardize_remove_top(moments: Moments, parameters: Mapping[str, Any]) -> Fitted:
    """Standardised, then the first eigenvectors of the correlation matrix removed: two fits from
    one pass.
    """
    _check_rows(moments, "standardize+remove-top")
    scale = _scale(moments, parameters)
    correlation = moments.covariance() * np.outer(scale, scale)
    directions, figures, warnings = _directions(correlation, parameters["top"])
    tensors = {"mean": moments.mean, "scale": scale, "directions": directions}
    return Fitted(tensors, figures, _constant(scale > 0) + warnings)


def fit_whitening(moments: Moments, parameters: Mapping[str, Any]) -> Fitted:
    """Covariance to the identity, the first `width` principal components (Su et al.,
    arXiv:2103.15316).

    Components whose eigenvalue is at most `floor` times the largest are left out (`short=pad` puts
    zeros for them). `shrinkage` g and `ridge` e make each eigenvalue (1 - g) * value + g * their
    mean + e, and keep all of them.
    """
    _check_rows(moments, "whitening")
    asked = moments.width if parameters["width"] == "all" else parameters["width"]
    if asked > moments.width:
        raise OptionError(
            f"whitening:{asked}: vectors have {moments.width} components; give 1 to {moments.width}"
        )
    found, vectors = eigen(moments.covariance(parameters["covariance"] == "sample"))
    values = (
        (1 - parameters["shrinkage"]) * found
        + parameters["shrinkage"] * found.mean()
        + parameters["ridge"]
    )
    kept = int((values > parameters["floor"] * values[0]).sum())
    if not parameters["shrinkage"] and not parameters["ridge"]:
        kept = min(kept, moments.n - 1)
    width = min(asked, kept)
    kernel = vectors[:, :width] / np.sqrt(values[:width])
    if parameters["short"] == "pad":
        kernel = np.pad(kernel, ((0, 0), (0, asked - width)))
    figures = {
        "k_eff": width,
        "condition": float(values[0] / values[width - 1]),
        "explained_variance": float(found[:width].sum() / found.sum()),
        "floor": parameters["floor"],
    }
    return Fitted(
        {"mean": moments.mean, "kernel": kernel},
        figures,
        _whitening_warnings(moments, asked, width),
    )


def _whitening_warnings(moments: Moments, asked: int, width: int) -> tuple[str, ...]:
    warnings = []
    if width < asked:
        warnings.append(f"only {width} of {asked} components vary above the floor")
    if moments.n < ENOUGH_ROWS * moments.width:
        advice = f"{ENOUGH_ROWS} rows for each of {moments.width} components are advised"
        warnings.append(f"{moments.n:,} rows are few for whitening: {advice}")
    return tuple(warnings)


def _check_rows(moments: Moments, name: str) -> None:
    """Two rows at least, and not all of them equal."""
    if moments.n < 2:
        raise OptionError(
            f"{name} needs two rows or more, not {moments.n}; fit it on a larger store"
        )
    if np.trace(moments.m2) / moments.n <= (ROUNDING * np.linalg.norm(moments.mean)) ** 2:
        raise OptionError(
            f"{name}: all {moments.n:,} rows are equal, nothing can be fitted on them"
        )


def _scale(moments: Moments, parameters: Mapping[str, Any]) -> np.ndarray:
    """One over each component's deviation, 0 for a constant one; float64 [p]."""
    deviations = moments.deviations(parameters["variance"] == "sample")
    alive = deviations > CONSTANT * deviations.max()
    return np.divide(1.0, deviations, out=np.zeros_like(deviations), where=alive)


def _constant(alive: np.ndarray) -> tuple[str, ...]:
    dead = int((~alive).sum())
    return (f"{dead} of {len(alive)} components are constant and become 0",) if dead else ()


def _directions(
    matrix: np.ndarray, asked: int
) -> tuple[np.ndarray, dict[str, Any], tuple[str, ...]]:
    """The first eigenvectors [D, p] of a second moment, figures of what is left, and warnings."""
    if asked >= len(matrix):
        raise OptionError(
            f"remove-top:{asked}: vectors have {len(matrix)} components; give 0 to"
            f" {len(matrix) - 1}"
        )
    values, vectors = eigen(matrix)
    rank = int((values > ROUNDING * values[0]).sum())
    top, warnings = min(asked, rank - 1), []
    figures = {
        "k_eff": rank - top,
        "condition": float(values[0] / values[rank - 1]),
        "explained_variance": float(values[top:].sum() / values.sum()),
    }
    if top < asked:
        warnings.append(f"rows vary in {rank} directions: {top} are removed, not {asked}")
    if 0 < top and values[top - 1] < TIED * values[top]:
        warnings.append(
            f"directions {top} and {top + 1} vary alike: which of them is removed is a matter of"
            " chance"
        )
    return np.ascontiguousarray(vectors[:, :top].T), figures, tuple(warnings)
