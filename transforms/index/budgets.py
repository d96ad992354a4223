"""The choice of an index by budgets: recall, bytes held for a row, bytes read for a query.

Nothing here looks at a clock, so that the same rows get the same index on a busy machine:
milliseconds are bytes read, at a rate that the slowest codes reach on one core.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from transforms.base.errors import OptionError
from transforms.index.candidates import Candidates
from transforms.index.choose import (
    FLAT_BELOW,
    RERANK,
    IndexPlan,
    automatic_index,
    code_bytes,
    depth_for,
    plan_for,
    refine_bytes,
)
from transforms.index.faiss_module import use_threads
from transforms.index.recall import TARGET_RECALL, ExactNeighbours, nprobe_grid, tuned
from transforms.index.rotation import turn_lists
from transforms.index.search import SegmentedIndex
from transforms.index.segment import SegmentFile, SegmentWriter
from transforms.index.trained import TrainedIndex, centroids
from transforms.index.upkeep import imbalance
from transforms.index.vectors import faiss_metric

BYTES_PER_MS = 2_000_000
K, DEEP = 10, 100  # the numbers of rows that a search is tuned for
SAMPLE = 50_000  # rows by which kinds are compared
MOST_LISTS = 256  # that a search is tuned up to
GRAPH_LINKS = 64  # vectors compared for each list found through a graph of centroids
# recalls that differ by less count as equal: so much depends on the queries that were held out
ALIKE = 0.005
_LISTED = ("SQbf16", "SQ8", "SQ6", "RaBitQ4", "SQ4", "RaBitQ2", "RaBitQ")
_WHOLE = ("Flat", "SQbf16", "SQ8", "SQ6", "SQ4")
_RANGED = ("SQ8", "SQ6", "SQ4")  # steps of a range that one long row can stretch


@dataclass(frozen=True)
class Budgets:
    """What an index may cost and has to reach; None where nothing is said."""

    target: float = TARGET_RECALL
    row_bytes: int | None = None
    latency_ms: float | None = None

    @property
    def choose(self) -> bool:
        """Whether kinds of index are to be compared."""
        return self.row_bytes is not None or self.latency_ms is not None

    @property
    def query_bytes(self) -> float:
        """Bytes that a query may read."""
        return float("inf") if self.latency_ms is None else self.latency_ms * BYTES_PER_MS

    def __str__(self) -> str:
        found = [] if self.row_bytes is None else [f"{self.row_bytes:,} bytes a row"]
        found += (
            []
            if self.latency_ms is None
            else [f"{self.latency_ms:g} ms ({self.query_bytes:,.0f} bytes) a query"]
        )
        return f"recall {self.target:g}" + (f" within {' and '.join(found)}" if found else "")


@dataclass(frozen=True)
class Tried:
    """A kind of index as it did on a sample; recall None where there were no queries."""

    plan: IndexPlan
    trained: bytes
    row_bytes: int
    query_bytes: int
    nprobe: int
    most_lists: int
    recall: float | None
    recall_100: float | None


def held_bytes(plan: IndexPlan) -> int:
    """Bytes that a search holds in memory for a row: its code, and its number where there are
    lists.
    """
    return code_bytes(plan) + (8 if plan.nlist else 0)


def query_bytes(plan: IndexPlan, rows: int, nprobe: int, depth: int, uneven: float = 1.0) -> float:
    """Bytes that one query reads among so many rows: centroids, the lists' codes, vectors of
    candidates.

    `uneven` is how many times as long a search takes as with lists of equal length.
    """
    scanned = rows * min(1.0, nprobe / plan.nlist * uneven) if plan.nlist else rows
    centroids = (
        min(plan.nlist, GRAPH_LINKS * max(64, 2 * nprobe)) if "HNSW" in plan.factory else plan.nlist
    )
    candidates = depth * refine_bytes(plan.dim) if plan.rerank else 0
    return centroids * 4 * plan.dim + scanned * held_bytes(plan) + candidates


def kinds(
    index: str, rows: int, dim: int, metric: str, unit: bool, budgets: Budgets
) -> list[IndexPlan]:
    """The plans that may serve an `--index`, most bytes a row first: `Flat` alone if it keeps the
    budgets.

    Raises OptionError if none is small enough.
    """
    if index != "auto":
        codec = "RaBitQ"
        found = [
            plan_for(
                automatic_index(rows, codec) if index == "compact" else index, rows, dim, metric
            )
        ]
    else:
        codecs = _LISTED if rows >= FLAT_BELOW else _WHOLE
        names = [codec for codec in codecs if unit or codec not in _RANGED]
        factories = [automatic_index(rows, name) if rows >= FLAT_BELOW else name for name in names]
        found = [plan_for(factory, rows, dim, metric) for factory in factories]
    small = [
        plan for plan in found if budgets.row_bytes is None or held_bytes(plan) <= budgets.row_bytes
    ]
    if not small:
        least = min(found, key=held_bytes)
        raise OptionError(
            f"--max-bytes-per-row {budgets.row_bytes}: the smallest index of {rows:,} rows of {dim}"
            f" components, {least.factory}, holds {held_bytes(least)} bytes a row; allow so many,"
            " or fewer components (--dim)"
        )
    if small[0].factory == "Flat" and query_bytes(small[0], rows, 0, 0) <= budgets.query_bytes:
        return small[:1]
    return small


def check_row_bytes(index: str, dim: int, budgets: Budgets) -> None:
    """Raise OptionError where an `--index` of vectors of `dim` components is too large whatever the
    number of rows.
    """
    kinds(index, FLAT_BELOW, dim, "ip", True, budgets)


def base_plan(plans: Sequence[IndexPlan], rows: int) -> IndexPlan:
    """What is trained before the kinds are compared: their lists, over vectors as they are, on rows
    for all of them.
    """
    factory = plans[0].factory
    lists = f"{factory.split(',')[0]},Flat" if plans[0].nlist else "Flat"
    wanted = max(10_000, *(plan.train_rows for plan in plans))
    return replace(
        plan_for(lists, rows, plans[0].dim, plans[0].metric),
        train_rows=min(rows, wanted),
        segment_rows=min(plan.segment_rows for plan in plans),
    )


def try_kinds(
    plans: Sequence[IndexPlan],
    trained: bytes,
    sample: np.ndarray,
    queries: np.ndarray,
    tuning: np.ndarray,
    rows: int,
    budgets: Budgets,
) -> list[Tried]:
    """Each kind over a sample float32 [m, dim] of `rows` rows, `SAMPLE` or so, searched for queries
    float32 [q, dim].

    `trained` is the index of `base_plan`; bool [q] `tuning` are the queries that nprobe is tuned
    by.
    """
    exact = ExactNeighbours(queries, DEEP, plans[0].metric)
    exact.add(sample, 0)
    return [
        _try(plan, with_codes(plan, trained, sample), sample, exact, tuning, rows, budgets)
        for plan in plans
    ]


def with_codes(plan: IndexPlan, trained: bytes, sample: np.ndarray) -> bytes:
    """The trained index of a plan as bytes, with the lists of that of `base_plan`; its codes fit
    the sample.
    """
    lists = TrainedIndex.of(trained).index
    with use_threads(None) as faiss:
        index = faiss.index_factory(plan.dim, plan.factory, faiss_metric(faiss, plan.metric))
        if plan.nlist:
            index.quantizer, index.own_fields = lists.quantizer, True
            lists.own_fields = False
        index.train(sample)
        if plan.rotated:
            index = turn_lists(faiss, index, centroids(faiss, index))
        return faiss.serialize_index(index).tobytes()


def _try(
    plan: IndexPlan,
    trained: bytes,
    sample: np.ndarray,
    exact: ExactNeighbours,
    tuning: np.ndarray,
    rows: int,
    budgets: Budgets,
) -> Tried:
    writer = SegmentWriter(trained)
    writer.add(sample)
    uneven = (imbalance(writer.list_sizes) or 1.0) if plan.nlist else 1.0
    within = [
        n
        for n in nprobe_grid(plan.nlist)
        if query_bytes(plan, rows, n, RERANK, uneven) <= budgets.query_bytes
    ]
    grid = within or [1]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "segment"
        path.write_bytes(writer.to_bytes())
        index = SegmentedIndex.open([SegmentFile(path)], writer.trained)
        found = Candidates.search(index, exact.queries, depth_for(DEEP, plan.rerank), grid)
    near, deep = (tuned(exact.at(k), found, plan.rerank, budgets.target, tuning) for k in (K, DEEP))
    nprobe, depth = (near["nprobe"], near["rerank"]) if near else (grid[-1], 0)
    return Tried(
        plan=plan,
        trained=trained,
        row_bytes=held_bytes(plan),
        query_bytes=round(query_bytes(plan, rows, nprobe, depth, uneven)),
        nprobe=nprobe if plan.nlist else 0,
        most_lists=grid[-1],
        recall=near["value"] if near else None,
        recall_100=deep["value"] if deep else None,
    )


def best(tried: Sequence[Tried], budgets: Budgets) -> tuple[Tried, bool]:
    """The kind to build, and whether it does all that is asked: recall at 10, and at 100 where any
    kind reaches both.

    Of those that do, the one that finds most; of several that find as much, the one that reads
    least for a query, then the one that holds least.
    """
    within = [kind for kind in tried if kind.query_bytes <= budgets.query_bytes]
    reaching = [kind for kind in within if _reached(kind.recall, budgets)]
    deep = [kind for kind in reaching if _reached(kind.recall_100, budgets)]
    if deep or reaching:
        most = max(kind.recall or 0.0 for kind in deep or reaching)
        alike = [kind for kind in deep or reaching if (kind.recall or 0.0) > most - ALIKE]
        return min(alike, key=lambda kind: (kind.query_bytes, kind.row_bytes)), True
    return max(within or tried, key=lambda kind: (kind.recall or 0.0, -kind.query_bytes)), False


def _reached(recall: float | None, budgets: Budgets) -> bool:
    return recall is None or recall >= budgets.target
