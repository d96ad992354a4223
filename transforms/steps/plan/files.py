"""The plan of a run: files to carry over, files to cut into spans, and its record."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import perf_counter
from typing import Any

from transforms.base import progress
from transforms.base.errors import InputChangedError, SentenceBeamError
from transforms.corpus import InputFile
from transforms.corpus.beside import Beside, merged
from transforms.corpus.files import BROKEN
from transforms.corpus.find import find_inputs
from transforms.corpus.groups import AnySpan
from transforms.steps.options.job import EmbedJob
from transforms.steps.plan import content
from transforms.steps.plan.append import by_names_on_record, same_content
from transforms.steps.plan.checked import checked_plan
from transforms.steps.plan.elements import (
    ListedFiles,
    PlannedFiles,
    by_key_ranges,
    spans_per_element,
)
from transforms.steps.plan.footers import FILES_AT_ONCE, check_readable, checksum_of, read_footer
from transforms.store.entries import InputEntry
from transforms.store.key_range import ALL_KEYS, KeyRange
from transforms.store.known_files import KnownFiles, known_files
from transforms.store.ledger import span_name
from transforms.store.manifest import Manifest
from transforms.store.records import Problem, UnitRecord
from transforms.store.runs.carried_ranges import CarriedRange, by_ranges
from transforms.store.runs.carry import under
from transforms.store.runs.commit import carried_shards, last_snapshot
from transforms.store.runs.lease import kept_alive
from transforms.store.runs.plan import PlannedFile, Standing, file_of, has_plan
from transforms.store.runs.plan_file import write_plan
from transforms.store.runs.plan_work import read_work
from transforms.store.runs.reuse import with_before
from transforms.store.runs.unchanged import by_name, in_full


def list_files(pattern: str, job: EmbedJob) -> Iterator[InputFile | Beside | Problem | Standing]:
    """List the files of a pattern and what lies beside them, or the problem with it.

    If an earlier attempt has recorded the run's plan, nothing is listed: the plan holds, whatever
    was added since.
    """
    if job.retried and has_plan(job.root, job.run.id):
        yield Standing()
        return
    try:
        with kept_alive(job.root, job.run.id), progress.stage("listing the input"):
            part = job.table_part(pattern)
            bad_too = job.max_bad_files > 0
            found = find_inputs(
                pattern, job.input_format, job.hidden, job.delimiter, part, bad_too, job.root
            )
            check_were_no_files(found.folders, job)
            if job.append:
                files = by_names_on_record(found.files, job)
            else:
                files = found.files
        yield from files
        if found.beside:
            yield Beside.of(found.beside, frozenset(job.run.globs), job.hidden)
    except SentenceBeamError as error:
        yield Problem.of(error)


def check_were_no_files(folders: list[str], job: EmbedJob) -> None:
    """Raise SentenceBeamError for an unused folder in the place of a file that the store has."""
    if not folders or job.append:
        return
    last = last_snapshot(job.run)
    if last is None:
        return
    files = {entry.source for entry in last.files if entry.size}
    for folder in folders:
        if folder in files:
            raise SentenceBeamError(
                f"{folder} is a folder without files of --input now, and the store has the rows of"
                " the file that it was; put the file back, or remove the folder"
            )


class FilePlanner:
    """Plans files with these keys: carries over unchanged ones, cuts others into spans.

    `last` is the last snapshot: whoever holds it finds it in memory for the next range.
    """

    def __init__(self, job: EmbedJob, keys: KeyRange = ALL_KEYS):
        self._job = job
        self._keys = keys
        self._shards = carried_shards(job.run, keys)
        self._known: KnownFiles | None = None
        self.last: Manifest | None = None

    def plan_all(self, files: Sequence[InputFile]) -> list[PlannedFile | Problem]:
        """Plan files in threads; returns a problem for each file that cannot be used, or only the
        problem with the last snapshot.
        """
        try:
            self._read_last()
        except SentenceBeamError as error:
            return [Problem.of(error)]
        step = max(1, -(-len(files) // FILES_AT_ONCE))
        # A thread has several: handing over one small file takes longer than looking at it.
        some = [files[start : start + step] for start in range(0, len(files), step)]
        with progress.stage("planning", things="files"), ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            return [
                item
                for planned in pool.map(lambda part: list(map(self._plan, part)), some)
                for item in planned
            ]

    def in_short(self, planned: Sequence[PlannedFile]) -> PlannedFiles:
        """Return planned files as they travel, without facts that the last snapshot has too."""
        known = self._known
        if known is None or not self._job.carry:
            return PlannedFiles(tuple(planned))
        short = [by_name(item, known, self._job.delimiter) for item in planned]
        others = tuple(item for item, named in zip(planned, short, strict=True) if named is None)
        return PlannedFiles(others, tuple(filter(None, short)))

    def _plan(self, file: InputFile) -> PlannedFile | Problem:
        started = perf_counter()
        try:
            planned = self._plan_or_leave_out(file)
        except SentenceBeamError as error:
            return Problem.of(error)
        progress.step()
        return replace(planned, ms=round(1000 * (perf_counter() - started), 3))

    def _plan_or_leave_out(self, file: InputFile) -> PlannedFile:
        """Plan a file as `_planned`; leave an unreadable file out, with the reason, if the run may.

        The rows of the last snapshot are carried over with its checksum, so that a later run sees
        the difference.
        """
        if not self._job.max_bad_files:
            return self._planned(file)
        try:
            planned = self._planned(file)
            check_readable(planned, self._job)
            return planned
        except InputChangedError:
            raise
        except SentenceBeamError as error:
            if error.exit_code != SentenceBeamError.exit_code:
                raise
            return self._left_out(file, error)

    def _left_out(self, file: InputFile, error: SentenceBeamError) -> PlannedFile:
        """Plan an unreadable file with the units that it had.

        Raises the error if these are damaged, mixed or cannot be carried over, and for a folder
        that had files.
        """
        old, units = self._before(file)
        has_rows = old is not None and old.size > 0 and self._is_counted(file)
        if has_rows:
            self._check_can_stay(error)
        checked = self._shards.check(units)
        if checked.damaged or (file.version == BROKEN and self._was_folder(file)):
            raise error
        if old and has_rows:
            kept = file_of(old)
        else:
            kept = replace(file, size=0, checksum="", version="")
        carried_over = tuple(map(self._shards.current, units))
        return PlannedFile(kept, carried=carried_over, checked=checked, bad=str(error))

    def _check_can_stay(self, error: SentenceBeamError) -> None:
        """Raise SentenceBeamError if the store cannot keep the rows of an unreadable file."""
        if self._job.by_content:
            raise SentenceBeamError(
                f"{error}; --max-bad-files cannot leave it out, since with --partition content the"
                " rows that it had are mixed with those of other files"
            ) from error
        if not self._job.carry:
            raise SentenceBeamError(
                f"{error}; --max-bad-files cannot keep its rows, because"
                f" {', '.join(self._job.read_again)} would change and all files are read again;"
                " mend the file first, or leave that out"
            ) from error

    def _planned(self, file: InputFile) -> PlannedFile:
        """Return the file with units to carry over, or with spans. Raises OptionError if it cannot
        be read.
        """
        same, units = self._unchanged(file)
        checked = self._shards.check(units or [])
        # whose rows are read again; the file's other units are found finished
        if units is None or checked.damaged:
            return read_footer(PlannedFile(same, checked=checked), self._job)
        return PlannedFile(same, carried=tuple(map(self._shards.current, units)), checked=checked)

    def _unchanged(self, file: InputFile) -> tuple[InputFile, list[UnitRecord] | None]:
        """Return the file with its checksum, and its units in the last snapshot if the bytes are
        the same, else None.
        """
        file = self._with_kept_cut(file)
        if not self._job.carry:
            return replace(file, checksum=checksum_of(file)), None
        old, units = self._before(file)
        if old and old.version == file.version:
            return replace(file, checksum=old.checksum), units
        file = replace(file, checksum=checksum_of(file))
        if old and same_content(file, old):
            return file, units
        return file, None

    def _with_kept_cut(self, file: InputFile) -> InputFile:
        """Return the file with the size of its spans in the last snapshot, if it has the file.

        With --reembed, and for files that had no bytes, it is chosen anew.
        """
        if "reembed" in self._job.read_again:
            return file
        old, _ = self._before(file)
        if old is None or not old.size:
            return file
        return replace(file, cut=old.cut)

    def _before(self, file: InputFile) -> tuple[InputEntry | None, list[UnitRecord]]:
        """Return the file and its units in the last snapshot; by content it has no units."""
        known = self._known
        if known is None or file.relative not in known.files_by_path:
            return None, []
        return known.files_by_path[file.relative], known.units_by_file.get(file.relative, [])

    def _is_counted(self, file: InputFile) -> bool:
        """Whether a unit of the last snapshot, which has the file, counts its rows."""
        return self.last is not None and self.last.counts(file.relative)

    def _was_folder(self, file: InputFile) -> bool:
        """Whether the last snapshot has files below the path of this one."""
        return self.last is not None and any(
            path.startswith(file.relative + "/") for path in self.last.files_by_path
        )

    def _read_last(self) -> None:
        """Read what the last snapshot has of these files, unless all is embedded again."""
        if "reembed" in self._job.read_again and not self._job.max_bad_files:
            return
        self.last = last_snapshot(self._job.run)
        if self.last is not None:
            self._known = known_files(self.last, self._keys)


Begun = UnitRecord | PlannedFiles | Beside | Problem | Standing


def begin_by_content(found: list[Any], job: EmbedJob) -> list[Begun]:
    """Return the files, some of them to be opened, or all units as carried; or only problems."""
    with kept_alive(job.root, job.run.id):
        return _begun_by_content(found, job)


def _begun_by_content(found: list[Any], job: EmbedJob) -> list[Begun]:
    try:
        # held, since all that follows looks into it
        last = None
        if job.carry:
            last = last_snapshot(job.run)
        if _stands(found, job):
            return list(content.begin_again(job))
        planned, problems = _whole_plan(found, job, last)
        if problems:
            return [*problems]
        return list(content.begin(planned, merged(found), job))
    except SentenceBeamError as error:
        return [Problem.of(error)]


def file_batches(
    pattern: str, job: EmbedJob, slots: int | None = None
) -> Iterator[ListedFiles | Beside | Problem | Standing]:
    """List files as `list_files`, in batches by ranges of their keys.

    So the worker that plans a batch reads its share of the last snapshot. One worker plans many
    small files in threads; `slots` as for `spans_per_element`.
    """
    found = list(list_files(pattern, job))
    files = [item for item in found if isinstance(item, InputFile)]
    yield from by_key_ranges(files, slots)
    yield from (item for item in found if not isinstance(item, InputFile))


def record(
    found: list[Any], job: EmbedJob, slots: int | None
) -> Iterator[list[AnySpan] | UnitRecord | CarriedRange | Problem]:
    """Check the whole plan, write it down and hand it out; or yield only its problems.

    Carried units are handed out by `by_ranges`. A plan that is already on record is handed out
    instead, because some of its units may be finished.
    """
    try:
        with kept_alive(job.root, job.run.id):
            # Held, since all that follows looks into it too.
            last = None
            if job.reuse or job.carry:
                last = last_snapshot(job.run)
            spans, units, problems = hand_out(found, job, last)
    except SentenceBeamError as error:
        yield Problem.of(error)
        return
    yield from problems
    progress.planned(sum(span.tokens for span in spans))
    yield from by_ranges(units, last)
    if not job.reuse:
        last = None
    spans = with_before(spans, last)
    step = spans_per_element(len(spans), slots)
    for start in range(0, len(spans), step):
        yield spans[start : start + step]


def hand_out(
    found: list[Any], job: EmbedJob, last: Manifest | None
) -> tuple[list[AnySpan], list[UnitRecord], list[Problem]]:
    """Return the spans to embed and the units to carry over, as put on record or found there; or
    only problems.
    """
    if _stands(found, job):
        return *recorded(job), []
    planned, problems = _whole_plan(found, job, last)
    if problems:
        return [], [], problems
    if not write_plan(job.root, job.run.id, planned, None, merged(found)):
        return *recorded(job), []
    spans = [span for file in planned for span in file.work]
    units = [unit for file in planned for unit in file.carried]
    return spans, units, []


def _stands(found: list[Any], job: EmbedJob) -> bool:
    """Whether a plan is on record: before files were listed, or by a worker that has died."""
    return Standing() in found or (job.retried and has_plan(job.root, job.run.id))


def recorded(job: EmbedJob) -> tuple[list[AnySpan], list[UnitRecord]]:
    """Return the spans to embed and the units to carry over from the plan on record.

    Raises SentenceBeamError if the plan or the last snapshot has changed.
    """
    work = read_work(job.root, job.run.id, job.delimiter)
    manifest = None
    if work.carried:
        manifest = last_snapshot(job.run)
    if manifest is None:
        return work.spans, []
    by_span: dict[str, list[UnitRecord]] = {}
    for unit in manifest.units:
        by_span.setdefault(span_name(unit.unit), []).append(unit)
    units = [unit for span in work.carried if span.was is None for unit in by_span[span.name]]
    renamed = {span.file: span.was for span in work.carried if span.was is not None}
    units += [
        under(file, unit) for file, was in renamed.items() for unit in manifest.units_by_file[was]
    ]
    return work.spans, units


def _whole_plan(
    found: list[Any], job: EmbedJob, last: Manifest | None
) -> tuple[list[PlannedFile], list[Problem]]:
    """Return the checked plan of all files, or the problems."""
    problems = [item for item in found if isinstance(item, Problem)]
    if problems:
        return [], problems
    try:
        planned = [item for item in found if isinstance(item, PlannedFiles)]
        return checked_plan(_in_full(planned, last, job.delimiter), job), []
    except SentenceBeamError as error:
        return [], [Problem.of(error)]


def _in_full(
    planned: list[PlannedFiles], last: Manifest | None, delimiter: str | None
) -> list[PlannedFile]:
    """Return all files of the plan; complete from the last snapshot those that travelled by
    name.
    """
    files = [file for item in planned for file in item.files]
    for file in (file for item in planned for file in item.unchanged):
        assert last is not None, "files travel by name only if there is a last snapshot"
        files.append(in_full(file, last, delimiter))
    return files
