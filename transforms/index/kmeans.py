"""k-means over vectors in memory, by a GPU where this machine has one."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np

from transforms.index.faiss_module import load_faiss

ITERATIONS = 10
_MOST_PER_LIST = 256  # rows that k-means looks at for each centroid; more do not move it
# distances of one iteration, below which the processor has finished before a GPU has begun
_WORTH_A_GPU = 1 << 24
_BLOCK_DISTANCES = 1 << 26  # distances that are in a GPU's memory at a time
_APART = 1 / 1024  # by so much of their length the two halves of a list that is split differ


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

    For inner products (`metric` ip) centroids have length 1. `start` are centroids to begin with,
    float32 [lists, d]; without them k-means begins with rows that `seed` chooses. The same rows in
    the same order give the same centroids whatever the number of threads; those of a GPU differ
    from the processor's in how they were rounded.
    """
    spherical = metric == "ip"
    faiss = load_faiss()
    gpu = has_gpu() and len(sample) * lists >= _WORTH_A_GPU
    of_faiss = gpu and faiss.get_num_gpus() > 0
    if gpu and not of_faiss:
        centroids = _by_torchs_gpu(sample, lists, spherical, start, iterations, seed)
        if centroids is not None:
            return centroids
    found = faiss.Kmeans(
        sample.shape[1],
        lists,
        niter=iterations,
        seed=seed,
        spherical=spherical,
        min_points_per_centroid=1,
        max_points_per_centroid=_MOST_PER_LIST,
        gpu=of_faiss,
    )
    found.train(sample, init_centroids=start)
    return np.asarray(found.centroids, np.float32)


@lru_cache(maxsize=1)
def has_gpu() -> bool:
    """Whether this process sees a GPU of CUDA; asks the driver, which is there in no time where
    torch is not.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return (
        not driver.cuInit(0)
        and not driver.cuDeviceGetCount(ctypes.byref(count))
        and count.value > 0
    )


def _by_torchs_gpu(
    sample: np.ndarray,
    lists: int,
    spherical: bool,
    start: np.ndarray | None,
    iterations: int,
    seed: int,
) -> np.ndarray | None:
    """As `_by_torch`; None where torch was built for no GPU, or not for this driver, or the rows
    find no room there.
    """
    import torch

    if not torch.cuda.is_available():
        return None
    try:
        return _by_torch(sample, lists, spherical, start, iterations, seed, "cuda")
    except torch.OutOfMemoryError:
        return None


def _by_torch(
    sample: np.ndarray,
    lists: int,
    spherical: bool,
    start: np.ndarray | None,
    iterations: int,
    seed: int,
    device: str,
) -> np.ndarray:
    """k-means by torch on a device, for where faiss has no GPU; sums are taken in the rows' order,
    list by list.
    """
    import torch

    chosen = np.random.default_rng(seed).permutation(len(sample))[: _MOST_PER_LIST * lists]
    rows = torch.from_numpy(sample if len(chosen) == len(sample) else sample[np.sort(chosen)]).to(
        device
    )
    first = sample[chosen[:lists]] if start is None else start
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
    away = (
        torch.zeros(len(centroids), device=rows.device)
        if spherical
        else (centroids * centroids).sum(dim=1) / 2
    )
    blocks = rows.split(max(1, _BLOCK_DISTANCES // len(centroids)))
    return torch.cat([(block @ centroids.T - away).argmax(dim=1) for block in blocks])


def _split_largest(torch: Any, centroids: Any, counts: Any) -> None:
    """Give lists without rows a half of the largest ones, which are moved apart a little; in
    place.
    """
    empty = torch.nonzero(counts == 0)[:, 0]
    largest = torch.argsort(counts, descending=True, stable=True)[: len(empty)]
    empty = empty[: len(largest)]
    sign = 1 - 2 * (torch.arange(centroids.shape[1], device=centroids.device) % 2)
    centroids[empty] = centroids[largest] * (1 + _APART * sign)
    centroids[largest] = centroids[largest] * (1 - _APART * sign)
