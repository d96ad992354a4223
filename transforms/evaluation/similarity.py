"""Similarities of two vectors: the cosine, the dot product, and distances with a minus sign (SBERT,
section 4).
"""

import numpy as np

from transforms.calibration.quality import cosines

COSINE, DOT, MANHATTAN, EUCLIDEAN = "cosine", "dot", "manhattan", "euclidean"
SIMILARITIES = (COSINE, DOT, MANHATTAN, EUCLIDEAN)


def similarities(name: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The similarity of each pair of rows [n, d], float64 [n]; distances are negative, so that more
    is nearer.
    """
    if name == COSINE:
        return cosines(first, second)
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if name == DOT:
        return np.einsum("nd,nd->n", a, b)
    if name == MANHATTAN:
        return -np.abs(a - b).sum(axis=1)
    return -np.linalg.norm(a - b, axis=1)
