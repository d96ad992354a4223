"""The manifest: one committed state of a store, and the only list of its files.

Above 20 000 units or files the lists move into parts, named by their sha256. Parts are read when
they are needed: all of them, or, by a worker, only those that can have the units it looks for.
"""

import contextlib
import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, TypeVar

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.entries import BESIDE, SPARSE, JsonEntry, one_of, time
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.corpus.groups import bits_of, group_name
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store import layout, manifest_parts
from sentence_beam.transforms.store.changes_entry import ChangesEntry
from sentence_beam.transforms.store.counts import RowCounts, TokenCounts, WorkCounts
from sentence_beam.transforms.store.entries import (
    CalibrationEntry,
    CanaryEntry,
    ForgottenEntry,
    Input,
    InputEntry,
    PartEntry,
    RangesEntry,
    RememberedOptions,
    RunName,
    WatchEntry,
)
from sentence_beam.transforms.store.forms import run_form
from sentence_beam.transforms.store.index_entries import IndexEntry
from sentence_beam.transforms.store.kept import Kept
from sentence_beam.transforms.store.key_range import AFTER
from sentence_beam.transforms.store.ledger import span_name
from sentence_beam.transforms.store.manifest_parts import (
    read_parts,
    units_named,
    units_of_part,
)
from sentence_beam.transforms.store.part_lists import Lists, in_order, read_lists
from sentence_beam.transforms.store.records import UnitRecord, by_file
from sentence_beam.transforms.store.sealed_json import FENCE, check_digest, digest_of

T = TypeVar("T")
FORMAT = 2
WATCHED_FORMAT = 3  # with lists in ranges or watched queries, which earlier versions would drop
LATEST_FORMAT = 4  # with erased rows, which earlier versions would take back in
# 1: version 0.1.0, whose segments hold the quantizer each and whose manifests have no digest
FORMATS = (1, FORMAT, WATCHED_FORMAT, LATEST_FORMAT)
UNITS_IN_ONE_FILE = 20_000
WITHOUT_DIGEST = {
    "format", "run", "space", "partition", "unit_tokens", "generation", "buckets", "rows", "work",
    "tokens", "index", "ranges", "calibration", "input", "canary", "options", "versions", "started",
    "finished", "previous", "shards", "parts", FENCE,
}  # fmt: skip
# all fields of the versions that wrote no digest


