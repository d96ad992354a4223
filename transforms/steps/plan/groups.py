"""Small files of a plan put into groups, which are carried over or read as one.

The last snapshot says which files its groups have. Sizes only decide if files go that are read.
"""

from dataclasses import dataclass, replace

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.corpus.groups import GroupSpan, choose_bits, group_name, is_small
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.append import still_there
from sentence_beam.transforms.steps.plan.footers import read_footers
from sentence_beam.transforms.store.entries import InputEntry
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.carried import CarriedShards
from sentence_beam.transforms.store.runs.plan import PlannedFile, file_of

Groups = dict[str, list[PlannedFile]]


def in_groups(
    files: list[PlannedFile], last: Manifest | None, job: EmbedJob, shards: CarriedShards
) -> list[PlannedFile]:
    """Put the small files of a plan in groups; the first of each has the group's span or units.

    A run with `--limit` reads files one by one. A run that appends keeps the groups of the
    snapshot, and new files stay alone. Other files without spans and units are opened.
    """
    stuck = {}
    if last is not None and job.carry:
        stuck = stuck_groups(files, last)
    if job.append:
        groups = groups_on_record(files, last)
    else:
        groups = groups_by_size(files, last, job, bool(stuck))
    planner = GroupPlanner({item.file.relative: item for item in files}, last, job, shards)
    grouped: list[PlannedFile] = []
    for name in {**groups, **stuck}:
        if name in stuck:
            grouped += planner.as_it_was(name, groups.get(name, []), stuck[name][0])
        else:
            grouped += planner.planned(name, groups[name])
    named = {item.file.relative for item in grouped}
    alone = with_rows_counted([item for item in files if item.file.relative not in named], job)
    return sorted([*alone, *grouped], key=lambda item: item.file.relative)


def stuck_groups(files: list[PlannedFile], last: Manifest) -> Groups:
    """The groups that have rows of files which cannot be read now, each with these."""
    found: Groups = {}
    for item in files:
        entry = None
        if item.bad:
            entry = last.files_by_path.get(item.file.relative)
        if entry is not None and entry.size and last.group_of(entry):
            found.setdefault(last.group_of(entry), []).append(item)
    return found


def groups_on_record(files: list[PlannedFile], last: Manifest | None) -> Groups:
    """The files that can be read, by the groups that the last snapshot has them in."""
    found: Groups = {}
    if last is None:
        return found
    for item in files:
        entry = last.files_by_path.get(item.file.relative)
        if entry is not None and not item.bad and last.group_of(entry):
            found.setdefault(last.group_of(entry), []).append(item)
    return found


def groups_by_size(
    files: list[PlannedFile], last: Manifest | None, job: EmbedJob, keep_bits: bool
) -> Groups:
    """Return the small readable files by group; the files' sizes decide the number of groups.

    With `keep_bits` it is that of the last snapshot. With a limit no file is in a group.
    """
    if job.limit is not None:
        return {}
    small = [item for item in files if is_small(item.file, job.run.unit_tokens) and not item.bad]
    bits = None
    if last is not None:
        bits = last.group_bits
    if not keep_bits:
        bits = choose_bits([item.file for item in small], job.run.unit_tokens, bits)
    found: Groups = {}
    if bits is None:
        return found
    for item in small:
        found.setdefault(group_name(item.file.relative, bits), []).append(item)
    return found


def with_rows_counted(files: list[PlannedFile], job: EmbedJob) -> list[PlannedFile]:
    """Open the files without spans and units, so that their rows are counted."""
    bare = [item for item in files if item.is_bare and item.file.size]
    opened = {item.file.relative: item for item in read_footers(bare, job)}
    return [opened.get(item.file.relative, item) for item in files]


@dataclass(frozen=True)
class GroupPlanner:
    """Plans groups of a run's files (by relative path) beside those of the last snapshot."""

    files: dict[str, PlannedFile]
    last: Manifest | None
    job: EmbedJob
    shards: CarriedShards

    def planned(self, name: str, items: list[PlannedFile]) -> list[PlannedFile]:
        """Carry a group over if it has the same files, all unchanged; else read it.

        Raises SentenceBeamError for a damaged shard of a group whose files may be gone by now.
        """
        items = sorted(items, key=lambda item: item.file.relative)
        if not self._is_unchanged(name, items):
            return self._read(name, items)
        checked = self.shards.check(self._units(name))
        if not checked.damaged:
            return self._carried(name, items)
        if self.job.append:
            raise SentenceBeamError(
                f"{checked.damaged[0]} in the store is missing or was changed; run again without"
                " --append"
            )
        items[0] = replace(items[0], checked=items[0].checked.merge(checked))
        return self._read(name, items)

    def as_it_was(self, name: str, items: list[PlannedFile], bad: PlannedFile) -> list[PlannedFile]:
        """Carry over a group with an unreadable file: all files as in the snapshot, since they
        share its units.

        Changed, missing and new files are bad too. Raises SentenceBeamError if a shard is damaged.
        """
        if self.shards.check(self._units(name)).damaged:
            raise SentenceBeamError(bad.bad)
        why = f"it shares units with {bad.file.path}, which cannot be read"
        entries = sorted(self._entries(name), key=lambda entry: entry.path)
        kept = [self._kept(entry, why) for entry in entries]
        had = {entry.path for entry in entries}
        new = [item.file for item in items if item.file.relative not in had]
        left_out = [
            PlannedFile(
                replace(file, size=0, checksum="", version=""),
                bad=f"{file.path} is new and left out: {why}",
            )
            for file in new
        ]
        return [*self._carried(name, kept), *left_out]

    def _kept(self, entry: InputEntry, why: str) -> PlannedFile:
        """Return a file as in the snapshot, with the reason if it has changed or is unreadable."""
        item = self.files.get(entry.path)
        if item is None:
            return PlannedFile(
                file_of(entry), bad=f"{entry.source} is gone and stays in the store: {why}"
            )
        if item.bad or item.file.checksum == entry.checksum:
            return PlannedFile(file_of(entry), kept=item.kept, bad=item.bad)
        return PlannedFile(
            file_of(entry), bad=f"{entry.source} has changed and stays as it was: {why}"
        )

    def _entries(self, name: str) -> list[InputEntry]:
        if self.last is not None:
            return self.last.files_by_group.get(name, [])
        return []

    def _units(self, name: str) -> list[UnitRecord]:
        if self.last is not None:
            return self.last.units_by_group.get(name, [])
        return []

    def _is_unchanged(self, name: str, items: list[PlannedFile]) -> bool:
        before = {(entry.path, entry.checksum) for entry in self._entries(name)}
        now = {(item.file.relative, item.file.checksum) for item in items}
        return self.job.carry and all(item.is_bare for item in items) and now == before

    def _carried(self, name: str, items: list[PlannedFile]) -> list[PlannedFile]:
        units = self._units(name)
        carried = tuple(map(self.shards.current, units))
        checked = items[0].checked.merge(self.shards.check(units))
        first, *others = (replace(item, in_group=name) for item in items)
        return [replace(first, carried=carried, checked=checked), *others]

    def _read(self, name: str, items: list[PlannedFile]) -> list[PlannedFile]:
        if self.job.append:
            items = still_there(items)
        to_open = []
        for item in items:
            if not item.spans and not item.is_rowless:
                item = replace(item, kept=None)
            to_open.append(item)
        opened = read_footers(to_open, self.job)
        spans = tuple(span for item in opened for span in item.spans)
        if not spans:
            return opened
        first, *others = (replace(item, spans=(), in_group=name) for item in opened)
        return [replace(first, group=GroupSpan(name, spans)), *others]
