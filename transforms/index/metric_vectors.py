"""Checks and conversions shared by this layer: blocks of vectors, names of metrics."""

from __future__ import annotations

from typing import Any

import numpy as np

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.index.faiss_module import load_faiss

METRICS = ("ip", "l2")  # of faiss; cosine is ip over vectors of length 1
UNIT = 1e-5  # rounding within which a squared length counts as 1


def check_metric(metric: str) -> str:
    """The metric itself if it is `ip` or `l2`. Raises OptionError for others."""
    if metric not in METRICS:
        raise OptionError(f"{cite('metric')}: {metric!r} is unknown; use cosine, ip or l2")
    return metric


def choose_scoring_metric(metric: str) -> str:
    """The metric, ip or l2, that computes the scores: ip for cosine."""
    return "ip" if metric == "cosine" else check_metric(metric)


def prepare_vectors(vectors: np.ndarray, metric: str) -> np.ndarray:
    """Vectors float32 [n, d] as an index of this metric takes them: for cosine of length 1.

    Rows that have this length up to rounding are unchanged, and so are zero rows.
    """
    if metric != "cosine":
        return vectors
    squared = squared_lengths(vectors)
    other = (np.abs(squared - 1) > UNIT) & (squared > 0)
    if not other.any():
        return vectors
    return np.where(
        other[:, None], vectors / np.sqrt(np.where(other, squared, 1))[:, None], vectors
    )


def find_faiss_metric(metric: str) -> int:
    """The number that faiss has for `ip` or `l2`."""
    faiss = load_faiss()
    return int(faiss.METRIC_INNER_PRODUCT if check_metric(metric) == "ip" else faiss.METRIC_L2)


def name_metric(index: Any) -> str:
    """The metric, `ip` or `l2`, of an index of faiss."""
    return "ip" if index.metric_type == load_faiss().METRIC_INNER_PRODUCT else "l2"


def as_vectors(array: np.ndarray, dim: int, what: str = "vectors") -> np.ndarray:
    """The array as C-contiguous float32 [n, dim]; not copied if it is that already.

    Raises OptionError for another shape, a value that is not finite, or a zero vector: no metric
    places such a row, and the index would lose it or return it for every query.
    """
    if array.ndim != 2 or array.shape[1] != dim:
        raise OptionError(
            f"{what}: shape {tuple(array.shape)}, expected [rows, {dim}]; embed with the same model"
        )
    block = np.ascontiguousarray(array, dtype=np.float32)
    lengths = squared_lengths(block)
    bad = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))
    if bad.size:
        kind = "zero" if lengths[bad[0]] == 0 else "not finite"
        raise OptionError(
            f"{what}: row {bad[0]} is {kind}; such rows have to be rejected before the index"
        )
    return block


def squared_lengths(block: np.ndarray) -> np.ndarray:
    """The squared length of each row of float32 [n, d], as float32 [n]."""
    return np.einsum("nd,nd->n", block, block)
