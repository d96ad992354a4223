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
        alone = {unit.file for unit in manifest.units if bits_of(unit.unit) is None}
        files: dict[str, list[InputEntry]] = {}
        for file in manifest.files:
            if bits is not None and file.path not in alone and is_small(file_of(file), manifest.unit_tokens):
                files.setdefault(group_name(file.path, bits), []).append(file)
        return cls(bits, units, files)


def in_groups(
    files: list[PlannedFile], manifest: Manifest | None, job: EmbedJob, shards: CarriedShards
) -> list[PlannedFile]:
    """The plan with its small files in groups; the first file of each has the group's span, or its units if unchanged.

    A run with `--limit` reads files one by one. One that appends carries all groups over, and new files stay alone.
    """
    last = Groups.of(manifest)
    if job.append:
        return _all_carried(files, last, shards)
    small = [item for item in files if is_small(item.file, job.run.unit_tokens) and not item.bad]
    bits = choose_bits([item.file for item in small], job.run.unit_tokens, last.bits)
    if bits is None or job.limit is not None:
        return read_footers_of(files, last, job)
    groups: dict[str, list[PlannedFile]] = {}
    for item in small:
        groups.setdefault(group_name(item.file.relative, bits), []).append(item)
    grouped = [planned for name, items in groups.items() for planned in _planned(name, items, last, job, shards)]
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
    before = {(file.path, file.checksum) for file in last.files.get(name, ())}
    if all(map(_is_bare, items)) and {(item.file.relative, item.file.checksum) for item in items} == before:
        checked = shards.check(units)
        if not checked.damaged:
            return [_with_units(items[0], units, shards), *items[1:]]
        items[0] = replace(items[0], checked=items[0].checked.merge(checked))
    opened = read_footers([item if item.spans else replace(item, kept=None) for item in items], job)
    spans = tuple(span for item in opened for span in item.spans)
    read = [replace(item, spans=()) for item in opened]
    return [replace(read[0], group=GroupSpan(name, spans)), *read[1:]] if spans else read


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
