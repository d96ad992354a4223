"""Small files of a plan put into groups, which are carried over or read as one."""

from dataclasses import dataclass, field, replace

from transforms.corpus.groups import GroupSpan, bits_of, choose_bits, group_name, is_small
from transforms.errors import SentenceBeamError
from transforms.steps.footers import read_footers
from transforms.steps.job import EmbedJob
from transforms.store.carried import CarriedShards
from transforms.store.entries import InputEntry
from transforms.store.ledger import span_name
from transforms.store.manifest import Manifest
from transforms.store.plan import PlannedFile, file_of
from transforms.store.records import UnitRecord


@dataclass(frozen=True)
class Groups:
    """The groups of a snapshot by name: their units, and their files; `bits` is None where it has none."""

    bits: int | None = None
    units: dict[str, list[UnitRecord]] = field(default_factory=dict)
    files: dict[str, list[InputEntry]] = field(default_factory=dict)

    @classmethod
    def of(cls, manifest: Manifest | None) -> "Groups":
        """The groups of a snapshot; without one there are none."""
        grouped = [unit for unit in manifest.units if bits_of(unit.unit) is not None] if manifest else []
        if manifest is None or not grouped:
            return cls()
        bits = bits_of(grouped[-1].unit)
        units: dict[str, list[UnitRecord]] = {}
        for unit in grouped:
            units.setdefault(span_name(unit.unit), []).append(unit)
        alone = manifest.units_by_file
        files: dict[str, list[InputEntry]] = {}
        for file in manifest.files:
            if bits is not None and file.path not in alone and is_small(file_of(file), manifest.unit_tokens):
                files.setdefault(group_name(file.path, bits), []).append(file)
        return cls(bits, units, files)

    def stuck(self, files: list[PlannedFile]) -> dict[str, list[PlannedFile]]:
        """The groups that have rows of files which cannot be read now, each with these."""
        bad = {item.file.relative: item for item in files if item.bad}
        found = {
            name: [bad[file.path] for file in some if file.size and file.path in bad]
            for name, some in self.files.items()
            if self.units.get(name)
        }
        return {name: some for name, some in found.items() if some}


def in_groups(
    files: list[PlannedFile], manifest: Manifest | None, job: EmbedJob, shards: CarriedShards
) -> list[PlannedFile]:
    """The plan with its small files in groups; the first file of each has the group's span, or its units if unchanged.

    A run with `--limit` reads files one by one. One that appends carries all groups over, and new files stay alone.
    """
    last = Groups.of(manifest)
    if job.append:
        return _all_carried(files, last, shards)
    stuck = last.stuck(files)
    small = [item for item in files if is_small(item.file, job.run.unit_tokens) and not item.bad]
    bits = last.bits if stuck else choose_bits([item.file for item in small], job.run.unit_tokens, last.bits)
    if bits is None or job.limit is not None:
        for bad in stuck.values():
            raise SentenceBeamError(bad[0].bad)
        return read_footers_of(files, last, job)
    groups: dict[str, list[PlannedFile]] = {name: [] for name in stuck}
    for item in small:
        groups.setdefault(group_name(item.file.relative, bits), []).append(item)
    grouped: list[PlannedFile] = []
    for name, items in groups.items():
        if name in stuck:
            grouped += _as_it_was(items, stuck[name], last.files[name], last.units[name], shards)
        else:
            grouped += _planned(name, items, last, job, shards)
    named = {item.file.relative for item in grouped}
    alone = [item for item in files if item.file.relative not in named]
    return sorted([*read_footers_of(alone, last, job), *grouped], key=lambda item: item.file.relative)


def read_footers_of(files: list[PlannedFile], last: Groups, job: EmbedJob) -> list[PlannedFile]:
    """The files, those opened that have not changed but were in a group."""
    were = {file.path for some in last.files.values() for file in some}
    bare = [item for item in files if _is_bare(item) and item.file.relative in were]
    opened = {item.file.relative: item for item in read_footers(bare, job)}
    return [opened.get(item.file.relative, item) for item in files]


def _is_bare(item: PlannedFile) -> bool:
    return not item.spans and not item.carried and not item.bad


def _planned(
    name: str, items: list[PlannedFile], last: Groups, job: EmbedJob, shards: CarriedShards
) -> list[PlannedFile]:
    """The files of a group, carried over where they are those that it had, and all unchanged; else read."""
    items = sorted(items, key=lambda item: item.file.relative)
    units = last.units.get(name, [])
    before = {(file.path, file.checksum) for file in last.files.get(name, ()) if file.checksum}  # no bad ones
    if all(map(_is_bare, items)) and {(item.file.relative, item.file.checksum) for item in items} == before:
        checked = shards.check(units)
        if not checked.damaged:
            return [_with_units(items[0], units, shards), *items[1:]]
        items[0] = replace(items[0], checked=items[0].checked.merge(checked))
    opened = read_footers([item if item.spans else replace(item, kept=None) for item in items], job)
    spans = tuple(span for item in opened for span in item.spans)
    read = [replace(item, spans=()) for item in opened]
    return [replace(read[0], group=GroupSpan(name, spans)), *read[1:]] if spans else read


def _as_it_was(
    items: list[PlannedFile],
    bad: list[PlannedFile],
    before: list[InputEntry],
    units: list[UnitRecord],
    shards: CarriedShards,
) -> list[PlannedFile]:
    """The files of a group some of which cannot be read: all as the snapshot has them, since they share its units.

    Those of them that are new, changed or gone are bad too. Raises SentenceBeamError where a shard is damaged.
    """
    if shards.check(units).damaged:
        raise SentenceBeamError(bad[0].bad)
    why = f"it shares units with {bad[0].file.path}, which cannot be read"
    now = {item.file.relative: item for item in (*items, *bad)}
    kept: list[PlannedFile] = []
    for entry in sorted(before, key=lambda entry: entry.path):
        item = now.pop(entry.path, None)
        if item is None:
            reason = f"{entry.source} is gone and stays in the store: {why}"
        elif item.bad or item.file.checksum == entry.checksum:
            reason = item.bad
        else:
            reason = f"{entry.source} has changed and stays as it was: {why}"
        kept.append(PlannedFile(file_of(entry), bad=reason))
    new = [replace(item.file, size=0, checksum="", version="") for item in now.values()]
    left_out = [PlannedFile(file, bad=f"{file.path} is new and left out: {why}") for file in new]
    return [_with_units(kept[0], units, shards), *kept[1:], *left_out]


def _all_carried(files: list[PlannedFile], last: Groups, shards: CarriedShards) -> list[PlannedFile]:
    """The plan with every group of the snapshot carried over. Raises SentenceBeamError where a shard is gone."""
    first = {min(file.path for file in some): name for name, some in last.files.items()}
    return [
        _with_units(item, last.units.get(first[item.file.relative], []), shards)
        if item.file.relative in first
        else item
        for item in files
    ]


def _with_units(item: PlannedFile, units: list[UnitRecord], shards: CarriedShards) -> PlannedFile:
    checked = shards.check(units)
    for gone in checked.damaged:
        raise SentenceBeamError(f"{gone} in the store is missing or was changed; run again without --append")
    return replace(item, carried=tuple(map(shards.current, units)), checked=item.checked.merge(checked))
