"""Commit: everything a run found out, in one list, and one conditional write."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from transforms.beam.changes import CountRows
from transforms.beam.graph import Merge, Together, keeping_lease
from transforms.beam.metrics import StageMetrics
from transforms.steps.commit.commit_run import commit_run, raise_failure
from transforms.store.runs.commit import Run
from transforms.store.runs.result import Result


class Commit(beam.PTransform):
    """What `Settle` gives, and whatever else is known of a run -> its one Result, once it is on
    record.

    `ids` says that ids which occur twice are counted; else there are as many as in the last
    snapshot. Where nobody waits for the job, `raises` makes a failed run a failed job; the result
    is on record before.
    """

    def __init__(self, run: Run, raises: bool = False, ids: bool = False):
        super().__init__()
        self._run, self._raises, self._ids = run, raises, ids

    def expand(self, parts: Any) -> beam.PCollection:
        settled, *others = parts
        result = (
            (settled | "Changes" >> CountRows(self._run, self._ids), *others)
            | "All" >> Merge()
            | "Together" >> Together()
            | "Finish" >> beam.ParDo(CommitFn(self._run))
        )
        # A stage of its own: what raises is tried again, and the commit should not be.
        return (
            result | "Recorded" >> beam.Reshuffle() | "Raise" >> beam.Map(raise_failure)
            if self._raises
            else result
        )


class CommitFn(beam.DoFn):
    """Everything found out about a run -> its Result."""

    def __init__(self, run: Run):
        self._run, self._metrics = run, StageMetrics("commit")

    def process(self, found: list[Any]) -> Iterator[Result]:
        result = keeping_lease(found, self._run.key, commit_run, self._run)
        for name, summary in (result.measures or {}).get("commit", {}).items():
            self._metrics.update({name: summary["sum"]})
        yield result
