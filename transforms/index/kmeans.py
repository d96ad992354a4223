"""k-means over vectors in memory, by a GPU if this machine has one."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

import numpy as np

from transforms.base import nvidia
from transforms.base.errors import first_line
from transforms.index.faiss_module import load_faiss

_LOGGER = logging.getLogger(__name__)
ITERATIONS = 10
_MOST_PER_LIST = 256  # rows of the sample for each centroid; more do not move it
# least distances of one iteration for a GPU; the processor finishes fewer before it starts
WORTH_A_GPU = 1 << 24
_BLOCK_DISTANCES = 1 << 26  # distances in a GPU's memory at a time
_APART = 1 / 1024  # distance of the two halves of a split list, in their lengths


def kmeans(
    sample: np.ndarray,
    lists: int,
    metric: str,
    *,
    start: np.ndarray | None = None,
    iterations: int = ITERATIONS,
    seed: int = 1,
) -> np.ndarray:
    """Centroids float32 [lists, d] of the rows of a sample, float32 [n, d], n at least `lists`.

    For inner products (`metric` ip) centroids have length 1. `start` float32 [lists, d] are the
    first centroids; by default `seed` chooses rows. The same rows in the same order give the same
    centroids at any number of threads. Those of a GPU differ from the processor's by rounding. If
    the GPU fails, for example without memory, the processor finds them.
    """
    spherical = metric == "ip"
    if has_gpu() and len(sample) * lists >= WORTH_A_GPU:
        centroids = _by_gpu(sample, lists, spherical, start, iterations, seed)
        if centroids is not None:
            return centroids
    return _by_faiss(sample, lists, spherical, start, iterations, seed)


@lru_cache(maxsize=1)
def has_gpu() -> bool:
    """Whether this process sees a GPU of CUDA."""
    return nvidia.sees_gpu()


def _by_gpu(
    sample: np.ndarray,
    lists: int,
    spherical: bool,
    start: np.ndarray | None,
    iterations: int,
    seed: int,
) -> np.ndarray | None:
    """Centroids by a GPU, None if it cannot find them: by faiss if it supports GPUs, else torch."""
    try:
        if load_faiss().get_num_gpus() > 0:
            return _by_faiss(sample, lists, spherical, start, iterations, seed, gpu=True)
        return by_torchs_gpu(sample, lists, spherical, start, iterations, seed)
    except RuntimeError as error:  # no memory, or a library without code for this GPU
        _LOGGER.warning("k-means: the processor takes over from the GPU: %s", first_line(error))
        return None


def _by_faiss(
    sample: np.ndarray,
    lists: int,
    spherical: bool,
    start: np.ndarray | None,
    iterations: int,
    seed: int,
    gpu: bool = False,
) -> np.ndarray:
    """k-means by faiss, on its GPUs if requested."""
    found = load_faiss().Kmeans(
        sample.shape[1],
        lists,
        niter=iterations,
        seed=seed,
        spherical=spherical,
        min_points_per_centroid=1,
        max_points_per_centroid=_MOST_PER_LIST,
        gpu=gpu,
    )
    found.train(sample, init_centroids=start)
    return np.asarray(found.centroids, np.float32)


def by_torchs_gpu(
    sample: np.ndarray,
    lists: int,
    spherical: bool,
    start: np.ndarray | None,
    iterations: int,
    seed: int,
) -> np.ndarray | None:
    """Centroids as `by_torch`; None if torch has no GPU.

    It may be built without CUDA, or for a newer driver.
    """
    import torch

    if not torch.cuda.is_available():
        return None
    return by_torch(sample, lists, spherical, start, iterations, seed, "cuda")


def by_torch(
    sample: np.ndarray,
    lists: int,
    spherical: bool,
    start: np.ndarray | None,
    iterations: int,
    seed: int,
    device: str,
) -> np.ndarray:
    """k-means by torch on a device, if faiss has no GPU.

    Sums are taken in the rows' order, list by list.
    """
    import torch

    chosen = np.random.default_rng(seed).permutation(len(sample))[: _MOST_PER_LIST * lists]
    first = start
    if first is None:
        first = sample[chosen[:lists]]
    if len(chosen) < len(sample):
        sample = sample[np.sort(chosen)]
    rows = torch.from_numpy(sample).to(device)
    centroids = torch.from_numpy(np.ascontiguousarray(first)).to(device)
    with torch.inference_mode():
        for _ in range(iterations):
            nearest = _nearest(torch, rows, centroids, spherical)
            counts = torch.bincount(nearest, minlength=lists)
            sums = torch.segment_reduce(
                rows[torch.argsort(nearest, stable=True)], "sum", lengths=counts, axis=0
            )
            centroids = torch.where(
                counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], centroids
            )
            _split_largest(torch, centroids, counts)
            if spherical:
                centroids = torch.nn.functional.normalize(centroids)
    return np.asarray(centroids.cpu().numpy(), np.float32)


def _nearest(torch: Any, rows: Any, centroids: Any, spherical: bool) -> Any:
    """The number of each row's nearest centroid, int64 [n]."""
    if spherical:
        away = torch.zeros(len(centroids), device=rows.device)
    else:
        away = (centroids * centroids).sum(dim=1) / 2
    blocks = rows.split(max(1, _BLOCK_DISTANCES // len(centroids)))
    return torch.cat([(block @ centroids.T - away).argmax(dim=1) for block in blocks])


def _split_largest(torch: Any, centroids: Any, counts: Any) -> None:
    """Give each list without rows a half of one of the largest lists, moved apart; in place."""
    empty = torch.nonzero(counts == 0)[:, 0]
    largest = torch.argsort(counts, descending=True, stable=True)[: len(empty)]
    empty = empty[: len(largest)]
    sign = 1 - 2 * (torch.arange(centroids.shape[1], device=centroids.device) % 2)
    centroids[empty] = centroids[largest] * (1 + _APART * sign)
    centroids[largest] = centroids[largest] * (1 - _APART * sign)
