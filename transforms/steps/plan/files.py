"""The plan of a run: which files are carried over, which are cut into spans, checked as a whole and
put on record.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import perf_counter
from typing import Any

from transforms.base import progress
from transforms.base.errors import InputChangedError, SentenceBeamError
from transforms.corpus import InputFile, limit_spans
from transforms.corpus.beside import Beside, merged
from transforms.corpus.files import BROKEN, check_distinct
from transforms.corpus.find import find_inputs
from transforms.corpus.groups import AnySpan
from transforms.steps.options.job import EmbedJob
from transforms.steps.plan import content
from transforms.steps.plan.append import by_names_on_record, same_content, with_earlier
from transforms.steps.plan.elements import ListedFiles, PlannedFiles, in_batches, spans_per_element
from transforms.steps.plan.footers import FILES_AT_ONCE, check_readable, checksum_of, read_footer
from transforms.steps.plan.groups import in_groups
from transforms.steps.plan.kept_types import with_types
from transforms.steps.plan.rows import check_files_left, check_plan_rows
from transforms.store.entries import InputEntry
from transforms.store.ledger import span_name
from transforms.store.manifest import Manifest
from transforms.store.records import Problem, UnitRecord, carried
from transforms.store.runs.carried import CarriedShards
from transforms.store.runs.carry import carry_renamed, of_files_read, under
from transforms.store.runs.commit import carried_shards, last_snapshot
from transforms.store.runs.lease import kept_alive
from transforms.store.runs.plan import PlannedFile, Standing, file_of, has_plan
from transforms.store.runs.plan_file import write_plan
from transforms.store.runs.plan_work import read_work
from transforms.store.runs.reuse import with_before
from transforms.store.runs.unchanged import by_name, in_full

ROUNDING = 1e-6  # 0.29 of a hundred files are 28.999999999999996


def list_files(pattern: str, job: EmbedJob) -> Iterator[InputFile | Beside | Problem | Standing]:
    """The files that a glob names and what lies beside them, or why it cannot be used.

    Where an attempt before this one has made the run's plan, nothing is listed: it stands, whatever
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
    """Raise SentenceBeamError for a folder that nothing is taken from in the place of a file that
    the store has.
    """
    last = None
    if folders and not job.append:
        last = last_snapshot(job.run)
    if last is not None:
        files = {entry.source for entry in last.files if entry.size}
    else:
        files = set()
    for folder in folders:
        if folder in files:
            raise SentenceBeamError(
                f"{folder} is a folder without files of --input now, and the store has the rows of"
                " the file that it was; put the file back, or remove the folder"
            )


