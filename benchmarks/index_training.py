"""The training of an index: lists by one k-means and in two levels, and its memory."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common import timed
from sentence_beam.transforms.index import ExactNeighbours, IndexPlan, cells
from sentence_beam.transforms.index.kmeans import kmeans
from sentence_beam.transforms.steps.index.index_folder import Folder
from sentence_beam.transforms.steps.index.training_sample import leave_rows, read_rows


def print_training(
    vectors: np.ndarray, sample: np.ndarray, queries: np.ndarray, plan: IndexPlan
) -> None:
    """Lists by one k-means and in two levels: processor seconds, and rows that a search scans for
    the same recall.
    """
    if not plan.nlist:
        return
    true = ExactNeighbours(queries, 10, plan.metric)
    true.add(vectors, 0)
    neighbours = true.lists()[1]
    rows = np.random.default_rng(2).permutation(sample)
    one, one_cost = timed(lambda: kmeans(rows, plan.nlist, plan.metric))
    base = rows_scanned(vectors, queries, neighbours, one, plan.metric)
    print(
        "training         CPU s   of the largest cell   rows scanned at recall 0.9, 0.95 over one"
        " k-means"
    )
    print(f"one k-means   {one_cost[1]:8.1f} {one_cost[1]:18.2f}         1.00 1.00")
    for passes in range(1 + cells.PASSES):
        (found, largest), cost = timed(
            lambda count=passes: two_levels(rows, plan.nlist, plan.metric, count)
        )
        ratios = rows_scanned(vectors, queries, neighbours, found, plan.metric) / base
        print(
            f"two levels +{passes} {cost[1]:8.1f} {largest:18.2f}         {ratios[0]:.2f}"
            f" {ratios[1]:.2f}"
        )
    with tempfile.TemporaryDirectory() as folder:
        leave_rows(Folder(folder, "run", "index", "ip"), "sample", rows)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            grown = pool.apply(grown_by_training, (folder, len(rows), plan))
    print(
        f"memory of the element that trains: {grown / rows.nbytes:.2f} of the sample's bytes   bar"
        " 1.3\n"
    )


def two_levels(
    sample: np.ndarray, nlist: int, metric: str, passes: int
) -> tuple[np.ndarray, float]:
    """Return the centroids of so many passes over all rows, and CPU seconds of the largest cell."""
    count = round(nlist**0.5)
    coarse = kmeans(sample[: cells.COARSE_ROWS * count], count, metric)
    cell = cells.find_nearest(sample, coarse, metric)[1][:, 0]
    lists = cells.allot_lists(nlist, np.bincount(cell, minlength=count))
    largest = 0.0
    parts = []
    for number in range(count):
        begun = time.process_time()
        parts.append(cells.find_lists_of_cell(sample[cell == number], int(lists[number]), metric))
        largest = max(largest, time.process_time() - begun)
    found = np.concatenate(parts)
    bounds = np.concatenate([[0], np.cumsum(lists)])
    for _ in range(passes):
        numbers = cells.find_nearest_of_cells(sample, coarse, found, bounds, metric)
        found = cells.average_lists(sample, numbers, found, metric)
    return found, largest


def rows_scanned(
    vectors: np.ndarray,
    queries: np.ndarray,
    neighbours: np.ndarray,
    centroids: np.ndarray,
    metric: str,
) -> np.ndarray:
    """Rows in the lists that are searched, on average, when 0.9 and 0.95 of the neighbours are in
    them.
    """
    of_row = cells.find_nearest(vectors, centroids, metric)[1][:, 0]
    lists = cells.find_nearest(queries, centroids, metric, len(centroids))[1]
    rank = np.argsort(lists, axis=1)[np.arange(len(queries))[:, None], of_row[neighbours]]
    recall = np.cumsum(np.bincount(rank.ravel(), minlength=len(centroids))) / rank.size
    scanned = np.cumsum(np.bincount(of_row, minlength=len(centroids))[lists], axis=1).mean(axis=0)
    return np.interp([0.9, 0.95], recall, scanned)


def grown_by_training(folder: str, rows: int, plan: IndexPlan) -> int:
    """Bytes by which this process grows, at most, when it reads a sample and finds its lists."""
    kmeans(
        np.random.default_rng(0).standard_normal((1000, plan.dim)).astype(np.float32),
        4,
        plan.metric,
    )
    before = peak_bytes()
    found = read_rows(Folder(folder, "run", "index", "ip"), [("sample", 0, rows)], plan.dim)
    kmeans(found, plan.nlist, plan.metric)
    return peak_bytes() - before


def peak_bytes() -> int:
    """Return the most bytes that this process has held; 0 if the system does not say."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)
