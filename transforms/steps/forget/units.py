"""Units without their erased rows: shards, sidecars and reject files, under new names."""

import contextlib
import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.corpus import Rejected
from sentence_beam.transforms.steps.embed.erased import erased_row
from sentence_beam.transforms.steps.forget.damage import readable_groups
from sentence_beam.transforms.steps.forget.select import ErasedRows
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.forgetting.hashes import hash_of_id
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.shards.precision import kept_ranges
from sentence_beam.transforms.store.shards.reading import inspect_shard, read_checked
from sentence_beam.transforms.store.shards.rejects import read_rejects, rejects_bytes
from sentence_beam.transforms.store.shards.units import UnitStore, counts_of, prepared_of, sums_of
from sentence_beam.transforms.store.shards.writing import parquet_of

LOST = "lost in a damaged shard"
MADE = ("embedded", "reused", "duplicates")
VECTORS = ("embedding", "pooled")

Key = tuple[str | None, str | None, str]  # shard, reject file and name of a unit


@dataclass(frozen=True)
class RewrittenUnit:
    """A unit without its erased rows, and what left it.

    `rows` are rows or pieces, `documents` rows of the input.
    """

    record: UnitRecord
    rows: int
    documents: int


@dataclass
class UnitRewriter:
    """Writes the units of all kept snapshots again that have erased rows, each once."""

    root: str
    selection: ErasedRows
    key: bytes
    done: dict[Key, RewrittenUnit | None] = field(default_factory=dict)

    def rewritten(self, unit: UnitRecord, manifest: Manifest) -> RewrittenUnit | None:
        """Return a unit of a snapshot without its erased rows; None if it has none."""
        key = (unit.path, unit.rejects, unit.unit)
        if key not in self.done:
            self.done[key] = self._rewrite(unit, manifest)
        return self.done[key]

    def _rewrite(self, unit: UnitRecord, manifest: Manifest) -> RewrittenUnit | None:
        removed = self.selection.removed(unit.path)
        if removed is None and unit.rejects not in self.selection.rejects:
            return None
        rejects = self._rejects(unit)
        is_erased = [reject.id in self.selection.texts for reject in rejects]
        ranges = None
        if manifest.ranges:
            ranges = kept_ranges(self.root, manifest.ranges)
        store = UnitStore(self.root, manifest.space, ranges)
        old = [
            self._scrubbed(reject) if erased else reject
            for reject, erased in zip(rejects, is_erased, strict=True)
        ]
        if unit.path is None:
            return RewrittenUnit(self._put(unit, None, old, store, manifest), 0, 0)
        table = self._table(unit)
        if removed is None:
            removed = np.zeros(unit.rows, bool)
        new, documents = self._new_rejects(unit, table, removed)
        left = None
        if table is not None:
            left = table.filter(pa.array(~removed))
        record = self._put(unit, left, [*old, *new], store, manifest)
        return RewrittenUnit(record, int(removed.sum()), documents)

    def _rejects(self, unit: UnitRecord) -> list[Rejected]:
        if unit.rejects is None:
            return []
        return read_rejects(storage.join(self.root, unit.rejects), unit.rejects_sha256)

    def _scrubbed(self, reject: Rejected) -> Rejected:
        return erased_row(hash_of_id(self.key, reject.id or ""))

    def _table(self, unit: UnitRecord) -> pa.Table | None:
        """Return all rows of a unit's shard, null where they cannot be read.

        None if nothing can be read.
        """
        path = storage.join(self.root, unit.path or "")
        try:
            return read_checked(path, unit.sha256).combine_chunks()
        except SentenceBeamError:
            found = readable_groups(path, unit.rows)
            if found.schema is None:
                return None
            return found.table(found.schema.names).replace_schema_metadata(found.schema.metadata)

    def _new_rejects(
        self, unit: UnitRecord, table: pa.Table | None, removed: np.ndarray
    ) -> tuple[list[Rejected], int]:
        """Return the rejects in place of a unit's removed rows, and the number of these rows."""
        if table is None:
            number = unit.written
            return [Rejected(None, 0, LOST, "", "")] * number, number
        gone = table.filter(pa.array(removed))
        if "piece" in gone.column_names:
            first = [piece in (0, None) for piece in gone.column("piece").to_pylist()]
            gone = gone.filter(pa.array(first, pa.bool_()))
        found = [
            Rejected(None, 0, LOST, "", "")
            if name is None
            else erased_row(hash_of_id(self.key, name))
            for name in gone.column("id").to_pylist()
        ]
        return found, len(found)

    def _put(
        self,
        unit: UnitRecord,
        left: pa.Table | None,
        rejects: list[Rejected],
        store: UnitStore,
        manifest: Manifest,
    ) -> UnitRecord:
        """Write a unit with the rows that are left, and return its entry for manifests."""
        if left is None:
            empty = {"id": pa.array([], pa.string()), "row_hash": pa.array([], pa.binary(16))}
            left = pa.table(empty)
        prepared = prepared_of(unit, left, rejects, store, manifest.generation)
        entry = self._counted(unit, left, rejects)
        if rejects:
            data = rejects_bytes(rejects)
            self._write(prepared.rejects, data)
            entry = replace(entry, rejects=prepared.rejects, rejects_sha256=_sha256(data))
        sidecar = self._made(unit, entry)
        if len(left):
            data = self._put_shard(prepared.shard, _shard(left, sidecar))
            where = storage.join(self.root, prepared.shard)
            checksum = storage.storage_of(where).checksum_of(where, data) or None
            placed: dict[str, Any] = {
                "path": prepared.shard,
                "bytes": len(data),
                "sha256": _sha256(data),
            }
            entry, sidecar = (replace(one, **placed, checksum=checksum) for one in (entry, sidecar))
        sidecar = replace(
            sidecar, rejects=entry.rejects, rejects_sha256=entry.rejects_sha256, carried=0
        )
        self._write(prepared.sidecar, sidecar.to_json())
        return entry

    def _counted(self, unit: UnitRecord, left: pa.Table, rejects: list[Rejected]) -> UnitRecord:
        """Return the entry of a unit with the counts of its new rows, and no file yet."""
        tokens = truncated = 0
        if len(left):
            tokens = int(left.column("tokens").to_numpy().sum(dtype="int64"))
            truncated = int(left.column("truncated").to_numpy().sum())
        documents = unit.documents
        pieces = None
        if documents is not None and "piece" in left.column_names:
            pieces = left
            documents = int((left.column("piece").to_numpy() == 0).sum())
        elif documents is not None:
            documents = 0
        sums: dict[str, Any] = sums_of(pieces)
        if unit.pieces_sum is not None and not sums:
            sums = {"pieces_sum": 16 * "0", "documents_sum": 16 * "0"}
        return replace(
            unit,
            path=None,
            sha256=None,
            checksum=None,
            bytes=0,
            rows=len(left),
            tokens=tokens,
            truncated=truncated,
            rejected=len(rejects),
            documents=documents,
            forgotten=sum(reject.reason == erased_row("").reason for reject in rejects),
            moved=(),
            **sums,
        )

    def _made(self, unit: UnitRecord, entry: UnitRecord) -> UnitRecord:
        """Return the record of a unit's sidecar: how its rows were made, less those that left."""
        made = replace(entry, embedded=entry.rows, reused=0, duplicates=0, carried=0)
        path = unit.path or unit.rejects
        if path is None:
            return made
        where = storage.join(self.root, f"sidecars/{layout.stem(path)}.json")
        found = storage.storage_of(where).read_versioned(where)
        if found is None:
            return made
        try:
            with refuse_damage("not a sidecar"):
                old = UnitRecord.from_dict(json.loads(found[0]))
        except SentenceBeamError:
            return made
        origins = {name: getattr(old, name) for name in MADE}
        counts: dict[str, Any] = less(origins, old.rows - entry.rows)
        known = {name: getattr(old, name) for name in ("real", "padded", "run", "known", "unknown")}
        return replace(made, **counts, **known, worker=old.worker, measures=old.measures)

    def _put_shard(self, path: str, data: bytes) -> bytes:
        """Write a shard, and return the bytes of the one that stands under its name.

        Two snapshots may have had the row with other texts, and be equal without it.
        """
        where = storage.join(self.root, path)
        place = storage.storage_of(where)
        if place.put_if_absent(where, data):
            return data
        found = place.read_versioned(where)
        with contextlib.suppress(SentenceBeamError):
            if found is not None and inspect_shard(found[0]).rows == inspect_shard(data).rows:
                return found[0]
        storage.replace(where, data)
        return data

    def _write(self, path: str, data: bytes) -> None:
        storage.ensure(storage.join(self.root, path), data)


def less(counts: dict[str, int], number: int) -> dict[str, int]:
    """Return counts that sum to so much less, taken from the first that has it.

    >>> less({"carried": 3, "embedded": 5}, 4)
    {'carried': 0, 'embedded': 4}
    """
    found = {}
    for name, count in counts.items():
        taken = min(count, number)
        found[name] = count - taken
        number -= taken
    return found


def _shard(left: pa.Table, sidecar: UnitRecord) -> bytes:
    """Return the bytes of a shard with these rows; the other columns stay bit for bit."""
    metadata = dict(left.schema.metadata or {})
    metadata[b"counts"] = json.dumps(counts_of(sidecar), sort_keys=True).encode()
    return parquet_of(left.replace_schema_metadata(metadata), vector_columns=VECTORS)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