class FilePlanner:
    """What to do with each file of a run: carried over if it has not changed, cut into spans
    if it has.
    """

    def __init__(self, job: EmbedJob):
        self._job = job
        self._shards = carried_shards(job.run)
        self._known: Manifest | None = None
        self._is_known = False

    def plan_all(self, files: Sequence[InputFile]) -> list[PlannedFile | Problem]:
        """What to do with each file, or why it cannot be used; they are looked at side by side."""
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
        """Planned files as they travel: what the last snapshot has of them need not."""
        # without files it may be unreadable
        last = None
        if planned and self._job.carry:
            last = self._last_snapshot()
        short = [by_name(item, last, self._job.delimiter) if last else None for item in planned]
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
        """As `_planned`; a file that cannot be read to its end is left out, with the reason, where
        the run may do that.

        What the last snapshot has of it is carried over as it was then, so that a later run sees
        that it differs.
        """
        try:
            planned = self._planned(file)
            if self._job.max_bad_files:
                check_readable(planned, self._job)
            return planned
        except SentenceBeamError as error:
            changed = isinstance(error, InputChangedError)
            if (
                not self._job.max_bad_files
                or changed
                or error.exit_code != SentenceBeamError.exit_code
            ):
                raise
            return self._left_out(file, error)

    def _left_out(self, file: InputFile, error: SentenceBeamError) -> PlannedFile:
        """A file that cannot be read, with the units that it had.

        Raises the error if these are damaged, mixed or not to be carried over, and for a folder
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
        """Raise SentenceBeamError if the rows of a file that cannot be read cannot stay in the
        store as they are.
        """
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
        """The file's units to carry over, or its spans. Raises OptionError if it cannot be
        read.
        """
        same, units = self._unchanged(file)
        checked = self._shards.check(units or [])
        # whose rows are read again; the file's other units are found finished
        if units is None or checked.damaged:
            return read_footer(PlannedFile(same, checked=checked), self._job)
        return PlannedFile(same, carried=tuple(map(self._shards.current, units)), checked=checked)

    def _unchanged(self, file: InputFile) -> tuple[InputFile, list[UnitRecord] | None]:
        """The file with its checksum, and the last snapshot's units of it to carry over if the
        bytes are the same.
        """
        if not self._job.carry:
            return replace(file, checksum=checksum_of(file)), None
        old, units = self._before(file)
        if old and old.version == file.version:
            return replace(file, checksum=old.checksum), units
        file = replace(file, checksum=checksum_of(file))
        return file, units if old and same_content(file, old) else None

    def _before(self, file: InputFile) -> tuple[InputEntry | None, list[UnitRecord]]:
        """The file as the last snapshot has it, if it does, and its units there; with buckets it
        has none.
        """
        last = self._last_snapshot()
        old = last.files_by_path.get(file.relative) if last else None
        return old, last.units_by_file.get(file.relative, []) if last and old else []

    def _is_counted(self, file: InputFile) -> bool:
        """Whether a unit of the last snapshot, which has the file, counts its rows."""
        last = self._last_snapshot()
        return last is not None and last.counts(file.relative)

    def _was_folder(self, file: InputFile) -> bool:
        """Whether the last snapshot has files below the path of this one."""
        last = self._last_snapshot()
        return last is not None and any(
            path.startswith(file.relative + "/") for path in last.files_by_path
        )

    def _last_snapshot(self) -> Manifest | None:
        if not self._is_known:
            self._known = last_snapshot(self._job.run)
            self._is_known = True
        return self._known


Begun = UnitRecord | PlannedFiles | Beside | Problem | Standing


def begin_by_content(found: list[Any], job: EmbedJob) -> list[Begun]:
    """The files, of which some are to be opened, or all units as carried; or the problems alone."""
    with kept_alive(job.root, job.run.id):
        return _begun_by_content(found, job)


def _begun_by_content(found: list[Any], job: EmbedJob) -> list[Begun]:
    try:
        # held, since all that follows looks into it
        last = last_snapshot(job.run) if job.carry else None
        if _stands(found, job):
            return list(content.begin_again(job))
        planned, problems = _whole_plan(found, job, last)
        if problems:
            return [*problems]
        return list(content.begin(planned, merged(found), job))
    except SentenceBeamError as error:
        return [Problem.of(error)]


def file_batches(
    pattern: str, job: EmbedJob
) -> Iterator[ListedFiles | Beside | Problem | Standing]:
    """As `list_files`, the files in batches: many small ones are planned side by side by one
    worker.
    """
    found = list(list_files(pattern, job))
    files = [item for item in found if isinstance(item, InputFile)]
    yield from (ListedFiles(tuple(some)) for some in in_batches(files))
    yield from (item for item in found if not isinstance(item, InputFile))


def record(
    found: list[Any], job: EmbedJob, slots: int | None
) -> Iterator[list[AnySpan] | UnitRecord | Problem]:
    """The whole plan, checked, written down and handed out; or its problems, and nothing handed
    out.

    Where one is on record, that is handed out: its units may be finished by now, and no others are
    to be.
    """
    try:
        with kept_alive(job.root, job.run.id):
            # Held, since all that follows looks into it too.
            last = None
            if job.reuse or job.carry:
                last = last_snapshot(job.run)
            spans, units, problems = _handed_out(found, job, last)
    except SentenceBeamError as error:
        yield Problem.of(error)
        return
    yield from problems
    progress.planned(sum(span.tokens for span in spans))
    yield from map(carried, units)
    spans, step = (
        with_before(spans, last if job.reuse else None),
        spans_per_element(len(spans), slots),
    )
    for start in range(0, len(spans), step):
        yield spans[start : start + step]


def _handed_out(
    found: list[Any], job: EmbedJob, last: Manifest | None
) -> tuple[list[AnySpan], list[UnitRecord], list[Problem]]:
    """The spans to embed and the units to carry over, put on record or found there; or problems
    alone.
    """
    stands = _stands(found, job)
    planned, problems = ([], []) if stands else _whole_plan(found, job, last)
    if problems:
        return [], [], problems
    if stands or not write_plan(job.root, job.run.id, planned, None, merged(found)):
        return *recorded(job), []
    return (
        [span for file in planned for span in file.work],
        [u for file in planned for u in file.carried],
        [],
    )


def _stands(found: list[Any], job: EmbedJob) -> bool:
    """Whether a plan is on record: it was before files were listed, or a worker died that had just
    made it.
    """
    return Standing() in found or (job.retried and has_plan(job.root, job.run.id))


def recorded(job: EmbedJob) -> tuple[list[AnySpan], list[UnitRecord]]:
    """The spans to embed and the units to carry over as the plan on record has them.

    Raises SentenceBeamError if it, or the last snapshot, is not as it was.
    """
    work = read_work(job.root, job.run.id, job.delimiter)
    manifest = last_snapshot(job.run) if work.carried else None
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
    """The checked plan of all files, or the problems that there are."""
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
    """All files of the plan; those that travelled by name with what the last snapshot has of
    them.
    """
    files = [file for item in planned for file in item.files]
    for file in (file for item in planned for file in item.unchanged):
        assert last is not None, "files travel by name where there is a last snapshot alone"
        files.append(in_full(file, last, delimiter))
    return files


def checked_plan(planned: list[PlannedFile], job: EmbedJob) -> list[PlannedFile]:
    """Files sorted by relative path, each once, the small ones in groups, cut to the run's limit.

    Raises OptionError if two do not fit or have too few rows for the index asked for,
    DataGateError if they have too few after the last snapshot.
    """
    check_distinct([item.file for item in planned])
    last = None if job.by_content else last_snapshot(job.run)
    shards = carried_shards(job.run)
    check_bad([item for item in planned if item.bad], len(planned), job)
    once = {
        item.file.path: item
        for item in sorted(planned, key=lambda item: (item.file.relative, item.file.path))
    }
    files = list(once.values())
    if job.append and last is not None:
        files = with_earlier(files, last, job, shards)
    if (
        job.carry
        and job.columns.id is not None
        and last is not None
        and any(item.spans for item in files)
    ):
        files = with_renamed(files, last, job, shards)
    if not job.by_content:
        files = in_groups(files, last, job, shards)
    files = with_types(files, job, last_snapshot(job.run))
    check_files_left(job, files)
    if not job.by_content:
        check_plan_rows(job, files)
    if job.limit is not None:
        return _limited(files, job.limit)
    return files


def check_bad(bad: list[PlannedFile], files: int, job: EmbedJob) -> None:
    """Raise SentenceBeamError, the reason of the first, where more files cannot be read than may be
    left out.
    """
    most = job.max_bad_files * (files if job.max_bad_files < 1 else 1)
    if len(bad) > most + ROUNDING:
        first = min(bad, key=lambda item: item.file.relative).bad
        raise SentenceBeamError(
            f"{len(bad)} of {files} files cannot be read, more than --max-bad-files"
            f" {job.max_bad_files:g} allows: {first}"
        )


def with_renamed(
    files: list[PlannedFile], last: Manifest, job: EmbedJob, shards: CarriedShards
) -> list[PlannedFile]:
    """The plan with renamed files carried, and those read whose shards could be written again by
    others.
    """
    files = carry_renamed(files, last, shards)
    while moving := of_files_read(files):
        paths = {item.file.path for item in moving}
        files = [read_footer(item, job) if item.file.path in paths else item for item in files]
    return files


def _limited(files: list[PlannedFile], limit: int) -> list[PlannedFile]:
    spans = limit_spans([span for item in files for span in item.spans], limit)
    return [replace(item, spans=tuple(s for s in spans if s.file == item.file)) for item in files]
