"""An order of centroids in which neighbours are near each other, so that a range has near lists."""

from __future__ import annotations

import numpy as np

from sentence_beam.transforms.index.exact import find_block_top_k, score_pairs

_NEAR = 32  # centroids that a step looks at before it looks at all


def walk(centroids: np.ndarray) -> np.ndarray:
    """Return an order of centroids float32 [n, d], int64 [n]: each is followed by a near one.

    From each centroid the walk goes to the nearest that it has not visited.
    """
    count = len(centroids)
    if count < 3:
        return np.arange(count)
    centroids = np.ascontiguousarray(centroids, np.float32)
    is_left = np.ones(count, bool)
    order = np.empty(count, np.int64)
    here = 0
    near = find_block_top_k(centroids, centroids, min(_NEAR + 1, count), "l2")[1]
    for step in range(count):
        order[step] = here
        is_left[here] = False
        others = near[here][is_left[near[here]]]
        if len(others):
            here = int(others[0])
        elif step + 1 < count:
            rest = np.flatnonzero(is_left)
            # pair by pair, so that the order does not depend on the number of threads
            far = score_pairs(centroids[here : here + 1], centroids, rest[None], "l2")
            here = int(rest[np.argmin(far)])
    return order
