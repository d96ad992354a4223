"""Units: written once, found again, and read back to be written with other vectors."""

import hashlib
import json
import os
import socket
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.base.measures import Stopwatch
from sentence_beam.transforms.corpus import (
    InputFile,
    Rejected,
    UnitRows,
    blank_lines,
    forgotten_rows,
)
from sentence_beam.transforms.corpus.pieces import sum_pieces
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.forms import compute_shard_form
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.shards import shard_bytes, shard_reading
from sentence_beam.transforms.store.shards.precision import Coding, Ranges
from sentence_beam.transforms.store.shards.reject_files import (
    count_rejects,
    pack_rejects,
    parse_rejects,
    read_rejects,
)
from sentence_beam.transforms.store.shards.shard_columns import PIECE_COLUMNS, list_own_columns
from sentence_beam.transforms.store.shards.unit_vectors import Vectors


@dataclass(frozen=True)
class UnitCounts:
    """Counts of a unit: rows by origin, tokens of the forward pass, damaged old shards.

    `device` has the names of the devices of the forward pass, "" without one.
    """

    embedded: int
    reused: int
    duplicates: int
    real: int = 0
    padded: int = 0
    fallbacks: int = 0
    oom_splits: int = 0
    damaged: tuple[str, ...] = ()
    moved: tuple[float, ...] = ()
    known: int = 0
    unknown: int = 0
    device: str = ""

    @classmethod
    def from_record(cls, record: UnitRecord) -> "UnitCounts":
        """Return the counts in a unit's record."""
        return cls(**{item.name: getattr(record, item.name) for item in fields(cls)})


@dataclass(frozen=True)
class PreparedUnit:
    """A unit that was read: its rows, their hashes, and the digest that names its files."""

    rows: UnitRows
    hashes: list[bytes]
    digest: str

    @property
    def shard(self) -> str:
        """The path of the unit's shard within the store."""
        return layout.shard(self.rows.name, self.digest)

    @property
    def sidecar(self) -> str:
        """The path of the unit's sidecar within the store."""
        return layout.sidecar(self.rows.name, self.digest)

    @property
    def rejects(self) -> str:
        """The path of the unit's reject file within the store.

        Rows rejected in other places of several files give another path.
        """
        places = [] if self.rows.file else [[row.file, row.row] for row in self.rows.rejects]
        digest = _hash(json.dumps([self.digest, places]).encode())[:16] if places else self.digest
        return layout.rejects(self.rows.name, digest)


