"""The lists of a large index, found in two levels by the steps of a job.

    PYTHONPATH=CHECKOUT python benchmarks/two_levels.py SAMPLE.npy FOUND.npy LISTS METRIC

CHECKOUT is a version whose modules are below `sentence_beam`. FOUND gets the centroids; prints
processor seconds.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from sentence_beam.transforms.index import cells
from sentence_beam.transforms.index.kmeans import kmeans


def two_levels(
    sample: np.ndarray, nlist: int, metric: str, passes: int
) -> tuple[np.ndarray, float]:
    """Return the centroids of so many passes over all rows, and CPU seconds of the largest cell."""
    count = round(nlist**0.5)
    coarse = kmeans(sample[: cells.COARSE_ROWS * count], count, metric)
    cell = cells.nearest(sample, coarse, metric)[1][:, 0]
    lists = cells.allotted(nlist, np.bincount(cell, minlength=count))
    largest = 0.0
    parts = []
    for number in range(count):
        begun = time.process_time()
        parts.append(cells.lists_of_cell(sample[cell == number], int(lists[number]), metric))
        largest = max(largest, time.process_time() - begun)
    found = np.concatenate(parts)
    bounds = np.concatenate([[0], np.cumsum(lists)])
    for _ in range(passes):
        numbers = cells.nearest_of_cells(sample, coarse, found, bounds, metric)
        found = cells.middles(sample, numbers, found, metric)
    return found, largest


def main() -> None:
    """Do what the head of this file says."""
    file, output, lists, metric = sys.argv[1:]
    sample = np.load(file)
    begun = time.process_time()
    found, _ = two_levels(sample, int(lists), metric, cells.PASSES)
    print(time.process_time() - begun)
    np.save(output, found)


if __name__ == "__main__":
    main()
