"""The end of a run: the commit, and the record of how the run ended."""

import contextlib
import time
from dataclasses import asdict, replace
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError, first_line
from sentence_beam.transforms.base.measures import (
    Measures,
    Stopwatch,
    Summary,
    find_limit,
    summarise_figures,
)
from sentence_beam.transforms.calibration.moved import Moved
from sentence_beam.transforms.store.index_entries import IndexEntry
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs.changed_rows import Changes
from sentence_beam.transforms.store.runs.commit import Run, commit, update_estimate
from sentence_beam.transforms.store.runs.recorded_plan import RecordedPlan, read_plan
from sentence_beam.transforms.store.runs.run_result import (
    COMMITTED,
    Result,
    now,
    parse_timestamp,
    record_result,
    remember_result,
)
from sentence_beam.transforms.store.runs.run_sums import Tally
from sentence_beam.transforms.store.runs.settled_tables import Settled


def finish(
    run: Run,
    outcome: Settled | Problem,
    index: IndexEntry | None = None,
    duplicate_ids: int | None = 0,
    changes: Changes | None = None,
    index_measures: dict[str, Summary] | None = None,
    answers: dict[str, Any] | None = None,
) -> Result:
    """Commit, record the result and release the store; a problem becomes a result.

    Nothing that fails after the commit raises: the snapshot exists, and a raise would repeat the
    run.
    """
    watch = Stopwatch()
    try:
        if isinstance(outcome, Problem):
            raise outcome.error()
        watch.set("settle_ms", round(outcome.ms, 3))
        with watch.time("manifest_ms"):
            plan = read_plan(run.root, run.id)
            message = commit(run, plan, outcome, index)
    except SentenceBeamError as error:
        result = replace(make_failed_result(run, error), watch=answers)
        with contextlib.suppress(storage.UnsyncedError):  # it has its name
            record_result(run.root, result)
    else:
        measures = _collect_measures(run, plan, outcome, index_measures or {}, watch)
        result = replace(
            _describe_committed(run, plan, outcome.tally, message),
            measures=measures,
            limit=find_limit(measures["embed"]),
            index=index,
            duplicate_ids=duplicate_ids,
            watch=answers,
            changes=asdict(changes) if changes is not None else None,
        )
        result = _record_committed(run.root, result)
    # the run has ended, and a raise would repeat it; a lease grows stale
    with contextlib.suppress(Exception):
        lease.release(run.root, run.id)
    return result


def _record_committed(root: str, result: Result) -> Result:
    """Record the result of a run that committed; its message says so if that fails."""
    try:
        record_result(root, result)
    except storage.UnsyncedError:  # the file exists; the message says it of the manifest
        return result
    except Exception as error:
        note = f"the record of it was not written ({first_line(error)})"
        result = replace(result, message=f"{result.message}; {note}")
        remember_result(root, result)
    return result


def _describe_committed(run: Run, plan: RecordedPlan, tally: Tally, message: str) -> Result:
    checked = plan.notes.checked
    ledger = tally.ledger
    moved = Moved.from_sums([tally.moved])
    return replace(
        _make_result(run, COMMITTED, message),
        ledger=ledger.to_json(),
        damaged=sorted({*checked.damaged, *tally.damaged}),
        checked={**asdict(checked), "damaged": len(checked.damaged)},
        truncated=tally.truncated,
        spared=max(tally.whole - ledger.work.get("real", 0), 0),
        tokens=tally.tokens,
        input=_describe_input(plan, run),
        resumed=tally.resumed,
        made=tally.made,
        own_rows=tally.own_rows,
        devices=sorted(tally.devices),
        pending=plan.pending,
        budget=_compute_budget(run, plan, tally),
        moved=moved.to_json() if moved else None,
    )


def _compute_budget(run: Run, plan: RecordedPlan, tally: Tally) -> dict[str, int] | None:
    """Return the budget of a run; the runs after it have its tokens as this one found them."""
    if plan.notes.budget is None:
        return None
    share = update_estimate(run, plan, tally).share / run.estimate.share
    return plan.notes.budget.to_result(share)


def _collect_measures(
    run: Run, plan: RecordedPlan, settled: Settled, index: dict[str, Summary], watch: Stopwatch
) -> Measures:
    planning = dict(plan.notes.measures)
    if plan.notes.written:
        planned = 1000 * (parse_timestamp(plan.notes.written) - parse_timestamp(run.started))
        planning |= summarise_figures([{"planned_ms": round(planned, 3)}])
    return {
        "plan": planning,
        "embed": settled.measures,
        "index": index,
        "commit": summarise_figures([watch.figures]),
    }


def _describe_input(plan: RecordedPlan, run: Run) -> dict[str, Any]:
    sometimes = {"bad": plan.bad, "tables": run.tables, "lacking": plan.notes.lacking}
    counts = {"files": len(plan.files), "empty": plan.empty_count, "beside": plan.notes.beside}
    return counts | {name: value for name, value in sometimes.items() if value}


def make_failed_result(run: Run, error: Exception) -> Result:
    """Return the result of a run that left the manifest alone."""
    if isinstance(error, SentenceBeamError):
        return replace(_make_result(run, "failed", error.message), exit_code=error.exit_code)
    return replace(_make_result(run, "failed", first_line(error)), exit_code=1)


def _make_result(run: Run, status: str, message: str) -> Result:
    return Result(
        run=run.id,
        status=status,
        exit_code=0,
        message=message,
        finished=now(),
        seconds=round(time.time() - parse_timestamp(run.started), 3),
        started=run.started,
        previous=run.previous,
        space=run.space.id,
        pooled=run.space.pooled_id,
        command=run.command,
    )
