"""Plan: globs -> files -> spans, checked as a whole and put on record before anything is embedded."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput

from transforms import progress, storage
from transforms.beam import content
from transforms.beam.job import CARRIED, PROBLEMS, check_worker, is_one_process, spans_per_element
from transforms.corpus import InputFile, limit_spans, match_inputs
from transforms.corpus.files import check_distinct
from transforms.errors import SentenceBeamError
from transforms.steps.footers import check_types, read_footer
from transforms.steps.job import EmbedJob
from transforms.store.carry import carry_renamed, of_files_read
from transforms.store.manifest import Manifest, read_manifest
from transforms.store.plan import PlannedFile, write_plan
from transforms.store.records import Problem, UnitRecord, carried
from transforms.store.units import ShardsPresent


class Plan(beam.PTransform):
    """Globs -> `spans`, lists of spans to embed; `carried`, units taken over; `problems`, which end the run instead.

    By content, the lists are `ToRead`, which know the buckets that their rows go into.
    """

    def __init__(self, job: EmbedJob):
        super().__init__()
        self._job = job

    def expand(self, globs: beam.PCollection) -> Any:
        together = (
            globs
            | "ListFiles" >> beam.FlatMap(list_files, self._job.input_format)
            # Footers are read in parallel: listing and reading must not fuse.
            | "SpreadFiles" >> beam.Reshuffle()
            | "PlanFile" >> beam.ParDo(PlanFileFn(self._job))
            | "OneKey" >> beam.Map(lambda planned: (None, planned))
            | "Together" >> beam.GroupByKey()
        )
        if self._job.by_content:
            return self._by_content(together)
        write_down = beam.FlatMap(record, self._job, is_one_process(globs.pipeline))
        return together | "Record" >> write_down.with_outputs(PROBLEMS, CARRIED, main="spans")

    def _by_content(self, together: beam.PCollection) -> "Planned":
        checked = together | "Check" >> beam.FlatMap(check, self._job).with_outputs(PROBLEMS, CARRIED, main="spans")
        recorded = (
            checked.spans
            # How many buckets there are must not depend on how the rows lie in files, so the rows are counted first.
            | "SpreadSpans" >> beam.Reshuffle()
            | "Count" >> beam.ParDo(content.CountFn(self._job))
            | "OneKeyAgain" >> beam.Map(lambda counted: (None, counted))
            | "TogetherAgain" >> beam.GroupByKey()
            | "Record" >> beam.FlatMap(content.record, self._job).with_outputs(PROBLEMS, main="spans")
        )
        problems = (checked.problems, recorded.problems) | "Problems" >> beam.Flatten()
        return Planned(recorded.spans, checked.carried, problems)


class Planned(NamedTuple):
    """What a plan gives."""

    spans: beam.PCollection
    carried: beam.PCollection
    problems: beam.PCollection


def list_files(pattern: str, file_format: str) -> Iterator[InputFile | Problem]:
    """The files that a glob names, or why it cannot be used."""
    try:
        yield from match_inputs(pattern, file_format)
    except SentenceBeamError as error:
        yield Problem.of(error)


class PlanFileFn(beam.DoFn):
    """A file -> what to do with it: carried over where it has not changed, cut into spans where it has."""

    def __init__(self, job: EmbedJob):
        self._job = job

    def setup(self) -> None:
        self._stands = ShardsPresent(self._job.root)
        self._known: dict[str, tuple[dict[str, Any], list[UnitRecord]]] | None = None

    def process(self, file: InputFile | Problem) -> Iterator[PlannedFile | Problem]:
        if isinstance(file, Problem):
            yield file
            return
        try:
            check_worker(self._job)
            yield self._plan(file)
        except SentenceBeamError as error:
            yield Problem.of(error)

    def _plan(self, file: InputFile) -> PlannedFile:
        checked, units = self._unchanged(file)
        if units is not None:
            return PlannedFile(checked, carried=tuple(units))
        return read_footer(PlannedFile(checked), self._job)

    def _unchanged(self, file: InputFile) -> tuple[InputFile, list[UnitRecord] | None]:
        """The file with its checksum, and the last snapshot's units of it where the bytes are the same."""
        old, units = self._last_snapshot().get(file.relative, ({}, []))
        if not all(map(self._stands, units)):
            old = {}  # a shard is gone: its rows are read again, the other units are found finished
        if old and old["version"] == file.version:
            return replace(file, checksum=old["checksum"]), units
        file = replace(file, checksum=checksum_of(file))
        same = old and (old["size"], old["checksum"], old["format"]) == (file.size, file.checksum, file.format)
        return file, units if same else None

    def _last_snapshot(self) -> dict[str, tuple[dict[str, Any], list[UnitRecord]]]:
        if self._known is None:
            previous = self._job.run.previous if self._job.carry else None
            manifest = read_manifest(self._job.root, previous) if previous else None
            self._known = units_by_file(manifest) if manifest else {}
        return self._known


