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

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.index.candidates import Candidates
from sentence_beam.transforms.index.faiss_module import load_faiss
from sentence_beam.transforms.index.index_kinds import (
    FLAT_BELOW,
    RERANK,
    IndexPlan,
    choose_automatic_index,
    choose_depth,
    make_plan,
)
from sentence_beam.transforms.index.index_spec import COMPACT, FLAT, IndexSpec, count_refine_bytes
from sentence_beam.transforms.index.metric_vectors import find_faiss_metric
from sentence_beam.transforms.index.recall import TARGET_RECALL, ExactNeighbours, nprobe_grid, tuned
from sentence_beam.transforms.index.rotation import turn_lists
from sentence_beam.transforms.index.segment import SegmentFile, SegmentWriter
from sentence_beam.transforms.index.segment_search import SegmentedIndex
from sentence_beam.transforms.index.trained import TrainedIndex, centroids
from sentence_beam.transforms.index.upkeep import imbalance

BYTES_PER_MS = 2_000_000
K = 10  # results of a query for which a search is tuned
DEEP = 100  # results of a query for the second recall
SAMPLE = 50_000  # rows on which kinds are compared
MOST_LISTS = 256  # largest nprobe that is tried
GRAPH_LINKS = 64  # vectors compared for each list found through a graph of centroids
# recalls that differ by less count as equal: other held-out queries would change them as much
ALIKE = 0.005
_LISTED = ("SQbf16", "SQ8", "SQ6", "RaBitQ4", "SQ4", "RaBitQ2", "RaBitQ")
_WHOLE = ("Flat", "SQbf16", "SQ8", "SQ6", "SQ4")
_RANGED = ("SQ8", "SQ6", "SQ4")  # their steps divide a range, which one long row can stretch


@dataclass(frozen=True)
class Budgets:
    """Limits on an index's cost, and the recall that it must reach; None means no limit."""

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
        limits = []
        if self.row_bytes is not None:
            limits.append(f"{self.row_bytes:,} bytes a row")
        if self.latency_ms is not None:
            limits.append(f"{self.latency_ms:g} ms ({self.query_bytes:,.0f} bytes) a query")
        if not limits:
            return f"recall {self.target:g}"
        return f"recall {self.target:g} within {' and '.join(limits)}"


@dataclass(frozen=True)
class Tried:
    """A kind of index and its results on a sample; recall is None if there were no queries."""

    plan: IndexPlan
    trained: bytes
    row_bytes: int
    query_bytes: int
    nprobe: int
    most_lists: int
    recall: float | None
    recall_100: float | None


def count_held_bytes(plan: IndexPlan) -> int:
    """Bytes that a search holds in memory for a row: its code, and with lists its number."""
    return plan.spec.code_bytes(plan.dim) + (8 if plan.nlist else 0)


def query_bytes(plan: IndexPlan, rows: int, nprobe: int, depth: int, uneven: float = 1.0) -> float:
    """Bytes that one query reads: centroids, codes of the searched lists, vectors of candidates.

    `uneven` is the factor by which a search takes longer than with lists of equal length.
    """
    scanned: float = rows * min(1.0, nprobe / plan.nlist * uneven) if plan.nlist else rows
    centroids = plan.nlist
    if plan.spec.graph:
        centroids = min(plan.nlist, GRAPH_LINKS * max(64, 2 * nprobe))
    candidates = depth * count_refine_bytes(plan.dim) if plan.rerank else 0
    return centroids * 4 * plan.dim + scanned * count_held_bytes(plan) + candidates


def list_kinds(
    index: IndexSpec, rows: int, dim: int, metric: str, unit: bool, budgets: Budgets
) -> list[IndexPlan]:
    """The plans that may serve an `--index`, most bytes a row first.

    If `Flat` keeps the budgets, it is the only one. Raises OptionError if no plan is small enough.
    """
    plans = [make_plan(spec, rows, dim, metric) for spec in _list_specs(index, rows, unit)]
    most = budgets.row_bytes
    small = [plan for plan in plans if most is None or count_held_bytes(plan) <= most]
    if not small:
        least = min(plans, key=count_held_bytes)
        raise OptionError(
            f"{cite('max_bytes_per_row')} {budgets.row_bytes}: the smallest index of {rows:,} rows"
            f" of {dim} components, {least.factory}, holds {count_held_bytes(least)} bytes a row;"
            f" allow so many, or fewer components ({cite('dim')})"
        )
    if small[0].factory == "Flat" and query_bytes(small[0], rows, 0, 0) <= budgets.query_bytes:
        return small[:1]
    return small


