"""The plan put together, checked as a whole, written down and handed out; in one process."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pyarrow as pa

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.columns import replace_column
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.base.measures import summarise_figures
from sentence_beam.transforms.corpus.beside import Beside, merge_counts
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.corpus.groups import AnySpan
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.checked import WholePlan, check_plan
from sentence_beam.transforms.steps.plan.elements import (
    PlannedFiles,
    ShardStates,
    count_spans_per_element,
)
from sentence_beam.transforms.steps.plan.kept_types import Types
from sentence_beam.transforms.steps.plan.planned import PLANNED, count_lacking_columns
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.carried_check import (
    STATES,
    Checked,
    list_checksums,
    select_carried,
)
from sentence_beam.transforms.store.runs.commit import read_last_snapshot
from sentence_beam.transforms.store.runs.lease import kept_alive
from sentence_beam.transforms.store.runs.recorded_plan import (
    PLAN,
    PlanNotes,
    Standing,
    has_plan,
    read_plan,
    write_plan,
)
from sentence_beam.transforms.store.runs.reused_vectors import add_units_before
from sentence_beam.transforms.store.runs.run_result import now


def record(items: list[Any], job: EmbedJob, slots: int | None) -> Iterator[list[AnySpan] | Problem]:
    """Check the whole plan, write it down and hand out its spans; or yield only its problems.

    A plan that is already on record is handed out instead, because some of its units may be
    finished.
    """
    try:
        is_recorded = stands(items, job)
        problems = find_problems(items)
        if problems and not is_recorded:
            yield from problems
            return
        with kept_alive(job.root, job.run.id):
            if not is_recorded:
                _write_checked(items, job)
            plan = read_plan(job.root, job.run.id)
        progress.planned(plan.tokens)
        spans = plan.list_spans_to_embed(job.syntax)
        if job.reuse and plan.span_count:
            spans = add_units_before(spans, plan.files, read_last_snapshot(job.run))
        step = count_spans_per_element(plan.span_count, slots)
        while some := list(islice(spans, step)):
            yield some
    except SentenceBeamError as error:
        yield Problem.from_error(error)


def _write_checked(items: list[Any], job: EmbedJob) -> None:
    """Write the checked plan down."""
    whole = put_together(items, job)
    notes = make_notes(whole.files, whole.types, beside=merge_counts(items))
    notes = replace(notes, budget=whole.budget, group_bits=whole.group_bits)
    write_rows(job, whole.files, notes, join_states(items))


def stands(items: list[Any], job: EmbedJob) -> bool:
    """Whether a plan is on record: before files were listed, or by a worker that has died."""
    return Standing() in items or (job.retried and has_plan(job.root, job.run.id))


def find_problems(items: list[Any]) -> list[Problem]:
    """Return the problems among elements."""
    return [item for item in items if isinstance(item, Problem)]


def join_states(items: list[Any]) -> pa.Table:
    """Return the states of all shards that were checked."""
    tables = [item.table for item in items if isinstance(item, ShardStates)]
    return pa.concat_tables([STATES.empty_table(), *tables])


def join_files(items: list[Any]) -> pa.Table:
    """Return the rows `PLANNED` of all files."""
    tables = [item.table for item in items if isinstance(item, PlannedFiles)]
    return pa.concat_tables([PLANNED.empty_table(), *tables])


def put_together(items: list[Any], job: EmbedJob) -> WholePlan:
    """Return the checked plan of what workers have found.

    Raises SentenceBeamError if files do not fit each other or the run.
    """
    return check_plan(join_files(items), join_states(items), job)


def make_notes(
    files: pa.Table, types: Types = (), buckets: Buckets | None = None, beside: Beside | None = None
) -> PlanNotes:
    """Return the notes of a plan of these files."""
    planning = ({"file_ms": ms} for ms in files.column("ms").drop_null().to_pylist())
    return PlanNotes(
        buckets=buckets,
        measures=summarise_figures(planning),
        written=now(),
        beside=beside.total() if beside else {},
        types=dict(types),
        lacking=count_lacking_columns(files),
    )


def write_rows(job: EmbedJob, files: pa.Table, notes: PlanNotes, states: pa.Table) -> None:
    """Write the plan of a run: rows `PLANNED`, notes, and what the check of its shards found."""
    last = read_last_snapshot(job.run)
    if last is not None:
        states = select_carried(states, files, notes.replaces)
    checksums = list_checksums(states)
    files = files.select(PLAN.names)
    if len(files):
        lists = [checksums, *([] for _ in range(len(files) - 1))]
        field = PLAN.field("checksums")
        files = replace_column(files, "checksums", pa.array(lists, field.type))
    write_plan(job.root, job.run.id, files, notes.set_checked(Checked.from_states(states)))
