"""Commit: all facts about a run in one list, and one conditional write."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.typehints import typehints

from sentence_beam.transforms.beam.graph import Merge, Spread, Together, keep_lease
from sentence_beam.transforms.beam.metrics import StageMetrics
from sentence_beam.transforms.steps.commit.commit_run import commit_run, raise_failure
from sentence_beam.transforms.steps.commit.count_changes import (
    count_bucket,
    list_rows_to_count,
    read_by_bucket,
)
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.run_facts import RunFact
from sentence_beam.transforms.store.runs.run_result import Result

Hashes = typehints.Tuple[typehints.Tuple[str, int], typehints.Any]


class Commit(beam.PTransform):
    """The RunFact of `Settle`, and those of other steps -> the run's Result, once recorded.

    `ids` says that duplicate ids are counted; else their number is the last snapshot's. Without
    `changes` the rows that changed are not listed. If nobody waits for the job, `raises` makes a
    failed run a failed job; the result is recorded before.
    """

    def __init__(self, run: Run, raises: bool = False, ids: bool = False, changes: bool = True):
        super().__init__()
        self._run = run
        self._raises = raises
        self._count = CountRows(run, ids, changes)

    def expand(self, parts: Any) -> beam.PCollection:
        settled, *others = parts
        result = (
            (settled | "Changes" >> self._count, *others)
            | "All" >> Merge()
            | "Together" >> Together()
            | "Finish" >> beam.ParDo(CommitFn(self._run))
        )
        # A stage of its own: a step that raises is retried, and the commit must not be.
        if self._raises:
            return result | "Recorded" >> beam.Reshuffle() | "Raise" >> beam.Map(raise_failure)
        return result


class CommitFn(beam.DoFn):
    """The facts about a run -> its Result."""

    def __init__(self, run: Run):
        self._run = run
        self._metrics = StageMetrics("commit")

    def process(self, facts: list[RunFact]) -> Iterator[Result]:
        result = keep_lease(facts, self._run.key, commit_run, self._run)
        for name, summary in (result.measures or {}).get("commit", {}).items():
            self._metrics.update({name: summary["sum"]})
        yield result


class CountRows(beam.PTransform):
    """The RunFact of `Settle` -> the same, and the counts of changed and deleted rows.

    With `ids` also that of duplicate ids; without `changes` no others. Rows that only one snapshot
    has travel, packed by bucket, and eight bytes a row for the ids; the changed rows are written
    into files. No ids are read if the last snapshot has the same rows; else a shard's ids are read
    once, and their hashes kept. If the run is to fail, nothing is read.
    """

    def __init__(self, run: Run, ids: bool, changes: bool = True):
        super().__init__()
        self._run = run
        self._given = (run, ids, changes)

    def expand(self, settled: beam.PCollection) -> beam.PCollection:
        return (
            settled
            | "Choose" >> beam.FlatMap(keep_lease, self._run.key, list_rows_to_count, *self._given)
            | "Spread" >> Spread()
            | "Hash"
            >> beam.FlatMap(
                keep_lease, self._run.key, read_by_bucket, self._run.key
            ).with_output_types(Hashes)
            | "Buckets" >> beam.GroupByKey()
            | "Count" >> beam.FlatMap(keep_lease, self._run.key, count_bucket, self._run.key)
        )