@dataclass(frozen=True)
class Manifest(JsonEntry):
    """A snapshot: the fields of its manifest.

    `data` is the manifest's JSON, `root` the store it was read from.
    """

    root: str = field(kw_only=True, metadata=BESIDE)
    data: dict[str, Any] = field(default_factory=dict, kw_only=True, metadata=BESIDE)
    version: str | None = field(default=None, kw_only=True, compare=False, metadata=BESIDE)
    run: RunName
    previous: RunName | None
    space: Space
    partition: Annotated[str, one_of("file", "content")]
    unit_tokens: int
    rows: RowCounts
    work: WorkCounts
    tokens: TokenCounts
    shards: tuple[dict[str, Any], ...]
    index: IndexEntry | None
    input: Input
    options: RememberedOptions
    started: Annotated[str, time]
    finished: Annotated[str, time]
    parts: tuple[PartEntry, ...] = ()
    buckets: Buckets | None = None
    ranges: RangesEntry | None = None
    canary: CanaryEntry | None = None
    calibration: CalibrationEntry | None = None
    generation: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    check_from: int = 0
    chunks: str = "none"
    watch: WatchEntry | None = field(default=None, metadata=SPARSE)
    changes: ChangesEntry | None = field(default=None, metadata=SPARSE)
    forgotten: ForgottenEntry | None = field(default=None, metadata=SPARSE)
    format: int = FORMAT

    @classmethod
    def of(cls, root: str, data: dict[str, Any], version: str | None = None) -> "Manifest":
        """Return the snapshot of a manifest's JSON.

        Raises ValueError or OptionError naming a field that no manifest has.
        """
        return cls.from_json(data, root=root, data=data, version=version)

    @cached_property
    def digest(self) -> str:
        """The digest over everything that the snapshot's manifest says."""
        return str(self.data.get("digest") or digest_of(self.data))

    @cached_property
    def _lists(self) -> tuple[list[UnitRecord], list[InputEntry]]:
        """All units and files.

        The JSON of a unit from a part is not kept beside its record, which is a third of its size.
        """
        if self.parts:
            return in_order(self._part_lists.values())
        return (self.records(self.shards), [*self.input.files])

    @cached_property
    def _part_lists(self) -> dict[str, Lists]:
        return read_lists(self.root, self.parts, self.records, self._shared_lists)

    @cached_property
    def _shared_lists(self) -> dict[str, Lists]:
        return {}

    def share(self, other: "Manifest") -> None:
        """Share the units and files of parts that another opened snapshot has read."""
        forms = [run_form(one.space, one.generation, one.options) for one in (self, other)]
        if self.root == other.root and forms[0] == forms[1] and "_lists" in other.__dict__:
            own = {part.sha256 for part in self.parts}
            known = {sha256: found for sha256, found in other._part_lists.items() if sha256 in own}
            self._shared_lists.update(known)

    @property
    def units(self) -> list[UnitRecord]:
        """The records of all units of the snapshot, sorted by name.

        Raises SentenceBeamError for an entry that is no unit's record.
        """
        return self._lists[0]

    @property
    def unit_count(self) -> int:
        """The number of units of the snapshot; reads no part."""
        if self.parts:
            return sum(part.units for part in self.parts)
        return len(self.shards)

    def units_but(self, parts: Collection[PartEntry]) -> list[UnitRecord]:
        """Return the records of all units except those in some of its parts.

        These parts are not read. Raises as `units` does.
        """
        if not parts:
            return self.units
        others = [part for part in self.parts if part not in parts]
        return in_order(read_lists(self.root, others, self.records, {}).values())[0]

    def records(self, listed: Iterable[dict[str, Any]]) -> list[UnitRecord]:
        """Return the records of units from their JSON, by name. Raises as `units` does."""
        # of shards whose records lack theirs
        form = run_form(self.space, self.generation, self.options)
        try:
            units = [UnitRecord.from_dict({"form": form, **unit}) for unit in listed]
            return sorted(units, key=lambda unit: unit.unit)
        except SentenceBeamError as error:
            raise SentenceBeamError(
                f"{storage.join(self.root, layout.snapshot(self.run))} is corrupt ({error});"
                " restore it from a copy"
            ) from error

    def units_of(self, name: str) -> list[UnitRecord]:
        """Return the records of a unit, and of all units of a file, span or group.

        Their names continue `name` with `-` or `.`.

        Of the parts only those are read that can have them. Raises SentenceBeamError as `units`
        does.
        """
        if not self.parts or any(part.units and not part.first for part in self.parts):
            return units_named(self._by_name, name)
        parts = (part for part in self.parts if part.first < name + AFTER and name <= part.last)
        return self.records(
            unit for part in parts for unit in units_named(units_of_part(self.root, part), name)
        )

    @cached_property
    def _by_name(self) -> tuple[list[str], list[UnitRecord]]:
        units = sorted(self.units, key=lambda unit: unit.unit)
        return [unit.unit for unit in units], units

    @property
    def files(self) -> list[InputEntry]:
        """The entries of all input files, with size and checksum."""
        return self._lists[1]

    @cached_property
    def files_by_path(self) -> dict[str, InputEntry]:
        """The input files by relative path."""
        return {file.path: file for file in self.files}

    @cached_property
    def units_by_file(self) -> dict[str, list[UnitRecord]]:
        """The units of each file that has units of its own, by its relative path.

        Units of groups and buckets belong to no single file.
        """
        return by_file(unit for unit in self.units if unit.file)

    @cached_property
    def units_by_group(self) -> dict[str, list[UnitRecord]]:
        """The units of each group of small files, by its name."""
        found: dict[str, list[UnitRecord]] = {}
        for unit in self.units:
            if bits_of(unit.unit) is not None:
                found.setdefault(span_name(unit.unit), []).append(unit)
        return found

    @cached_property
    def files_by_group(self) -> dict[str, list[InputEntry]]:
        """The files whose rows the units of each group have, by its name."""
        found: dict[str, list[InputEntry]] = {}
        for file in self.files:
            name = self.group_of(file)
            if name:
                found.setdefault(name, []).append(file)
        return found

    @cached_property
    def group_bits(self) -> int | None:
        """The bits of the groups' number; None without groups."""
        return max((bits_of(name) or 0 for name in self.units_by_group), default=None)

    @cached_property
    def _has_groups_unrecorded(self) -> bool:
        """Whether an earlier version wrote groups without listing their files."""
        return bool(self.units_by_group) and not any(file.group for file in self.files)

    def group_of(self, file: InputEntry) -> str:
        """Return the name of the group whose units have a file's rows; "" if it is in none.

        Of a store by an earlier version, it is that of every file that was not left out and has no
        units of its own.
        """
        name = file.group
        if self._has_groups_unrecorded and file.checksum and file.path not in self.units_by_file:
            name = group_name(file.path, self.group_bits or 0)
        return name if name in self.units_by_group else ""

    def counts(self, path: str) -> bool:
        """Return whether a unit counts the rows of an input file.

        The unit may be one of its own, of its group, or any bucket.
        """
        if self.partition == "content" or path in self.units_by_file:
            return True
        return bool(self.group_of(self.files_by_path[path]))

    @cached_property
    def rows_of(self) -> dict[str, int]:
        """The rows of each shard, by its path in the store."""
        return {unit.path: unit.rows for unit in self.units if unit.path}

    def content(self) -> Iterator[dict[str, Any]]:
        """Yield all JSON of the snapshot: the manifest's own, then that of each of its parts."""
        yield self.data
        for part in read_parts(self.root, self.parts):
            yield part.to_json()

    @property
    def metric(self) -> str:
        """The metric of the index; without one, that of the model."""
        if self.index:
            return self.index.metric
        return self.options.metric or "cosine"

    @cached_property
    def shard_units(self) -> list[UnitRecord]:
        """The units that have a shard, by name; the number of a shard is its place here."""
        if all(unit.path for unit in self.units):
            return self.units  # not another list of millions
        return [unit for unit in self.units if unit.path]

    def shard_number(self, path: str) -> int:
        """Return the number of a shard of the snapshot, by its path in the store."""
        units = self.shard_units
        number = bisect_left(units, layout.unit(path), key=lambda unit: unit.unit)
        if number < len(units) and units[number].path == path:
            return number
        return self._renamed_shards[path]

    @cached_property
    def _renamed_shards(self) -> dict[str, int]:
        """The numbers of shards by path, if their unit got another name with its file."""
        return {
            str(unit.path): number
            for number, unit in enumerate(self.shard_units)
            if layout.unit(str(unit.path)) != unit.unit
        }

    @property
    def shard_paths(self) -> list[str]:
        """Full paths of the shards, in the units' order."""
        return [storage.join(self.root, unit.path) for unit in self.units if unit.path]

    def some_shard_paths(self) -> Iterator[str]:
        """Yield full paths of shards, from one part of the manifest at a time."""
        if not self.parts:
            yield from self.shard_paths
        for part in self.parts:
            found = manifest_parts.read_part(self.root, part).shards
            yield from (storage.join(self.root, u.path) for u in self.records(found) if u.path)


