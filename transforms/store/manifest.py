"""The manifest: one committed state of a store, and the only list of its files.

Its tables `files` and `units` lie in parts, which are read when somebody asks for them.
"""

import contextlib
import json
from bisect import bisect_left
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.columns import as_numbers
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.base.json_entries import BESIDE, SPARSE, JsonEntry, one_of, time
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.counts import (
    NO_ESTIMATE,
    NONE_PENDING,
    PendingCounts,
    RowCounts,
    TokenCounts,
    TokenEstimate,
    WorkCounts,
)
from sentence_beam.transforms.store.entries import (
    CalibrationEntry,
    CanaryEntry,
    ChangesEntry,
    ForgottenEntry,
    Input,
    LikeEntry,
    RangesEntry,
    RememberedOptions,
    RunName,
    TableEntry,
    WatchEntry,
)
from sentence_beam.transforms.store.index_entries import IndexEntry
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.sealed_json import UNSEALED, check_digest, compute_digest
from sentence_beam.transforms.store.tables import table_parts
from sentence_beam.transforms.store.tables.table_columns import make_records

FORMAT = 1
MANIFESTS_HELD = 2  # in a process; their tables are not held


class Shard(NamedTuple):
    """A shard of a snapshot: its full path, its path in the store, its rows and bytes."""

    full_path: str
    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class BegunSnapshot:
    """The fields of a snapshot's manifest that are known when its run begins.

    `previous` is the run whose snapshot it replaces. `generation` counts how often the whole store
    was embedded again. Of the shards that are carried over, those from the place `check_from` on
    the round are read again. `watch` has the watched queries, `forgotten` the rows that were erased
    and are not to return, `like` the store like which this one was made, `estimate` the tokens of
    earlier runs in the same space.
    """

    previous: RunName | None
    space: Space
    partition: Annotated[str, one_of("file", "content")]
    unit_tokens: int
    options: RememberedOptions
    started: Annotated[str, time]
    ranges: RangesEntry | None = None
    canary: CanaryEntry | None = None
    generation: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    check_from: int = 0
    watch: WatchEntry | None = field(default=None, metadata=SPARSE)
    changes: ChangesEntry | None = field(default=None, metadata=SPARSE)
    forgotten: ForgottenEntry | None = field(default=None, metadata=SPARSE)
    like: LikeEntry | None = field(default=None, metadata=SPARSE)
    estimate: TokenEstimate = field(default=NO_ESTIMATE, metadata=SPARSE)

    def begun_fields(self) -> dict[str, Any]:
        """Return these fields by name, for another object that has them."""
        return {item.name: getattr(self, item.name) for item in fields(BegunSnapshot)}