class UnitStore:
    """The store as one unit uses it: find the unit, or write it as the work of `run`.

    `form` is the first half of the form of its shards (`store.forms`), "" if their records have
    none.
    """

    def __init__(
        self, root: str, space: Space, ranges: Ranges | None = None, run: str = "", form: str = ""
    ):
        self.root = root
        self.space = space
        self.ranges = ranges
        self._run = run
        self._form = form
        self._storage = storage.storage_of(root)

    def finished(self, unit: PreparedUnit) -> UnitRecord | None:
        """Return the record of a unit in the store, checked byte for byte, or None."""
        rows = unit.rows
        if rows.ids and self._storage.stat(storage.join(self.root, unit.shard)) is None:
            return None
        record = self._read_sidecar(unit)
        if record is None or record.read != rows.read:
            return self._adopt(unit) if rows.ids else None
        if not self._is_intact(record):
            return None
        here = replace(record, unit=rows.name, file=rows.relative, range=(rows.start, rows.stop))
        here = replace(here, **_count_expected(rows), form=self._compute_form(unit))
        if here.rejects in (None, unit.rejects):
            return here
        return self._renew_rejects(unit, here)

    def write(
        self,
        unit: PreparedUnit,
        vectors: Vectors,
        late: list[Rejected],
        counts: UnitCounts,
        watch: Stopwatch | None = None,
    ) -> UnitRecord:
        """Write rejects, shard and sidecar, in this order.

        `unit.rows` holds the rows of `vectors`, in the same order; `late` are rows rejected for
        their vectors. The sidecar has the figures of `watch` so far.
        """
        rows = unit.rows
        tokens: dict[str, Any] = {
            "tokens": int(vectors.tokens.sum(dtype="int64")),
            "truncated": int(vectors.truncated.sum()),
            "lost": int(vectors.lost.sum(dtype="int64")),
        }
        record = self._begin_record(unit, counts, [*rows.rejects, *late], **tokens)
        record = replace(record, measures=watch.figures if watch else {})
        if not rows.ids:
            return self._write_sidecar(unit, record)
        coding = Coding(self.space, self.ranges)
        data = shard_bytes.make_shard_bytes(coding, rows, unit.hashes, vectors, list_counts(record))
        return self._put_shard(unit, record, data)

    def rewrite(self, unit: PreparedUnit, table: pa.Table, lost: int) -> UnitRecord:
        """Write a unit with some rows of a shard, whose values stay bit for bit.

        `table` has all columns of the rows of `unit`, `lost` tokens of which were cut off.
        """
        counts = UnitCounts(embedded=0, reused=len(table), duplicates=0)
        tokens: dict[str, Any] = {"tokens": 0, "truncated": 0, "lost": lost}
        if len(table):
            tokens["tokens"] = int(table.column("tokens").to_numpy().sum(dtype="int64"))
            tokens["truncated"] = int(table.column("truncated").to_numpy().sum())
        record = self._begin_record(unit, counts, unit.rows.rejects, **tokens)
        if not len(table):
            return self._write_sidecar(unit, record)
        return self._put_shard(
            unit, record, shard_bytes.make_table_bytes(table, list_counts(record))
        )

    def _put_shard(self, unit: PreparedUnit, record: UnitRecord, data: bytes) -> UnitRecord:
        """Write shard and sidecar; a sound shard that stands under its name is taken instead."""
        if not self._put(unit.shard, data):
            adopted = self._adopt(unit)
            if adopted is not None:
                return adopted
            storage.replace(storage.join(self.root, unit.shard), data)
        return self._write_sidecar(unit, self._locate(record, unit, data))

    def _begin_record(
        self, unit: PreparedUnit, counts: UnitCounts, rejects: list[Rejected], **tokens: Any
    ) -> UnitRecord:
        """Write the reject file, and return the record of a unit before its shard is written.

        `tokens` are kept counts.
        """
        rows = unit.rows
        record = UnitRecord(
            path=None, unit=rows.name, file=rows.relative, range=(rows.start, rows.stop),
            rows=len(rows.ids), read=rows.documents + len(rejects), rejected=len(rejects),
            rejects=None, **tokens, bytes=0, sha256=None, worker=_name_worker(), **vars(counts),
            documents=None if rows.pieces is None else rows.documents, **make_piece_sums(rows.pieces),
            **_count_expected(rows), run=self._run, form=self._compute_form(unit),
        )  # fmt: skip
        return self._put_rejects(unit, record, rejects) if rejects else record

    def _compute_form(self, unit: PreparedUnit) -> str | None:
        kept = unit.rows.kept.schema if unit.rows.kept is not None else None
        ranges = self.ranges.digest if self.ranges else None
        return (
            compute_shard_form(self._form, kept, ranges) if self._form and unit.rows.ids else None
        )

    def _locate(self, record: UnitRecord, unit: PreparedUnit, data: bytes) -> UnitRecord:
        """Return the record of a unit whose shard has these bytes, with its checksum."""
        checksum = self._storage.checksum_of(storage.join(self.root, unit.shard), data) or None
        return replace(
            record, path=unit.shard, bytes=len(data), sha256=_hash(data), checksum=checksum
        )

    def _put_rejects(
        self, unit: PreparedUnit, record: UnitRecord, rejects: list[Rejected]
    ) -> UnitRecord:
        """Return the record with a reject file of these rows, which is written if needed."""
        data = pack_rejects(rejects)
        path = storage.join(self.root, unit.rejects)
        if not self._put(unit.rejects, data):
            stored = self._storage.read_versioned(path)
            if stored is not None and _has_same_rows(stored[0], data):
                data = stored[0]
            else:
                storage.replace(path, data)
        return replace(record, rejects=unit.rejects, rejects_sha256=_hash(data))

    def _put(self, path: str, data: bytes) -> bool:
        return self._storage.put_if_absent(storage.join(self.root, path), data)

    def _write_sidecar(self, unit: PreparedUnit, record: UnitRecord) -> UnitRecord:
        path = storage.join(self.root, unit.sidecar)
        if not self._storage.put_if_absent(path, record.to_json()):
            storage.replace(path, record.to_json())
        return record

    def _read_sidecar(self, unit: PreparedUnit) -> UnitRecord | None:
        stored = self._storage.read_versioned(storage.join(self.root, unit.sidecar))
        if stored is None:
            return None
        try:
            with refuse_damage("not a sidecar"):
                record = UnitRecord.from_dict(json.loads(stored[0]))
        except SentenceBeamError:
            return None  # cut short by a crash: the shard itself decides
        return record if _is_of(record, unit) else None

    def _is_intact(self, record: UnitRecord) -> bool:
        if record.rejects:
            rejects = self._storage.read_versioned(storage.join(self.root, record.rejects))
            if rejects is None or record.rejects_sha256 != _hash(rejects[0]):
                return False
        if record.path is None:
            return True
        stored = self._storage.read_versioned(storage.join(self.root, record.path))
        return (
            stored is not None
            and len(stored[0]) == record.bytes
            and _hash(stored[0]) == record.sha256
        )

    def _adopt(self, unit: PreparedUnit) -> UnitRecord | None:
        """Return a record rebuilt from a shard that has none; None if it fails its check."""
        stored = self._storage.read_versioned(storage.join(self.root, unit.shard))
        if stored is None:
            return None
        recorded = self._read_sidecar(unit)
        if recorded is not None and recorded.sha256 != _hash(stored[0]):
            return None  # damaged, perhaps in bytes without a checksum of Parquet's
        try:
            info = shard_reading.inspect_shard(stored[0])
        except SentenceBeamError:
            return None
        ranges = self.ranges.digest if self.ranges else None
        if (info.space_id, info.ranges) != (self.space.id, ranges) or info.rows != info.counts[
            "rows"
        ]:
            return None
        rows = unit.rows
        record = UnitRecord(
            path=None, unit=rows.name, file=rows.relative, range=(rows.start, rows.stop),
            rejects=None, bytes=0, sha256=None, worker=_name_worker(), **info.counts,
            **make_piece_sums(info.pieces), **_count_expected(rows),
        )  # fmt: skip
        record = replace(self._locate(record, unit, stored[0]), form=self._compute_form(unit))
        if record.rejected:
            return self._renew_rejects(unit, record)
        return self._write_sidecar(unit, record)

    def _renew_rejects(self, unit: PreparedUnit, record: UnitRecord) -> UnitRecord | None:
        """Return the record with a reject file that names the present places.

        Returns None if the unit has to be made again: rows were rejected for their vectors, and
        which ones is in another file, or nowhere.
        """
        if len(unit.rows.rejects) == record.rejected:
            return self._write_sidecar(unit, self._put_rejects(unit, record, unit.rows.rejects))
        stored = self._storage.read_versioned(storage.join(self.root, unit.rejects))
        if stored is None or count_rejects(stored[0]) != record.rejected:
            return None
        return self._write_sidecar(
            unit, replace(record, rejects=unit.rejects, rejects_sha256=_hash(stored[0]))
        )


