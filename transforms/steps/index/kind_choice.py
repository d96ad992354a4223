"""The choice of the kind of an index, by its name or by budgets, and the memory that it needs."""

from dataclasses import replace

import numpy as np

from sentence_beam.transforms.base.errors import DataGateError, cite
from sentence_beam.transforms.base.values import to_memory_bytes
from sentence_beam.transforms.index import IndexPlan, choose_index
from sentence_beam.transforms.index.budgets import (
    SAMPLE,
    Budgets,
    Tried,
    choose_best,
    count_held_bytes,
    list_kinds,
    make_base_plan,
    try_kinds,
)
from sentence_beam.transforms.index.index_spec import AUTO
from sentence_beam.transforms.index.sizes import estimate_step_bytes
from sentence_beam.transforms.steps.index.index_build import IndexJob
from sentence_beam.transforms.store.index_entries import ChoiceEntry, IndexRequest, TriedEntry

ORDINARY_RAM = 3_000_000_000  # of a worker without a hint


def make_budgets(request: IndexRequest) -> Budgets:
    """Return the budgets of an index request."""
    return Budgets(request.target, request.max_bytes_per_row, request.max_latency_ms)


def choose_plan(request: IndexRequest, rows: int, dim: int, metric: str, unit: bool) -> IndexPlan:
    """Return the plan to train; if kinds are to be compared, with the lists of all of them.

    Raises OptionError if no allowed index can be built of so many rows, or is small enough.
    """
    budgets = make_budgets(request)
    if not budgets.choose:
        return choose_index(rows, dim, request.spec, metric=metric, unit=unit)
    if request.index != AUTO:
        choose_index(rows, dim, request.spec, metric=metric, unit=unit)
    return make_base_plan(list_kinds(request.spec, rows, dim, metric, unit, budgets), rows)


def plan_largest(request: IndexRequest, rows: int, dim: int) -> IndexPlan:
    """Return the plan of a request; if kinds are to be compared, the one that holds most."""
    budgets = make_budgets(request)
    if request.index == AUTO and not budgets.choose:
        return choose_index(rows, dim)
    return list_kinds(request.spec, rows, dim, "ip", True, budgets)[0]


def find_least_ram(
    request: IndexRequest, rows: int, dim: int, min_ram: str | None = None
) -> str | None:
    """Return the memory that the steps of an index need, for Beam; None if any worker has it.

    A store without rows, or with too few for the index, needs none. `--min-ram` may ask for more.
    """
    if not rows or request.spec.lack_of_rows(rows):
        return min_ram
    needed = estimate_step_bytes(plan_largest(request, rows, dim), rows)
    if needed <= ORDINARY_RAM or (min_ram is not None and to_memory_bytes(min_ram) >= needed):
        return min_ram
    return f"{-(-needed // 10**9)}GB"


def choose_kind(
    job: IndexJob, trained: bytes, sample: np.ndarray, queries: np.ndarray, tuning: np.ndarray
) -> tuple[IndexJob, bytes]:
    """Return the job with its kind of index, and the trained index of that kind, as bytes.

    `trained` is the index of the job's plan, `sample` float32 [m, dim] of its rows. Raises
    DataGateError if no kind serves the budgets and one is `required`.
    """
    request = job.request
    budgets = make_budgets(request)
    base = job.plan
    if not budgets.choose:
        why = "asked for by name"
        if request.spec.is_automatic:
            why = f"{request.index}, for {job.rows:,} rows"
        return replace(job, choice=ChoiceEntry(why, count_held_bytes(base))), trained
    plans = list_kinds(request.spec, job.rows, base.dim, base.metric, job.unit, budgets)
    few = np.ascontiguousarray(sample[:: max(1, -(-len(sample) // SAMPLE))])
    tried = try_kinds(plans, trained, few, queries, tuning, job.rows, budgets)
    kind, reached = choose_best(tried, budgets)
    share = f"finds {kind.recall or 0:.3f} of the 10 nearest among a sample of {len(few):,} rows"
    if job.required and not reached:
        costs = f"{kind.row_bytes:,} bytes a row, {kind.query_bytes:,} a query"
        raise DataGateError(
            f"{cite('target_recall')} {budgets.target:g}: no index reaches {budgets}; the best,"
            f" {kind.plan.factory} ({costs}), {share}; ask for less, or allow more"
        )
    why = _explain_kind(kind, len(tried), budgets)
    if not reached:
        kinds_tried = _count_kinds(len(tried))
        why = f"{kinds_tried} within its bytes, none reaching {budgets}; it {share}"
    choice = ChoiceEntry(why, kind.row_bytes, kind.query_bytes, tuple(map(_record_tried, tried)))
    return replace(job, plan=kind.plan, choice=choice, most_lists=kind.most_lists), kind.trained


def _count_kinds(count: int) -> str:
    return "the only kind" if count == 1 else f"of {count} kinds"


def _explain_kind(kind: Tried, count: int, budgets: Budgets) -> str:
    if kind.plan.factory == "Flat":
        return f"exact, for {budgets}"
    reason = f"{_count_kinds(count)} for {budgets}"
    return reason if count == 1 else f"{reason}, the one that finds most"


def _record_tried(kind: Tried) -> TriedEntry:
    return TriedEntry(
        kind.plan.factory,
        kind.row_bytes,
        kind.query_bytes,
        kind.nprobe,
        kind.recall,
        kind.recall_100,
    )
