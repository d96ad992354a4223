"""A rotation after which codes of one bit or a few bits a component lose least.

Such codes lose least if components are alike. Models make some components much larger than others.
A random rotation makes them alike, and keeps all inner products and distances.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sentence_beam.transforms.index.faiss_module import load_faiss

_SEED = 1
_STEPS = 1 << 18  # of an entry from 0 to 1
_FINE = 1 << 24  # steps of a component from 0 to the row's largest


class Rotation:
    """A rotation of vectors, which turns a row into the same bits in any batch.

    Entries and components are whole numbers of small steps, so that sums of their products are
    exact in float64: with |row| <= 2^24 sqrt(dim) steps and |column| = 2^18, none exceeds 2^53.
    """

    def __init__(self, matrix: np.ndarray):
        """`matrix` float32 [dim, dim] holds whole numbers of 2^-18.

        Each component of the result has a column.
        """
        self.matrix = matrix
        self._whole = np.rint(matrix.astype(np.float64) * _STEPS)

    @classmethod
    def from_dim(cls, dim: int) -> Rotation:
        """The random rotation of `dim` components."""
        turned, upper = np.linalg.qr(np.random.default_rng(_SEED).standard_normal((dim, dim)))
        return cls((np.rint(turned * np.sign(np.diag(upper)) * _STEPS) / _STEPS).astype(np.float32))

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """The rotated vectors, float32 [n, dim]."""
        scale = np.abs(vectors).max(axis=1, initial=0, keepdims=True).astype(np.float64)
        whole = np.rint(vectors * (_FINE / np.where(scale > 0, scale, 1)))
        return (whole @ self._whole * (scale / (_FINE * _STEPS))).astype(np.float32)


def turn_lists(index: Any, centroids: np.ndarray) -> Any:
    """A trained index for rotated vectors: one faiss index of the rotation and the given lists.

    The given index has no rows. `centroids` float32 [nlist, dim] are a view of its centroids,
    changed in place.
    """
    faiss = load_faiss()
    rotation = Rotation.from_dim(index.d)
    centroids[:] = rotation.apply(centroids)
    before = faiss.LinearTransform(index.d, index.d, False)
    faiss.copy_array_to_vector(np.ascontiguousarray(rotation.matrix.T).ravel(), before.A)
    before.is_trained = before.is_orthonormal = True
    return faiss.IndexPreTransform(before, index)


def split(index: Any) -> tuple[Any, Rotation | None]:
    """The lists of a trained index, and the rotation before them, if any.

    The lists live as long as the index.
    """
    faiss = load_faiss()
    if not isinstance(index, faiss.IndexPreTransform):
        return index, None
    matrix = faiss.vector_to_array(faiss.downcast_VectorTransform(index.chain.at(0)).A).reshape(
        index.d, index.d
    )
    return faiss.downcast_index(index.index), Rotation(np.ascontiguousarray(matrix.T))
