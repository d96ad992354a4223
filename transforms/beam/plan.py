"""Plan: globs -> files -> spans, checked as a whole and recorded before anything is embedded."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.typehints import typehints
from apache_beam.utils.shared import Shared

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.beam.content import CountFn, OpenFilesFn
from sentence_beam.transforms.beam.graph import (
    PROBLEMS,
    JobFn,
    Outputs,
    Spread,
    Together,
    check_worker,
    count_slots,
    flat_map,
    set_types,
)
from sentence_beam.transforms.beam.metrics import StageMetrics
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan import content_plan
from sentence_beam.transforms.steps.plan.elements import (
    FilesToLookInto,
    PlannedFiles,
    ShardsToCheck,
    pack_table,
)
from sentence_beam.transforms.steps.plan.list_files import Listed, list_files
from sentence_beam.transforms.steps.plan.look import write_looked
from sentence_beam.transforms.steps.plan.look_into import (
    check_shards,
    choose_check,
    look_into_all,
)
from sentence_beam.transforms.steps.plan.whole_plan import record
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.carried_check import ShardCheck
from sentence_beam.transforms.store.runs.lease import kept_alive

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
        found = find_in(globs, self._job)
        step: Callable[..., Iterator[Any]] = record
        spans: Any = typehints.List[typehints.Any]
        if self._job.by_content:
            found = self._count_rows(found)
            step = content_plan.record
            spans = content_plan.ToRead
        slots = count_slots(globs.pipeline)
        recorded = found | "Record" >> flat_map(
            step, self._job, slots, outputs=OUTPUTS, main="spans"
        )
        return set_types(recorded, spans=spans, problems=Problem)

    def _count_rows(self, together: beam.PCollection) -> beam.PCollection:
        """Return one list of the opened files and the spans, whose rows have been counted."""
        return (
            together
            | "Compare" >> beam.FlatMap(content_plan.begin, self._job)
            # Where a file has changed, all others are opened too, in parallel as the changed ones.
            | "SpreadUnopened" >> Spread()
            | "OpenFiles" >> beam.ParDo(OpenFilesFn(self._job))
            | "TogetherOpened" >> Together()
            | "Check" >> beam.FlatMap(content_plan.list_to_count, self._job)
            # How many buckets there are must not depend on how the rows lie in files, so the rows
            # are counted first.
            | "SpreadSpans" >> Spread()
            | "Count" >> beam.ParDo(CountFn(self._job))
            | "TogetherAgain" >> Together()
        )


class LookAt(beam.PTransform):
    """Globs -> the file `output` with the counts of the work of a run that is not started."""

    def __init__(self, job: EmbedJob, output: str):
        super().__init__()
        self._job = job
        self._output = output

    def expand(self, globs: beam.PCollection[str]) -> beam.PCollection:
        return find_in(globs, self._job) | "Write" >> beam.Map(
            write_looked, self._job, self._output
        )


def find_in(globs: beam.PCollection[str], job: EmbedJob) -> beam.PCollection:
    """Return one list of what workers have found of the files of globs, and of carried shards."""
    return (
        globs
        | "List" >> beam.FlatMap(list_files, job, count_slots(globs.pipeline))
        # Footers are read in parallel: listing and reading must not fuse.
        | "SpreadFiles" >> beam.Reshuffle()
        | "Look" >> beam.ParDo(LookFn(job))
        | "Together" >> Together()
    )


class LookFn(JobFn):
    """Files to look into -> their rows of the plan; shards to check -> their states.

    Other elements pass.
    """

    def __init__(self, job: EmbedJob):
        super().__init__(job)
        self._metrics = StageMetrics("plan", ("files",))

    def setup(self) -> None:
        super().setup()
        # held, so that the next element finds it
        self._check: ShardCheck | None = None

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
                items = self._look(item)
            yield from items
        except SentenceBeamError as error:
            yield Problem.from_error(error)

    def _look(self, item: FilesToLookInto | ShardsToCheck) -> list[Any]:
        if isinstance(item, ShardsToCheck):
            run = self._job.run
            of_all = partial(_SHARED.acquire, run.make_shard_check, tag=run.key)
            self._check = choose_check(run, item.parts, of_all)
            return [check_shards(item.parts, self._job.root, self._check)]
        rows, problems = look_into_all(item.table, self._job)
        self._metrics.count({"files": len(rows)})
        for ms in rows.column("ms").drop_null().to_pylist():
            self._metrics.update({"file_ms": ms})
        return [PlannedFiles(pack_table(rows)), *problems]
