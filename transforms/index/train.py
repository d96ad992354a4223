"""Training the one quantizer that all segments share."""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.errors import OptionError
from transforms.index.choose import IndexPlan
from transforms.index.faiss_module import short_reason, use_threads
from transforms.index.rotation import turn_lists
from transforms.index.trained import centroids
from transforms.index.vectors import as_vectors, faiss_metric

_ITERATIONS = 10
_ASSIGN_EF_SEARCH = 64  # an HNSW coarse quantizer then agrees with the exact one on 99.97 % of the rows


def train(plan: IndexPlan, sample: np.ndarray, *, threads: int | None = None, seed: int = 1) -> bytes:
    """A trained, empty index as bytes; every segment starts from a copy of it.

    `sample` float32 [m, dim]; ignored for `Flat`. The same input gives the same bytes at any thread count. Lists are
    found by k-means, spherical for inner products. Raises OptionError where the sample has fewer rows than lists.
    """
    with use_threads(threads) as faiss:
        index = faiss.index_factory(plan.dim, plan.factory, faiss_metric(faiss, plan.metric))
        if plan.factory != "Flat":
            _fit(faiss, index, plan, as_vectors(sample, plan.dim, "training sample"), seed)
        if plan.rotated:
            index = turn_lists(faiss, index, centroids(faiss, index))
        return faiss.serialize_index(index).tobytes()


def _fit(faiss: Any, index: Any, plan: IndexPlan, sample: np.ndarray, seed: int) -> None:
    if len(sample) < max(plan.nlist, 1):
        raise OptionError(f"--index {plan.factory}: only {len(sample)} rows to train on; use auto or fewer lists")
    if plan.nlist:
        _fill_quantizer(faiss, index.quantizer, _centroids(faiss, plan, sample, seed))
    try:
        index.train(sample)  # the codec; the lists are left as they are
    except RuntimeError as error:
        reason = f"training on {len(sample)} rows failed ({short_reason(error)})"
        raise OptionError(f"--index {plan.factory}: {reason}; use auto") from error


def _centroids(faiss: Any, plan: IndexPlan, sample: np.ndarray, seed: int) -> np.ndarray:
    kmeans = faiss.Kmeans(
        plan.dim,
        plan.nlist,
        niter=_ITERATIONS,
        seed=seed,
        spherical=plan.metric == "ip",
        min_points_per_centroid=1,
        max_points_per_centroid=256,
    )
    kmeans.train(sample)
    return kmeans.centroids


def _fill_quantizer(faiss: Any, quantizer: Any, centroids: np.ndarray) -> None:
    quantizer = faiss.downcast_index(quantizer)
    if not hasattr(quantizer, "hnsw"):
        quantizer.add(centroids)
        return
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # a graph grown by several threads differs from run to run
    quantizer.add(centroids)
    faiss.omp_set_num_threads(threads)
    quantizer.hnsw.efSearch = _ASSIGN_EF_SEARCH
