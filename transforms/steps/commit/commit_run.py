"""The end of a run: everything found out about it, one conditional write, then the report."""

import contextlib
from dataclasses import replace
from typing import Any

from transforms import storage
from transforms.base import progress
from transforms.base.errors import SentenceBeamError
from transforms.report import report
from transforms.steps.commit.count_changes import Deletes, DuplicateIds, previous_duplicate_ids, total
from transforms.steps.embed.quantize import RangesRecord
from transforms.steps.index.files import IndexRecord
from transforms.store import layout
from transforms.store.records import Problem
from transforms.store.runs.commit import Run, check_deletes, finish
from transforms.store.runs.result import COMMITTED, Result
from transforms.store.runs.settled import Settled


def commit_run(found: list[Any], run: Run) -> Result:
    """Commit what was found out about a run, its units settled, problems and records; the result is on record then.

    A problem comes before everything else.
    """
    with progress.stage("committing"):
        return _committed(found, run)


def _committed(found: list[Any], run: Run) -> Result:
    index = next((item for item in found if isinstance(item, IndexRecord)), None)
    for item in found:
        if isinstance(item, RangesRecord):
            run = replace(run, ranges=item.entry)
    problems = [*(item for item in found if isinstance(item, Problem)), *_gate_problems(found, run)]
    result = finish(
        run,
        min(problems, key=lambda p: (p.exit_code, p.message)) if problems else _settled(found),
        index.entry if index else None,
        _duplicate_ids([item.rows for item in found if isinstance(item, DuplicateIds)], run),
        total(found),
        index.measures if index else None,
    )
    if result.status == COMMITTED:
        report.bring_up_to_date(run.root)
    if index is not None:
        with contextlib.suppress(Exception):  # the run is over, and a raise would repeat it; vacuum removes what stays
            storage.delete_below(storage.join(run.root, layout.index_scratch(run.id)))
    return result


def _gate_problems(found: list[Any], run: Run) -> list[Problem]:
    """Why the rows that the run deletes end it; nothing if they do not."""
    try:
        check_deletes(run, sum(item.rows for item in found if isinstance(item, Deletes)))
    except SentenceBeamError as error:
        return [Problem.of(error)]
    return []


def _settled(found: list[Any]) -> Settled:
    return next(item for item in found if isinstance(item, Settled))


def _duplicate_ids(counted: list[int], run: Run) -> int | None:
    """Their sum; those of the last snapshot if the run left the ids as they were, and so counted none."""
    return sum(counted) if counted or not run.options.id_column else previous_duplicate_ids(run)


def raise_failure(result: Result) -> Result:
    """The result of a run that committed. Raises SentenceBeamError for one that failed."""
    if result.exit_code:
        raise Problem(result.message, result.exit_code).error()
    return result
