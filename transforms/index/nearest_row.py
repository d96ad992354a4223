"""The nearest of some rows to each query, by a matrix product.

faiss's own search for one neighbour takes three to five times as long: its packages for processors
multiply with a slower library than numpy's.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from sentence_beam.transforms.index.faiss_module import load_faiss
from sentence_beam.transforms.index.metric_vectors import squared_lengths

PRODUCTS = 1 << 20  # in memory at once; more take longer, beyond the caches
FEW = 1 << 18  # products whose greatest one thread finds


def find_nearest_row(
    queries: np.ndarray, rows: np.ndarray, metric: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return scores float32 [q], greater is nearer, and the numbers int64 [q] of the nearest rows.

    The score is the inner product (ip) or the negative squared distance (l2), by float32 products.
    """
    scores = np.empty(len(queries), np.float32)
    numbers = np.empty(len(queries), np.int64)
    away = squared_lengths(rows) / 2 if metric != "ip" else None
    size = max(1, PRODUCTS // len(rows))
    for start in range(0, len(queries), size):
        block = slice(start, start + size)
        products = queries[block] @ rows.T
        if away is not None:
            products -= away
        numbers[block] = _find_greatest(products)
        scores[block] = np.take_along_axis(products, numbers[block, None], axis=1)[:, 0]
    if away is not None:
        scores = (2 * scores - squared_lengths(queries)).astype(np.float32)
    return scores, numbers


def _find_greatest(products: np.ndarray) -> np.ndarray:
    """Return the place of the greatest value in each line of [q, n], int64 [q], by all threads."""
    threads = load_faiss().omp_get_max_threads()
    if threads < 2 or products.size < FEW:
        return products.argmax(axis=1)
    parts = np.array_split(products, threads)
    with ThreadPoolExecutor(threads, "greatest") as pool:
        return np.concatenate(list(pool.map(lambda part: part.argmax(axis=1), parts)))
