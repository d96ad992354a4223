"""The end of a run: all facts about it, one conditional write, then the report."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.base.measures import Stopwatch
from sentence_beam.transforms.report import store_report
from sentence_beam.transforms.steps.commit.count_changes import (
    list_recorded_changes,
    read_previous_duplicate_ids,
    sum_changes,
)
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.answer_figures import AnswerFigures, check_answers
from sentence_beam.transforms.store.runs.commit import Run, check_deletes, settle
from sentence_beam.transforms.store.runs.run_end import finish
from sentence_beam.transforms.store.runs.run_facts import RunFact
from sentence_beam.transforms.store.runs.run_result import COMMITTED, Result
from sentence_beam.transforms.store.runs.settled_tables import Settled


def settle_run(items: Sequence[tuple[int, bytes] | Problem | None], run: Run) -> RunFact:
    """Return the coming snapshot's tables, of packed units by stretch; or the run's problem."""
    watch = Stopwatch()
    problems = [item for item in items if isinstance(item, Problem)]
    made = [item for item in items if isinstance(item, tuple)]
    try:
        with watch.time("settle_ms"):
            settled = settle(run, made, problems)
    except SentenceBeamError as error:
        return RunFact(problem=Problem.from_error(error))
    return RunFact(settled=replace(settled, ms=watch.figures["settle_ms"]))


def commit_run(facts: Sequence[RunFact], run: Run) -> Result:
    """Commit a run by the facts about it, and return the recorded result.

    A problem prevails over everything else.
    """
    with progress.stage("committing"):
        return _commit(facts, run)


def _commit(facts: Sequence[RunFact], run: Run) -> Result:
    index = next((fact.index for fact in facts if fact.index is not None), None)
    ranges = next((fact.ranges for fact in facts if fact.ranges is not None), None)
    if ranges is not None:
        run = replace(run, ranges=ranges)
    entry = index.entry if index else None
    measures = index.measures if index else None
    figures = _compute_figures(facts)
    answers = figures.to_json() if figures is not None else None
    outcome = _find_outcome(facts, run, figures)
    run = replace(_take_answers(facts, run), changes=list_recorded_changes(facts, run))
    result = finish(
        run, outcome, entry, _count_duplicate_ids(facts, run), sum_changes(facts), measures, answers
    )
    if result.status == COMMITTED:
        store_report.bring_up_to_date(run.root)
    # the run is over, and a raise would repeat it; vacuum removes what stays
    with contextlib.suppress(Exception):
        for folder in _list_unneeded_folders(run, result, index is not None):
            storage.delete_below(storage.join(run.root, folder))
    return result


def _list_unneeded_folders(run: Run, result: Result, has_index: bool) -> Iterator[str]:
    """Yield the folders with files between steps that are not needed any more."""
    if has_index:
        yield layout.index_scratch(run.id)
    if result.made or result.status != COMMITTED:
        yield layout.units_scratch(run.id)


def _compute_figures(facts: Sequence[RunFact]) -> AnswerFigures | None:
    """Return the figures of the watched queries, with what growth explains; None without any."""
    record = next((fact.watch for fact in facts if fact.watch is not None), None)
    settled = next((fact.settled for fact in facts if fact.settled is not None), None)
    if record is None or settled is None:
        return None
    changes = sum_changes(facts)
    added = changes.added if changes is not None else None
    return record.figures.explain_growth(added, settled.tally.stored)


def _take_answers(facts: Sequence[RunFact], run: Run) -> Run:
    """Return the run with the coming snapshot's answers to the watched queries."""
    record = next((fact.watch for fact in facts if fact.watch is not None), None)
    return run if record is None else replace(run, watch=record.entry)


def _find_outcome(
    facts: Sequence[RunFact], run: Run, figures: AnswerFigures | None
) -> Settled | Problem:
    """Return all units of the run, or the first of its problems."""
    problems = [fact.problem for fact in facts if fact.problem is not None]
    deleted = sum(fact.deleted for fact in facts if fact.deleted is not None)
    problems += _find_problems(check_deletes, run, deleted)
    if figures is not None:
        problems += _find_problems(check_answers, run.gates, figures)
    if problems:
        return min(problems, key=lambda problem: (problem.exit_code, problem.message))
    return next(fact.settled for fact in facts if fact.settled is not None)


def _find_problems(check: Callable[..., None], *arguments: Any) -> list[Problem]:
    """Return the problem that a check of limits raises; nothing within the limits."""
    try:
        check(*arguments)
    except SentenceBeamError as error:
        return [Problem.from_error(error)]
    return []


def _count_duplicate_ids(facts: Sequence[RunFact], run: Run) -> int | None:
    """Return the sum of duplicate ids, or the last snapshot's if the run counted none."""
    counted = [fact.duplicate_ids for fact in facts if fact.duplicate_ids is not None]
    if counted or not run.options.id_column:
        return sum(counted)
    return read_previous_duplicate_ids(run)


def raise_failure(result: Result) -> Result:
    """Return the result of a run that committed; raise SentenceBeamError for a failed one."""
    if result.exit_code:
        raise Problem(result.message, result.exit_code).error()
    return result