def read_manifest(root: str, run: str | None = None) -> Manifest | None:
    """Return the current snapshot, or that of a run; None if it does not exist.

    Raises SentenceBeamError if the manifest is corrupt.
    """
    name = layout.snapshot(run) if run else layout.MANIFEST
    path = storage.join(root, name)
    found = storage.storage_of(path).read_versioned(path)
    if found is None:
        return None
    with refuse_damage(f"{path} is corrupt", f"restore it from {storage.join(root, 'manifests')}"):
        data = json.loads(found[0])
        if data["format"] not in FORMATS:
            raise SentenceBeamError(
                f"{path} has format {str(data['format'])[:40]!r}, this version reads {FORMATS[0]}"
                f" to {FORMATS[-1]}; update sentence-beam"
            )
        check_digest(data, WITHOUT_DIGEST)
        return Manifest.of(root, data, found[1])


def read_resolved(root: str, run: str | None, digest: str | None) -> Manifest | None:
    """Return the snapshot with which a run began; None if it began with none.

    `digest` is the snapshot's (None: not known). If the snapshot's own manifest is damaged, missing
    or different, `manifest.json` is read, which the run began with. Raises SentenceBeamError if
    neither is that snapshot.
    """
    if run is None:
        return None
    for snapshot in (run, None):
        with contextlib.suppress(SentenceBeamError):
            found = read_manifest(root, snapshot)
            if found is not None and found.run == run and digest in (None, found.digest):
                return found
    raise SentenceBeamError(
        f"{root}: the snapshot {run}, with which this run began, is missing or was changed; see"
        " verify, and run again"
    )


_SHARED: Kept[Manifest] = Kept()


def read_shared(root: str, run: str | None, digest: str | None) -> Manifest | None:
    """Return the snapshot as `read_resolved` does, once for a process if the digest is known."""
    if run is None:
        return None
    if digest is None:
        return read_resolved(root, run, digest)
    return _SHARED.get((root, run, digest), lambda: _there(read_resolved(root, run, digest)))


def _there(manifest: Manifest | None) -> Manifest:
    assert manifest is not None, "a run that is named is read or raises"
    return manifest


def snapshots(root: str) -> list[str]:
    """Return the runs that have a manifest, the latest first.

    One of them may never have become current.
    """
    folder = storage.join(root, layout.MANIFESTS)
    paths = (
        entry.path.removeprefix(root.rstrip("/") + "/")
        for entry in storage.storage_of(folder).below(folder)
    )
    return sorted((run for path in paths if (run := layout.snapshot_run(path))), reverse=True)


def with_units(manifest: Manifest, units: list[UnitRecord], files: list[InputEntry]) -> Manifest:
    """Return the manifest with its units and files in place, not in parts."""
    listed = [unit.to_manifest() for unit in sorted(units, key=lambda u: u.unit)]
    return replace(
        manifest, shards=tuple(listed), input=replace(manifest.input, files=tuple(files)), parts=()
    )
