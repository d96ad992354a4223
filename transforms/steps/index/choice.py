"""The kind of an index chosen by budgets: kinds to compare, their sample, and the reason."""

from dataclasses import replace

import numpy as np

from sentence_beam.transforms.base.errors import DataGateError
from sentence_beam.transforms.index import IndexPlan, choose_index
from sentence_beam.transforms.index.budgets import (
    SAMPLE,
    Budgets,
    Tried,
    base_plan,
    best,
    held_bytes,
    kinds,
    query_bytes,
    try_kinds,
)
from sentence_beam.transforms.index.sizes import step_bytes
from sentence_beam.transforms.index.spec import AUTO
from sentence_beam.transforms.store.index_entries import (
    ChoiceEntry,
    IndexEntry,
    IndexRequest,
    TriedEntry,
)

ORDINARY_RAM = 3_000_000_000  # of a worker without a hint


def budgets_of(request: IndexRequest) -> Budgets:
    """Return the budgets of an index request."""
    return Budgets(request.target, request.max_bytes_per_row, request.max_latency_ms)


def plan_of(request: IndexRequest, rows: int, dim: int, metric: str, unit: bool) -> IndexPlan:
    """Return the plan to train; if kinds are to be compared, with the lists of all of them.

    Raises OptionError if no allowed index can be built of so many rows, or is small enough.
    """
    budgets = budgets_of(request)
    if not budgets.choose:
        return choose_index(rows, dim, request.spec, metric=metric, unit=unit)
    if request.index != AUTO:
        choose_index(rows, dim, request.spec, metric=metric, unit=unit)
    return base_plan(kinds(request.spec, rows, dim, metric, unit, budgets), rows)


def largest(request: IndexRequest, rows: int, dim: int) -> IndexPlan:
    """Return the plan of a request; if kinds are to be compared, the one that holds most."""
    budgets = budgets_of(request)
    if request.index == AUTO and not budgets.choose:
        return choose_index(rows, dim)
    return kinds(request.spec, rows, dim, "ip", True, budgets)[0]


def least_ram(request: IndexRequest, rows: int, dim: int) -> str | None:
    """Return the memory that the steps of an index need, for Beam; None if any worker has it.

    A store without rows, or with too few for the index, needs none.
    """
    if not rows or request.spec.lack_of_rows(rows):
        return None
    needed = step_bytes(largest(request, rows, dim), rows)
    if needed <= ORDINARY_RAM:
        return None
    return f"{-(-needed // 10**9)}GB"


def as_asked(request: IndexRequest, plan: IndexPlan, rows: int) -> ChoiceEntry:
    """Return the choice if nothing was compared."""
    why = "asked for by name"
    if request.spec.is_automatic:
        why = f"{request.index}, for {rows:,} rows"
    return ChoiceEntry(why, held_bytes(plan))


def compared(
    request: IndexRequest,
    base: IndexPlan,
    trained: bytes,
    rows: int,
    unit: bool,
    sample: np.ndarray,
    queries: np.ndarray,
    tuning: np.ndarray,
    required: bool,
) -> tuple[Tried, ChoiceEntry]:
    """Return the kind that serves the budgets, tried on a sample, and the comparison.

    `sample` is float32 [m, dim], `trained` the index of `base`, which `plan_of` gave. Raises
    DataGateError if no kind serves the budgets and one is `required`.
    """
    budgets = budgets_of(request)
    plans = kinds(request.spec, rows, base.dim, base.metric, unit, budgets)
    few = np.ascontiguousarray(sample[:: max(1, -(-len(sample) // SAMPLE))])
    tried = try_kinds(plans, trained, few, queries, tuning, rows, budgets)
    kind, reached = best(tried, budgets)
    does = f"finds {kind.recall or 0:.3f} of the 10 nearest among a sample of {len(few):,} rows"
    costs = f"{kind.row_bytes:,} bytes a row, {kind.query_bytes:,} a query"
    if required and not reached:
        raise DataGateError(
            f"--target-recall {budgets.target:g}: no index reaches {budgets}; the best,"
            f" {kind.plan.factory} ({costs}), {does}; ask for less, or allow more"
        )
    if len(tried) == 1:
        kinds_tried = "the only kind"
        why = f"{kinds_tried} for {budgets}"
    else:
        kinds_tried = f"of {len(tried)} kinds"
        why = f"{kinds_tried} for {budgets}, the one that finds most"
    if kind.plan.factory == "Flat":
        why = f"exact, for {budgets}"
    if not reached:
        why = f"{kinds_tried} within its bytes, none reaching {budgets}; it {does}"
    return kind, ChoiceEntry(why, kind.row_bytes, kind.query_bytes, tuple(map(_entry, tried)))


def _entry(kind: Tried) -> TriedEntry:
    return TriedEntry(
        kind.plan.factory,
        kind.row_bytes,
        kind.query_bytes,
        kind.nprobe,
        kind.recall,
        kind.recall_100,
    )


def settled(choice: ChoiceEntry, plan: IndexPlan, entry: IndexEntry) -> ChoiceEntry:
    """Return the choice with the bytes that a query reads, as tuned over all rows."""
    uneven = entry.trained.imbalance or 1.0
    return replace(
        choice, query_bytes=round(query_bytes(plan, entry.rows, entry.nprobe, entry.rerank, uneven))
    )


def missed(request: IndexRequest, entry: IndexEntry) -> DataGateError | None:
    """Return the error of a built index that misses its target recall by more than chance."""
    found = entry.recall
    budgets = budgets_of(request)
    if found is None or found.high >= budgets.target:
        return None
    lists = f" in {entry.nprobe} lists" if entry.nprobe else ""
    reached = (
        f"{entry.factory} reaches recall@{found.k} {found.value:.4f} ({found.low:.4f} to"
        f" {found.high:.4f}){lists}"
    )
    return DataGateError(
        f"--target-recall {budgets.target:g}: {reached}; ask for less, or for another --index"
    )
