"""The work on the files of one element: carry over unchanged ones, cut others into spans."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import perf_counter

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import InputChangedError, SentenceBeamError
from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.corpus.files import BROKEN
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.append import same_content, same_path_values
from sentence_beam.transforms.steps.plan.elements import (
    PlannedFiles,
)
from sentence_beam.transforms.steps.plan.footers import (
    FILES_AT_ONCE,
    check_readable,
    checksum_of,
    read_footer,
)
from sentence_beam.transforms.store.entries import InputEntry
from sentence_beam.transforms.store.key_range import ALL_KEYS, KeyRange
from sentence_beam.transforms.store.known_files import KnownFiles, has_ranges, known_files
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs import packed_files
from sentence_beam.transforms.store.runs.commit import carried_shards, last_snapshot
from sentence_beam.transforms.store.runs.packed_files import can_pack, pack_files
from sentence_beam.transforms.store.runs.plan import PlannedFile, file_of
from sentence_beam.transforms.store.runs.unchanged import by_name


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
        if self.packs_spans:
            return self._with_spans_packed(planned)
        if known is None or not self._job.carry:
            return PlannedFiles(tuple(planned))
        others = []
        short = []
        to_pack = []
        names = []
        for item in planned:
            named = by_name(item, known, self._job.syntax)
            if named is None:
                others.append(item)
            elif self.packs and can_pack(item, self._job.run.unit_tokens):
                to_pack.append(item)
                names.append(named)
            else:
                short.append(named)
        if sum(len(item.carried) for item in to_pack) < packed_files.LEAST_UNITS:
            short += names
            to_pack = []
        packed = None
        if self.packs:
            packed = pack_files(to_pack, self._keys, known)
        return PlannedFiles(tuple(others), tuple(short), packed)

    def _with_spans_packed(self, planned: Sequence[PlannedFile]) -> PlannedFiles:
        """Return planned files of a new store as they travel."""
        found = (item for item in planned if can_pack(item, self._job.run.unit_tokens))
        to_pack = list({item.file.path: item for item in found}.values())
        if sum(len(item.spans) for item in to_pack) < packed_files.LEAST_UNITS:
            return PlannedFiles(tuple(planned))
        packed = {item.file.relative for item in to_pack}
        others = (item for item in planned if item.file.relative not in packed)
        return PlannedFiles(tuple(others), packed=pack_files(to_pack, self._keys))

    @property
    def packs(self) -> bool:
        """Whether unchanged files may be packed: the plan needs no other files of the snapshot."""
        return not self._needs_all and self.last is not None and has_ranges(self.last)

    @property
    def packs_spans(self) -> bool:
        """Whether files may be packed with their spans: no snapshot has files to compare with."""
        return not self._needs_all and self._job.run.previous is None

    @property
    def _needs_all(self) -> bool:
        job = self._job
        return job.append or job.by_content or job.limit is not None

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
        if old and old.version == file.version and same_path_values(file, old, self._job):
            return replace(file, checksum=old.checksum), units
        file = replace(file, checksum=checksum_of(file))
        if old and same_content(file, old, self._job):
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