def _list_specs(index: IndexSpec, rows: int, unit: bool) -> list[IndexSpec]:
    """The indexes that an `--index` may mean for so many rows."""
    if not index.is_automatic:
        return [index]
    if index.text == COMPACT:
        return [choose_automatic_index(rows, "RaBitQ")]
    codecs: tuple[str, ...] = _LISTED if rows >= FLAT_BELOW else _WHOLE
    if not unit:
        codecs = tuple(codec for codec in codecs if codec not in _RANGED)
    if rows < FLAT_BELOW:
        return [IndexSpec.parse(codec) for codec in codecs]
    return [choose_automatic_index(rows, codec) for codec in codecs]


def make_base_plan(plans: Sequence[IndexPlan], rows: int) -> IndexPlan:
    """The plan to train before the kinds are compared: their lists, with exact vectors.

    Its sample has rows enough for each kind.
    """
    lists = FLAT
    if plans[0].nlist:
        coarse = plans[0].factory.split(",")[0]
        lists = IndexSpec.parse(f"{coarse},Flat")
    wanted = max(10_000, *(plan.train_rows for plan in plans))
    return replace(
        make_plan(lists, rows, plans[0].dim, plans[0].metric),
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
    """Try each kind on a sample float32 [m, dim] of `rows` rows, with queries float32 [q, dim].

    The sample has about `SAMPLE` rows. `trained` is the index of `make_base_plan`. bool [q]
    `tuning` selects the queries by which nprobe is tuned.
    """
    exact = ExactNeighbours(queries, DEEP, plans[0].metric)
    exact.add(sample, 0)
    return [
        _try(plan, train_codes(plan, trained, sample), sample, exact, tuning, rows, budgets)
        for plan in plans
    ]


def train_codes(plan: IndexPlan, trained: bytes, sample: np.ndarray) -> bytes:
    """The trained index of a plan, as bytes: the lists of `make_base_plan`, and its own codec.

    The codec is trained on the sample.
    """
    lists = TrainedIndex.from_bytes(trained).index
    faiss = load_faiss()
    index = faiss.index_factory(plan.dim, plan.factory, find_faiss_metric(plan.metric))
    if plan.nlist:
        index.quantizer = lists.quantizer
        index.own_fields = True
        lists.own_fields = False
    index.train(sample)
    if plan.spec.is_rotated:
        index = turn_lists(index, centroids(index))
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
    uneven = imbalance(writer.list_sizes) or 1.0
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
        candidates = Candidates.search(index, exact.queries, choose_depth(DEEP, plan.rerank), grid)
    near, deep = (
        tuned(exact.at(k), candidates, plan.rerank, budgets.target, tuning) for k in (K, DEEP)
    )
    least = near or {"nprobe": grid[-1], "rerank": 0, "value": None}
    nprobe = least["nprobe"] if plan.nlist else 0
    return Tried(
        plan=plan,
        trained=trained,
        row_bytes=count_held_bytes(plan),
        query_bytes=round(query_bytes(plan, rows, nprobe, least["rerank"], uneven)),
        nprobe=nprobe,
        most_lists=grid[-1],
        recall=least["value"],
        recall_100=deep["value"] if deep else None,
    )


def choose_best(tried: Sequence[Tried], budgets: Budgets) -> tuple[Tried, bool]:
    """The kind to build, and whether it reaches all goals.

    The goal is the recall at 10, and at 100 if any kind reaches both. Of the kinds that reach it,
    this is the one with the highest recall. Kinds of the same recall are ordered by bytes read for
    a query, then by bytes held for a row.
    """
    within = [kind for kind in tried if kind.query_bytes <= budgets.query_bytes]
    reaching = [kind for kind in within if _is_reached(kind.recall, budgets)]
    reaching = [kind for kind in reaching if _is_reached(kind.recall_100, budgets)] or reaching
    if not reaching:
        return max(within or tried, key=lambda kind: (_recall(kind), -kind.query_bytes)), False
    most = max(map(_recall, reaching))
    alike = [kind for kind in reaching if _recall(kind) > most - ALIKE]
    return min(alike, key=lambda kind: (kind.query_bytes, kind.row_bytes)), True


def _recall(kind: Tried) -> float:
    return kind.recall or 0.0


def _is_reached(recall: float | None, budgets: Budgets) -> bool:
    return recall is None or recall >= budgets.target
