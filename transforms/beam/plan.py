"""Plan: globs -> files -> spans, checked as a whole and recorded before anything is embedded."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.typehints import typehints
from apache_beam.utils.shared import Shared

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.beam.content import CountFn, OpenFilesFn
from sentence_beam.transforms.beam.graph import (
    PROBLEMS,
    Outputs,
    Spread,
    Together,
    check_worker,
    flat_map,
    slots_of,
    typed,
)
from sentence_beam.transforms.beam.metrics import StageMetrics
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan import content_plan
from sentence_beam.transforms.steps.plan.elements import (
    FilesToLookInto,
    PlannedFiles,
    ShardsToCheck,
    packed,
)
from sentence_beam.transforms.steps.plan.list_files import Listed, list_files
from sentence_beam.transforms.steps.plan.look import write_looked
from sentence_beam.transforms.steps.plan.look_into import (
    check_for,
    check_shards,
    look_into_all,
)
from sentence_beam.transforms.steps.plan.whole_plan import record
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.carried_check import ShardCheck
from sentence_beam.transforms.store.runs.lease import Renewal, kept_alive

_SHARED = Shared()  # threads list the shards of a store once
OUTPUTS: Outputs = {Problem: PROBLEMS}


class Plan(beam.PTransform):
    """Globs -> `spans`, lists of spans to embed, and `problems`.

    Problems end the run. With `--partition content`, the lists are `ToRead`, which know the buckets
    that their rows fall into.
    """

    def __init__(self, job: EmbedJob):
        super().__init__()
        self._job = job

    def expand(self, globs: beam.PCollection[str]) -> Any:
        spans = content_plan.ToRead if self._job.by_content else typehints.List[typehints.Any]
        return typed(self._planned(globs), spans=spans, problems=Problem)

    def _planned(self, globs: beam.PCollection) -> Any:
        together = found_in(globs, self._job)
        if self._job.by_content:
            return self._by_content(together)
        slots = slots_of(globs.pipeline)
        return together | "Record" >> flat_map(
            record, self._job, slots, outputs=OUTPUTS, main="spans"
        )

    def _by_content(self, together: beam.PCollection) -> Any:
        slots = slots_of(together.pipeline)
        return (
            together
            | "Compare" >> beam.FlatMap(content_plan.begin, self._job)
            # Where a file has changed, all others are opened too, in parallel as the changed ones.
            | "SpreadUnopened" >> Spread()
            | "OpenFiles" >> beam.ParDo(OpenFilesFn(self._job))
            | "TogetherOpened" >> Together()
            | "Check" >> beam.FlatMap(content_plan.to_count, self._job)
            # How many buckets there are must not depend on how the rows lie in files, so the rows
            # are counted first.
            | "SpreadSpans" >> Spread()
            | "Count" >> beam.ParDo(CountFn(self._job))
            | "TogetherAgain" >> Together()
            | "Record"
            >> flat_map(content_plan.record, self._job, slots, outputs=OUTPUTS, main="spans")
        )


class LookAt(beam.PTransform):
    """Globs -> the file `output` with the counts of the work of a run that is not started."""

    def __init__(self, job: EmbedJob, output: str):
        super().__init__()
        self._job = job
        self._output = output

    def expand(self, globs: beam.PCollection[str]) -> beam.PCollection:
        return found_in(globs, self._job) | "Write" >> beam.Map(
            write_looked, self._job, self._output
        )


def found_in(globs: beam.PCollection[str], job: EmbedJob) -> beam.PCollection:
    """Return one list of what workers have found of the files of globs, and of carried shards."""
    return (
        globs
        | "List" >> beam.FlatMap(list_files, job, slots_of(globs.pipeline))
        # Footers are read in parallel: listing and reading must not fuse.
        | "SpreadFiles" >> beam.Reshuffle()
        | "Look" >> beam.ParDo(LookFn(job))
        | "Together" >> Together()
    )


class LookFn(beam.DoFn):
    """Files to look into -> their rows of the plan; shards to check -> their states.

    Other elements pass.
    """

    def __init__(self, job: EmbedJob):
        self._job = job
        self._metrics = StageMetrics("plan", ("files",))

    def setup(self) -> None:
        # held, so that the next element finds it
        self._check: ShardCheck | None = None
        self._renew = Renewal(self._job.root, self._job.run.id, self._job.run.leased)

    def process(self, item: Listed) -> Iterator[Any]:
        if not isinstance(item, FilesToLookInto | ShardsToCheck):
            yield item
            return
        try:
            check_worker(self._job.run)
            self._renew()
            # One file may take longer than ten minutes: for its checksum, or to read all of it if
            # unreadable files are left out.
            with kept_alive(self._job.root, self._job.run.id):
                items = self._looked(item)
            yield from items
        except SentenceBeamError as error:
            yield Problem.from_error(error)

    def _check_of_all(self) -> ShardCheck:
        run = self._job.run
        check: ShardCheck = _SHARED.acquire(run.shard_check, tag=run.key)
        return check

    def _looked(self, item: FilesToLookInto | ShardsToCheck) -> list[Any]:
        if isinstance(item, ShardsToCheck):
            self._check = check_for(self._job.run, item.parts, self._check_of_all)
            return [check_shards(item.parts, self._job.root, self._check)]
        rows, problems = look_into_all(item.table, self._job)
        self._metrics.count({"files": len(rows)})
        for ms in rows.column("ms").drop_null().to_pylist():
            self._metrics.update({"file_ms": ms})
        return [PlannedFiles(packed(rows)), *problems]