def checksum_of(file: InputFile) -> str:
    """The checksum of an input's content. Raises SentenceBeamError for a file that may not be read or is gone."""
    try:
        return storage.checksum_of(file.entry)
    except (FileNotFoundError, PermissionError) as error:
        raise SentenceBeamError(
            f"{file.path} cannot be read ({error.strerror}); mend that or leave it out of --input"
        ) from error


def units_by_file(manifest: Manifest) -> dict[str, tuple[dict[str, Any], list[UnitRecord]]]:
    """Input files of a snapshot with their units, by relative path; buckets are of no file."""
    files: dict[str, tuple[dict[str, Any], list[UnitRecord]]] = {f["path"]: (f, []) for f in manifest.files}
    for unit in manifest.units if manifest.buckets is None else ():
        files[unit.file][1].append(unit)
    return files


Found = tuple[None, Iterable[PlannedFile | Problem]]


def check(grouped: Found, job: EmbedJob) -> Iterator[Any]:
    """The files and what there is to count in them, or all units as carried; or the problems alone."""
    planned, problems = together(grouped, job)
    try:
        found = list(content.begin(planned, job)) if not problems else []
    except SentenceBeamError as error:
        found, problems = [], [Problem.of(error)]
    yield from found
    yield from (TaggedOutput(PROBLEMS, problem) for problem in problems)


def together(grouped: Found, job: EmbedJob) -> tuple[list[PlannedFile], list[Problem]]:
    """The whole plan, checked, or its problems."""
    found = list(grouped[1])
    problems = [item for item in found if isinstance(item, Problem)]
    if problems:
        return [], problems
    try:
        return checked_plan([item for item in found if isinstance(item, PlannedFile)], job), []
    except SentenceBeamError as error:
        return [], [Problem.of(error)]


def record(grouped: Found, job: EmbedJob, one_process: bool) -> Iterator[Any]:
    """The whole plan, checked, written down and handed out; or its problems, and nothing handed out."""
    planned, problems = together(grouped, job)
    if problems:
        for problem in problems:
            yield TaggedOutput(PROBLEMS, problem)
        return
    write_plan(job.root, job.run.id, planned)
    spans = [span for file in planned for span in file.spans]
    progress.planned(sum(span.tokens for span in spans))
    for file in planned:
        yield from (TaggedOutput(CARRIED, carried(unit)) for unit in file.carried)
    step = spans_per_element(len(spans), one_process)
    for start in range(0, len(spans), step):
        yield spans[start : start + step]


def checked_plan(planned: list[PlannedFile], job: EmbedJob) -> list[PlannedFile]:
    """Files sorted by relative path, each once, cut to the run's limit; raises OptionError where two do not fit."""
    check_distinct([item.file for item in planned])
    once = {item.file.path: item for item in sorted(planned, key=lambda item: (item.file.relative, item.file.path))}
    files = list(once.values())
    if job.carry and job.columns.id is not None and not job.by_content:
        files = with_renamed(files, job)
    check_types(files, job)
    return _limited(files, job.limit) if job.limit is not None else files


def with_renamed(files: list[PlannedFile], job: EmbedJob) -> list[PlannedFile]:
    """The plan with renamed files carried, and those read whose shards could be written again by others."""
    manifest = read_manifest(job.root, job.run.previous) if any(item.spans for item in files) else None
    if manifest is None:
        return files
    files = carry_renamed(files, manifest, ShardsPresent(job.root))
    while moving := of_files_read(files):
        paths = {item.file.path for item in moving}
        files = [read_footer(item, job) if item.file.path in paths else item for item in files]
    return files


def _limited(files: list[PlannedFile], limit: int) -> list[PlannedFile]:
    spans = limit_spans([span for item in files for span in item.spans], limit)
    return [replace(item, spans=tuple(s for s in spans if s.file == item.file)) for item in files]
