"""Places of runs of items, to gather them from an array."""

import numpy as np


def list_places(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the places start, start + 1, ... of every run of so many items, run after run; int64.

    It is the sum of the steps from place to place; `np.repeat` would keep Python's lock.

    >>> places_of(np.array([5, 0, 2]), np.array([2, 0, 3])).tolist()
    [5, 6, 2, 3, 4]
    """
    kept = np.flatnonzero(lengths)
    if not len(kept):
        return np.zeros(0, np.int64)
    starts = starts.take(kept)
    ends = np.cumsum(lengths.take(kept))
    steps = np.ones(int(ends[-1]), np.int64)
    steps[0] = starts[0]
    before = starts[:-1] + np.diff(ends, prepend=0)[:-1]
    steps[ends[:-1]] = starts[1:] - before + 1
    return np.cumsum(steps)
