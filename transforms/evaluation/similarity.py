"""Similarities of two vectors: cosine, dot product, and negative distances (SBERT, section 4)."""

import numpy as np

from sentence_beam.transforms.calibration.quality import cosines

COSINE = "cosine"
DOT = "dot"
MANHATTAN = "manhattan"
EUCLIDEAN = "euclidean"
SIMILARITIES = (COSINE, DOT, MANHATTAN, EUCLIDEAN)


def similarities(name: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the similarity of each pair of rows [n, d], float64 [n].

    Distances are negative, so that more is nearer.
    """
    if name == COSINE:
        return cosines(first, second)
    a = np.asarray(first, np.float64)
    b = np.asarray(second, np.float64)
    if name == DOT:
        return np.einsum("nd,nd->n", a, b)
    if name == MANHATTAN:
        return -np.abs(a - b).sum(axis=1)
    return -np.linalg.norm(a - b, axis=1)
