"""Estimates of an index before it is built: bytes of its files, memory to serve it, hours."""

from __future__ import annotations

from dataclasses import dataclass

from sentence_beam.transforms.index.budgets import GRAPH_LINKS, count_held_bytes
from sentence_beam.transforms.index.cells import ONE_LEVEL
from sentence_beam.transforms.index.index_kinds import IndexPlan
from sentence_beam.transforms.index.index_spec import RANGE_BYTES, count_refine_bytes
from sentence_beam.transforms.index.kmeans import ITERATIONS

LOCATOR_BYTES = 40  # of a row: its hash, an id of ordinary length, its place
HELD_OUT = 1000  # rows, as exact vectors
_LINK_BYTES = 4 * 2 * 32  # of a centroid in a graph
_CELL_PASSES = 19  # comparisons with all lists of a cell, for each row of the sample
_PROCESS = 800_000_000  # of a worker's process before it reads anything
_FLOPS = 6e10  # of one core, in products of float32 matrices


@dataclass(frozen=True)
class IndexSize:
    """Estimates for an index.

    `bytes` is the size of all files, `memory` that of a search after it has read everything, and
    `cpu_hours` the time of one core.
    """

    bytes: int
    memory: int
    cpu_hours: float


def estimate_size(plan: IndexPlan, rows: int) -> IndexSize:
    """The estimated size of an index of so many rows."""
    held_out = min(HELD_OUT, rows // 10) * 4 * plan.dim if plan.nlist else 0
    memory = rows * count_held_bytes(plan) + _estimate_list_bytes(plan) + held_out
    refine = rows * count_refine_bytes(plan.dim) if plan.rerank else 0
    return IndexSize(
        bytes=memory + refine + rows * LOCATOR_BYTES,
        memory=memory,
        cpu_hours=2 * plan.dim * _count_comparisons(plan, rows) / _FLOPS / 3600,
    )


def estimate_step_bytes(plan: IndexPlan, rows: int) -> int:
    """The estimated memory of a process for the largest step of an index of so many rows.

    A step holds the lists, in the index and in its bytes, beside the rows of a segment or a range
    with its bytes, or beside the sample if one k-means finds all lists.
    """
    row = plan.spec.row_bytes(plan.dim)
    segment = min(rows, plan.segment_rows) * row
    sample = plan.train_rows * 4 * plan.dim if plan.nlist <= ONE_LEVEL else 0
    lists = _estimate_list_bytes(plan)
    return _PROCESS + 2 * lists + max(2 * min(segment, RANGE_BYTES), sample)


def _estimate_list_bytes(plan: IndexPlan) -> int:
    """Bytes of the centroids, with the links of a graph."""
    return plan.nlist * (4 * plan.dim + (_LINK_BYTES if plan.spec.graph else 0))


def _count_comparisons(plan: IndexPlan, rows: int) -> float:
    """The number of compared pairs of vectors: to find lists, add rows, and measure recall."""
    one_level = plan.nlist <= ONE_LEVEL
    to_train = ITERATIONS * plan.nlist if one_level else _CELL_PASSES * plan.nlist**0.5
    to_add = GRAPH_LINKS * 64 if plan.spec.graph else plan.nlist
    to_measure = min(HELD_OUT, rows // 10)
    return plan.train_rows * to_train + rows * (to_add + to_measure)
