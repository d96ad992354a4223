"""k-means over vectors in memory, by a GPU if this machine has one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from sentence_beam.transforms.base import nvidia
from sentence_beam.transforms.base.errors import first_line
from sentence_beam.transforms.index.faiss_module import load_faiss
from sentence_beam.transforms.index.metric_vectors import prepare_vectors
from sentence_beam.transforms.index.nearest_row import find_nearest_row

_LOGGER = logging.getLogger(__name__)
ITERATIONS = 10
_SEED = 1
_MOST_PER_LIST = 256  # rows of the sample for each centroid; more do not move it
# least distances of one iteration for a GPU; the processor finishes fewer before it starts
WORTH_A_GPU = 1 << 24
_BLOCK_DISTANCES = 1 << 26  # distances in a GPU's memory at a time
_BLOCK_ROWS = 1 << 11  # whose sums are taken at once
_APART = 1 / 1024  # distance of the two halves of a split list, in their lengths

# Assign every row to its nearest centroid, float32 [lists, d]; return the sums of the rows of each
# list, float32 [lists, d], and their numbers, int64 [lists].
Sums = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def kmeans(sample: np.ndarray, lists: int, metric: str) -> np.ndarray:
    """Centroids float32 [lists, d] of the rows of a sample, float32 [n, d], n at least `lists`.

    For inner products (`metric` ip) centroids have length 1. As many rows as lists are the
    centroids themselves. The same rows in the same order give the same centroids at any number of
    threads. Those of a GPU differ from the processor's by rounding. If the GPU fails, for example
    without memory, the processor finds them.
    """
    spherical = metric == "ip"
    if has_gpu() and len(sample) * lists >= WORTH_A_GPU:
        centroids = _try_gpu(sample, lists, spherical)
        if centroids is not None:
            return centroids
    if len(sample) == lists:
        return np.array(sample, np.float32)
    rows, first = _choose_rows(sample, lists)
    return _move(partial(sum_lists, rows, spherical=spherical), first, spherical)


@lru_cache(maxsize=1)
def has_gpu() -> bool:
    """Whether this process sees a GPU of CUDA."""
    return nvidia.sees_gpu()


def _choose_rows(sample: np.ndarray, lists: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a sample by which lists are found, and their first centroids.

    They are those that faiss's k-means chooses.
    """
    rows = sample
    if len(sample) > _MOST_PER_LIST * lists:
        rows = sample[_permute(len(sample), _SEED)[: _MOST_PER_LIST * lists]]
    first = rows[_permute(len(rows), _SEED + 1)[:lists]]
    return rows, np.ascontiguousarray(first, np.float32)


def _permute(count: int, seed: int) -> np.ndarray:
    """Return a permutation of so many numbers, int32, as faiss draws it."""
    faiss = load_faiss()
    permutation = np.empty(count, np.int32)
    faiss.rand_perm(faiss.swig_ptr(permutation), count, seed)
    return permutation


def _move(sums_of: Sums, first: np.ndarray, spherical: bool) -> np.ndarray:
    """Move centroids float32 [lists, d] to the middles of their rows, `ITERATIONS` times."""
    centroids = first
    for _ in range(ITERATIONS):
        sums, counts = sums_of(centroids)
        middles = sums / np.maximum(counts, 1)[:, None]
        centroids = np.where(counts[:, None] > 0, middles, centroids).astype(np.float32)
        _split_largest(centroids, counts)
        if spherical:
            centroids = prepare_vectors(centroids, "cosine")
    return centroids


def _split_largest(centroids: np.ndarray, counts: np.ndarray) -> None:
    """Give each list without rows a half of one of the largest lists, moved apart; in place."""
    empty = np.flatnonzero(counts == 0)
    largest = np.argsort(-counts, kind="stable")[: len(empty)]
    empty = empty[: len(largest)]
    sign = 1 - 2 * (np.arange(centroids.shape[1]) % 2)
    centroids[empty] = centroids[largest] * (1 + _APART * sign)
    centroids[largest] = centroids[largest] * (1 - _APART * sign)


def sum_lists(
    rows: np.ndarray, centroids: np.ndarray, spherical: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return what `Sums` says, of rows float32 [n, d]; the same at any number of threads."""
    metric = "ip" if spherical else "l2"
    sums = np.zeros_like(centroids)
    counts = np.zeros(len(centroids), np.int64)
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = rows[start : start + _BLOCK_ROWS]
        _, numbers = find_nearest_row(block, centroids, metric)
        order = np.argsort(numbers, kind="stable")
        lists, starts = np.unique(numbers[order], return_index=True)
        sums[lists] += np.add.reduceat(block[order], starts, axis=0)
        counts += np.bincount(numbers, minlength=len(centroids))
    return sums, counts


def _try_gpu(sample: np.ndarray, lists: int, spherical: bool) -> np.ndarray | None:
    """Centroids by a GPU, None if it cannot find them: by faiss if it supports GPUs, else torch."""
    try:
        if load_faiss().get_num_gpus() > 0:
            return _use_faiss(sample, lists, spherical)
        return use_torchs_gpu(sample, lists, spherical)
    except RuntimeError as error:  # no memory, or a library without code for this GPU
        _LOGGER.warning("k-means: the processor takes over from the GPU: %s", first_line(error))
        return None


def _use_faiss(sample: np.ndarray, lists: int, spherical: bool) -> np.ndarray:
    """k-means by faiss on its GPUs."""
    clustering = load_faiss().Kmeans(
        sample.shape[1],
        lists,
        niter=ITERATIONS,
        seed=_SEED,
        spherical=spherical,
        min_points_per_centroid=1,
        max_points_per_centroid=_MOST_PER_LIST,
        gpu=True,
    )
    clustering.train(sample)
    return np.asarray(clustering.centroids, np.float32)


def use_torchs_gpu(sample: np.ndarray, lists: int, spherical: bool) -> np.ndarray | None:
    """Centroids as `use_torch`; None if torch has no GPU.

    It may be built without CUDA, or for a newer driver.
    """
    import torch

    if not torch.cuda.is_available():
        return None
    return use_torch(sample, lists, spherical, "cuda")


def use_torch(sample: np.ndarray, lists: int, spherical: bool, device: str) -> np.ndarray:
    """k-means by torch on a device, if faiss has no GPU.

    Sums are taken in the rows' order, list by list.
    """
    import torch

    chosen, first = _choose_rows(sample, lists)
    rows = torch.from_numpy(chosen).to(device)

    def sums_of(centroids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        there = torch.from_numpy(centroids).to(device)
        nearest = _find_nearest(torch, rows, there, spherical)
        counts = torch.bincount(nearest, minlength=lists)
        order = torch.argsort(nearest, stable=True)
        sums = torch.segment_reduce(rows[order], "sum", lengths=counts, axis=0)
        return sums.cpu().numpy(), counts.cpu().numpy()

    with torch.inference_mode():
        return _move(sums_of, first, spherical)


def _find_nearest(torch: Any, rows: Any, centroids: Any, spherical: bool) -> Any:
    """The number of each row's nearest centroid, int64 [n]."""
    if spherical:
        away = torch.zeros(len(centroids), device=rows.device)
    else:
        away = (centroids * centroids).sum(dim=1) / 2
    blocks = rows.split(max(1, _BLOCK_DISTANCES // len(centroids)))
    return torch.cat([(block @ centroids.T - away).argmax(dim=1) for block in blocks])