def _has_same_rows(data: bytes, other: bytes) -> bool:
    """Return whether two reject files have the same rows; versions of Arrow write other bytes."""
    try:
        return data == other or parse_rejects(data) == parse_rejects(other)
    except SentenceBeamError:
        return False


COUNTED = (
    "rows", "read", "rejected", "tokens", "truncated", "lost", "embedded", "reused", "duplicates",
    "real", "padded", "fallbacks", "oom_splits", "known", "unknown",
)  # fmt: skip


def _is_of(record: UnitRecord, unit: PreparedUnit) -> bool:
    """Return whether a sidecar is of this unit: whole numbers that add up to its rows."""
    made = record.embedded + record.reused + record.duplicates
    path = unit.shard if record.rows else None
    return (
        all(isinstance(getattr(record, name), int) for name in (*COUNTED, "bytes"))
        and record.path == path
        and (record.rejects is None) == (record.rejected == 0)
        and record.read == record.written + record.rejected
        and (record.documents is None) == (unit.rows.pieces is None)
        and record.rows == made
    )


def list_counts(record: UnitRecord) -> dict[str, int]:
    """Return the counts of a record that its shard has in its metadata."""
    documents = {} if record.documents is None else {"documents": record.documents}
    return {name: getattr(record, name) for name in COUNTED} | documents


def make_piece_sums(pieces: pa.Table | None) -> dict[str, Any]:
    """Return the sums of a unit's pieces, as its record has them."""
    if pieces is None:
        return {}
    there, wanted = sum_pieces(pieces)
    return {"pieces_sum": f"{there:016x}", "documents_sum": f"{wanted:016x}"}


def _count_expected(rows: UnitRows) -> dict[str, Any]:
    """Return the numbers of rejected rows that are no fault of the input."""
    return {"blank": blank_lines(rows.rejects), "forgotten": forgotten_rows(rows.rejects)}


def _name_worker() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_written(
    root: str, unit: UnitRecord, store: UnitStore, generation: int
) -> tuple[PreparedUnit, pa.RecordBatch]:
    """Return a unit with a shard, prepared to be written again, and all its columns.

    The rows come from the shard, without their texts. Raises SentenceBeamError if it is missing or
    changed.
    """
    table = shard_reading.read_checked(
        storage.join(root, unit.path or ""), unit.sha256
    ).combine_chunks()
    rejects = []
    if unit.rejects:
        rejects = read_rejects(storage.join(root, unit.rejects), unit.rejects_sha256)
    prepared = prepare_unit(unit, table, rejects, store, generation)
    (batch,) = table.to_batches()
    return prepared, batch


def prepare_unit(
    unit: UnitRecord, table: pa.Table, rejects: list[Rejected], store: UnitStore, generation: int
) -> PreparedUnit:
    """Return a unit, prepared to be written with these rows of a shard and these rejects."""
    own = list_own_columns(table.column_names)
    kept_names = [name for name in table.column_names if name not in own]
    pieces = table.select(PIECE_COLUMNS) if "piece" in table.column_names else None
    file = InputFile("", unit.file, "", "", 0, "", "") if unit.file else None
    rows = UnitRows(
        name=unit.unit,
        file=file,
        start=unit.range[0],
        stop=unit.range[1],
        ids=table.column("id").to_pylist(),
        texts=[],
        positions=[],
        kept=table.select(kept_names) if kept_names else None,
        rejects=rejects,
        pieces=pieces,
    )
    hashes = table.column("row_hash").to_pylist()
    digest = shard_bytes.compute_unit_digest(store.space, rows, hashes, generation, store.ranges)
    return PreparedUnit(rows, hashes, digest)
