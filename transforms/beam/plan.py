"""Plan: globs -> files -> spans, checked as a whole and recorded before anything is embedded."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput
from apache_beam.typehints import typehints

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.beam.content import CountFn, OpenFilesFn
from sentence_beam.transforms.beam.graph import (
    CARRIED,
    PROBLEMS,
    Merge,
    Spread,
    Together,
    check_worker,
    flat_map,
    slots_of,
    typed,
)
from sentence_beam.transforms.beam.metrics import StageMetrics
from sentence_beam.transforms.corpus.beside import Beside
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan import content
from sentence_beam.transforms.steps.plan.elements import ListedFiles, PlannedFiles
from sentence_beam.transforms.steps.plan.files import (
    begin_by_content,
    file_batches,
    record,
)
from sentence_beam.transforms.steps.plan.look import write_looked
from sentence_beam.transforms.steps.plan.planner import FilePlanner
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.carried_ranges import CarriedRange, units_of_range
from sentence_beam.transforms.store.runs.commit import last_snapshot
from sentence_beam.transforms.store.runs.lease import Renewal, kept_alive
from sentence_beam.transforms.store.runs.plan import PlannedFile, Standing

Passing = Beside | Problem | Standing
OUTPUTS = {Problem: PROBLEMS, UnitRecord: CARRIED, CarriedRange: CARRIED}


class Plan(beam.PTransform):
    """Globs -> `spans`, lists of spans to embed, `carried` units and `problems`.

    Problems end the run. With `--partition content`, the lists are `ToRead`, which know the buckets
    that their rows fall into.
    """

    def __init__(self, job: EmbedJob):
        super().__init__()
        self._job = job

    def expand(self, globs: beam.PCollection[str]) -> Any:
        if self._job.by_content:
            spans = content.ToRead
        else:
            spans = typehints.List[typehints.Any]
        return typed(self._planned(globs), spans=spans, carried=UnitRecord, problems=Problem)

    def _planned(self, globs: beam.PCollection) -> Any:
        together = found_in(globs, self._job)
        if self._job.by_content:
            return self._by_content(together)
        slots = slots_of(globs.pipeline)
        recorded = together | "Record" >> flat_map(
            record, self._job, slots, outputs=OUTPUTS, main="spans"
        )
        read = (
            recorded.carried
            # The process that makes the plan does not read and pack all records.
            | "SpreadCarried" >> Spread()
            | "ReadCarried"
            >> beam.ParDo(ReadCarriedFn(self._job)).with_outputs(PROBLEMS, main="units")
        )
        problems = (recorded.problems, read.problems) | "Problems" >> Merge()
        return Planned(recorded.spans, read.units, problems)

    def _by_content(self, together: beam.PCollection) -> "Planned":
        slots = slots_of(together.pipeline)
        # Problems travel on to the last step (`graph`: why they have no output of their own).
        compared = together | "Compare" >> flat_map(
            begin_by_content, self._job, outputs={UnitRecord: CARRIED}, main="files"
        )
        recorded = (
            compared.files
            # Where a file has changed, all others are opened too, in parallel as the changed ones.
            | "SpreadUnopened" >> Spread()
            | "OpenFiles" >> beam.ParDo(OpenFilesFn(self._job))
            | "TogetherOpened" >> Together()
            | "Check" >> beam.FlatMap(content.to_count, self._job)
            # How many buckets there are must not depend on how the rows lie in files, so the rows
            # are counted first.
            | "SpreadSpans" >> Spread()
            | "Count" >> beam.ParDo(CountFn(self._job))
            | "TogetherAgain" >> Together()
            | "Record"
            >> flat_map(content.record, self._job, slots, outputs={Problem: PROBLEMS}, main="spans")
        )
        return Planned(recorded.spans, compared.carried, recorded.problems)


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
    """Return one list of the files of globs, as workers have planned them."""
    return (
        globs
        | "ListFiles" >> beam.FlatMap(file_batches, job, slots_of(globs.pipeline))
        # Footers are read in parallel: listing and reading must not fuse.
        | "SpreadFiles" >> beam.Reshuffle()
        | "PlanFile" >> beam.ParDo(PlanFilesFn(job))
        | "Together" >> Together()
    )


class Planned(NamedTuple):
    """The three outputs of a plan."""

    spans: beam.PCollection
    carried: beam.PCollection
    problems: beam.PCollection


class ReadCarriedFn(beam.DoFn):
    """Ranges of carried units -> their records; units pass."""

    def __init__(self, job: EmbedJob):
        self._job = job

    def setup(self) -> None:
        # held, so that the manifest is read once for all elements
        self._last: Manifest | None = None

    def process(self, found: UnitRecord | CarriedRange) -> Iterator[Any]:
        """Yield the records of a range, or the problem with the last snapshot."""
        if not isinstance(found, CarriedRange):
            yield found
            return
        try:
            with kept_alive(self._job.root, self._job.run.id):
                self._last = last_snapshot(self._job.run)
                assert self._last is not None, "a range is one of the last snapshot"
                units = list(units_of_range(found, self._last))
            yield from units
        except SentenceBeamError as error:
            yield TaggedOutput(PROBLEMS, Problem.of(error))


class PlanFilesFn(beam.DoFn):
    """Files -> each with its spans or its carried units; other elements pass."""

    def __init__(self, job: EmbedJob):
        self._job = job
        self._metrics = StageMetrics("plan", ("files",))

    def setup(self) -> None:
        # held, so that a snapshot in one file is read once for all elements
        self._planner: FilePlanner | None = None
        self._renew = Renewal(self._job.root, self._job.run.id, self._job.run.leased)

    def process(self, listed: ListedFiles | Passing) -> Iterator[PlannedFiles | Passing]:
        if not isinstance(listed, ListedFiles):
            yield listed
            return
        try:
            check_worker(self._job.run)
            self._renew()
        except SentenceBeamError as error:
            yield Problem.of(error)
            return
        # One file may take longer than ten minutes: for its checksum, or to read all of it if
        # unreadable files are left out.
        with kept_alive(self._job.root, self._job.run.id):
            planner = FilePlanner(self._job, listed.keys)
            found = planner.plan_all(listed.files)
            self._planner = planner
        yield from (item for item in found if isinstance(item, Problem))
        planned = tuple(item for item in found if isinstance(item, PlannedFile))
        self._metrics.count({"files": len(planned)})
        for item in planned:
            self._metrics.update({"file_ms": item.ms or 0.0})
        yield planner.in_short(planned)
