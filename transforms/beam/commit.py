"""Commit: everything a run found out, in one list, and one conditional write."""

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsIter

from transforms.beam.changes import CountChanges
from transforms.beam.graph import Merge, Together
from transforms.beam.metrics import StageMetrics
from transforms.steps.changes import UnknownChanges
from transforms.steps.commit_run import commit_run, raise_failure
from transforms.store.changes import Changes
from transforms.store.commit import Run
from transforms.store.runs import Result


class Commit(beam.PTransform):
    """Units, problems and whatever else is known of a run -> its one Result, once it is on record.

    Where nobody waits for the job, `raises` makes a failed run a failed job; the result is on record before.
    """

    def __init__(self, run: Run, raises: bool = False):
        super().__init__()
        self._run, self._raises = run, raises

    def expand(self, parts: Any) -> beam.PCollection:
        # A run without a single unit must commit too, and grouping nothing gives nothing.
        start = parts[0].pipeline | "Start" >> beam.Create([None])
        known = (start, *parts) | "All" >> Merge()
        changes = known | "Changes" >> CountChanges(self._run)
        result = (
            known
            | "Together" >> Together()
            # At the side, since it is made of the collection that it would have to be merged with.
            | "Finish" >> beam.ParDo(CommitFn(self._run), AsIter(changes))
        )
        # A stage of its own: what raises is tried again, and the commit should not be.
        return result | "Recorded" >> beam.Reshuffle() | "Raise" >> beam.Map(raise_failure) if self._raises else result


class CommitFn(beam.DoFn):
    """Everything found out about a run -> its Result."""

    def __init__(self, run: Run):
        self._run, self._metrics = run, StageMetrics("commit")

    def process(self, found: list[Any], changes: Iterable[Changes | UnknownChanges]) -> Iterator[Result]:
        result = commit_run(found, self._run, changes)
        for name, summary in (result.measures or {}).get("commit", {}).items():
            self._metrics.update({name: summary["sum"]})
        yield result