@dataclass(frozen=True, kw_only=True)
class Manifest(BegunSnapshot, JsonEntry):
    """A snapshot: the fields of its manifest.

    `data` is the manifest's JSON, `root` the store it was read from. `only` are some of
    its shards, which it has alone.
    """

    root: str = field(metadata=BESIDE)
    data: dict[str, Any] = field(default_factory=dict, metadata=BESIDE)
    version: str | None = field(default=None, compare=False, metadata=BESIDE)
    only: pa.Table | None = field(default=None, compare=False, metadata=BESIDE)
    run: RunName
    rows: RowCounts
    work: WorkCounts
    tokens: TokenCounts
    files: TableEntry
    units: TableEntry
    index: IndexEntry | None
    input: Input
    finished: Annotated[str, time]
    buckets: Buckets | None = None
    calibration: CalibrationEntry | None = None
    chunks: str = "none"
    pending: PendingCounts = NONE_PENDING
    group_bits: int | None = field(default=None, metadata=SPARSE)
    format: int = FORMAT

    @classmethod
    def from_data(cls, root: str, data: dict[str, Any], version: str | None = None) -> "Manifest":
        """Return the snapshot of a manifest's JSON.

        Raises ValueError or OptionError naming a field that no manifest has.
        """
        entry = {name: value for name, value in data.items() if name not in UNSEALED}
        return cls.from_json(entry, root=root, data=data, version=version)

    @cached_property
    def digest(self) -> str:
        """The digest over everything that the snapshot's manifest says."""
        return str(self.data.get("digest") or compute_digest(self.data))

    def read_units(self, *columns: str) -> pa.Table:
        """Return some columns (all, if none is named) of all units, by name.

        Raises SentenceBeamError for a part that is missing or changed.
        """
        return table_parts.read_table(self.root, "units", self.units, columns or None)

    def read_files(self, *columns: str) -> pa.Table:
        """Return some columns (all, if none is named) of all input files, by path.

        Raises as `read_units` does.
        """
        return table_parts.read_table(self.root, "files", self.files, columns or None)

    def select_shards(self, shards: pa.Table) -> "Manifest":
        """Return the snapshot with these of its `shards` alone."""
        return replace(self, only=shards)

    @cached_property
    def shards(self) -> pa.Table:
        """The units that have a shard, by name; the number of a shard is its place here.

        Columns: unit, path, rows, bytes, sha256.
        """
        if self.only is not None:
            return self.only
        units = self.read_units("unit", "path", "rows", "bytes", "sha256")
        if units.column("path").null_count:
            units = units.filter(units.column("path").is_valid())
        return units

    @property
    def shard_paths(self) -> list[str]:
        """Full paths of the shards, in order of their numbers."""
        return [storage.join(self.root, path) for path in self.shards.column("path").to_pylist()]

    def shard(self, number: int) -> Shard:
        """Return the shard with a number."""
        row = self.shards.slice(number, 1)
        path = row.column("path")[0].as_py()
        rows = row.column("rows")[0].as_py()
        return Shard(storage.join(self.root, path), path, rows, row.column("bytes")[0].as_py())

    def find_shard_number(self, path: str) -> int:
        """Return the number of a shard, by its path in the store; -1 if it is another's."""
        names = self.shards.column("path")
        order = self._by_path
        place = bisect_left(order, path, key=lambda number: names[int(number)].as_py())
        if place < len(order) and names[int(order[place])].as_py() == path:
            return int(order[place])
        return -1

    @cached_property
    def _by_path(self) -> np.ndarray:
        """The numbers of the shards in order of their paths, int32 [n].

        A renamed file's shards keep their paths, so this is not the order of their units.
        """
        return as_numbers(pc.sort_indices(self.shards.column("path"))).astype(np.int32)

    def read_units_of(self, name: str) -> list[UnitRecord]:
        """Return the records of a unit, and of all units of a file, span or group.

        Their names continue `name` with `-` or `.`. Of the parts only those are read that can have
        them. Raises SentenceBeamError as `read_units` does.
        """
        return make_records(table_parts.read_named_units(self.root, self.units, name))

    @property
    def metric(self) -> str:
        """The metric of the index; without one, that of the model."""
        if self.index:
            return self.index.metric
        return self.options.metric or "cosine"


def read_manifest(root: str, run: str | None = None) -> Manifest | None:
    """Return the current snapshot, or that of a run; None if it does not exist.

    Its parts are read anew. Raises SentenceBeamError if the manifest is corrupt.
    """
    table_parts.read_anew()
    name = layout.snapshot(run) if run else layout.MANIFEST
    path = storage.join(root, name)
    stored = storage.storage_of(path).read_versioned(path)
    if stored is None:
        return None
    with refuse_damage(f"{path} is corrupt", f"restore it from {storage.join(root, 'manifests')}"):
        data = json.loads(stored[0])
        if data["format"] != FORMAT:
            written = str(data["format"])[:40]
            raise SentenceBeamError(
                f"{path}: format {written}, this version reads {FORMAT}: embed again"
            )
        check_digest(data)
        return Manifest.from_data(root, data, stored[1])


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
            manifest = read_manifest(root, snapshot)
            if manifest is not None and manifest.run == run and digest in (None, manifest.digest):
                return manifest
    raise SentenceBeamError(
        f"{root}: the snapshot {run}, with which this run began, is missing or was changed; see"
        " verify, and run again"
    )


@lru_cache(MANIFESTS_HELD)
def _read_once(root: str, run: str, digest: str) -> Manifest | None:
    return read_resolved(root, run, digest)


def read_shared(root: str, run: str | None, digest: str | None) -> Manifest | None:
    """Return the snapshot as `read_resolved` does, once for a process if the digest is known."""
    if run is None or digest is None:
        return read_resolved(root, run, digest)
    return _read_once(root, run, digest)


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
