"""What a database lacks of a snapshot: rows to write and rows to delete, whatever was half written
before.

A row is written unless every snapshot whose rows the database may hold has it as it is now: the
snapshot that it was left with, and those of pushes that did not end. Units that all of these have,
byte for byte, are not read. Rows are cut into buckets by their ids, so that memory does not grow
with them.
"""

import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from transforms.base import progress
from transforms.base.errors import DataGateError
from transforms.corpus.buckets import in_buckets
from transforms.push.rows import columns_of, digests, read_rows
from transforms.push.target import KEYS, keys_of
from transforms.store.manifest import Manifest
from transforms.store.records import UnitRecord
from transforms.store.runs.changes import BUCKETS, LISTED_ROWS, Changes
from transforms.store.shards.id_hashes import hash_ids

REPEATED = (
    "is that of several rows, and a database has one for each id; give the rows ids of their own"
    " (--id-column) and embed again"
)
_NEW = 0  # the side of the snapshot that is pushed
_SPILLED = pa.schema(
    [("id", pa.string()), ("piece", pa.int32()), ("digest", pa.binary(16)), ("side", pa.int32())]
    + [("unit", pa.int32()), ("row", pa.int32())]
)
_DELETED = pa.schema([("id", pa.string()), ("piece", pa.int32())])
Listing = Callable[[], Iterable[pa.RecordBatch]]


@dataclass
class Lack:
    """What a database lacks: rows to write by the place of their unit, the file with the keys of
    rows to delete.

    `counts` are relative to what the database was left with, `before` rows; of rows that are
    written without being compared, those that existed count as changed. `gone` is the number of
    keys to delete, whether their rows exist or may exist.
    """

    keys: tuple[str, ...]
    deleted: str
    counts: Changes = field(default_factory=Changes)
    before: int = 0
    rows: "dict[int, array[int]]" = field(default_factory=dict)
    gone: int = 0

    @property
    def written(self) -> int:
        """The number of rows to write."""
        return sum(map(len, self.rows.values()))

    def deletions(self) -> Iterator[pa.RecordBatch]:
        """The keys of the rows to delete."""
        with pa.memory_map(self.deleted) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number).select(list(self.keys))


def lacking(
    new: Manifest, columns: pa.Schema, old: Sequence[Manifest], listing: Listing | None, folder: str
) -> Lack:
    """What a database lacks that may hold rows of the `old` snapshots, or, given a listing of its
    keys, any rows.

    The database was left with the first of the old snapshots, or with the rows of the listing.
    Raises DataGateError if two rows have one id. `folder` takes temporary files.
    """
    sides = _sides(new, columns, old, listing is None)
    rows = sum(unit.rows for side in sides for _, unit in side.units)
    buckets = min(1 + rows // LISTED_ROWS, BUCKETS)
    spill = _Spill([os.path.join(folder, f"{number}.arrow") for number in range(buckets)])
    for number, side in enumerate(sides):
        for place, unit in progress.over(side.units, "comparing", "shards"):
            _spill_unit(spill, side, number, place, unit)
    lack = Lack(keys_of(columns.names), os.path.join(folder, "deleted.arrow"))
    left_with, last = 1, len(old)
    if old:
        lack.before = old[0].rows.stored
    if listing is not None:
        left_with = last = len(sides)
        lack.before = 0
        for batch in listing():
            spill.add(batch, last, 0, None, 0)
            lack.before += batch.num_rows
    spill.close()
    with pa.ipc.new_file(lack.deleted, _DELETED) as deleted:
        for path in spill.paths:
            with pa.memory_map(path) as source:
                deleted.write_table(
                    _compare(pa.ipc.open_file(source).read_all(), last, left_with, lack)
                )
            os.unlink(path)
    return lack


@dataclass(frozen=True)
class _Side:
    """The units of one snapshot that have to be read, each with its place in the snapshot;
    `compared` by digests.
    """

    manifest: Manifest
    columns: pa.Schema
    units: list[tuple[int, UnitRecord]]
    compared: bool


def _sides(
    new: Manifest, columns: pa.Schema, old: Sequence[Manifest], compared: bool
) -> list[_Side]:
    """The snapshot and the old ones, without the units that all have."""
    alike = [columns_of(manifest).equals(columns) for manifest in old]
    shared: Counter[str] = Counter()
    if old and all(alike) and compared:
        shared = _contents(new)
        for manifest in old:
            shared &= _contents(manifest)
    sides = [_Side(new, columns, _without(new, shared), compared and any(alike))]
    for manifest, is_alike in zip(old, alike, strict=True):
        kept = (
            columns if is_alike else pa.schema([f for f in columns_of(manifest) if f.name in KEYS])
        )
        sides.append(_Side(manifest, kept, _without(manifest, shared), compared and is_alike))
    return sides


def _contents(manifest: Manifest) -> Counter[str]:
    return Counter(str(unit.sha256) for unit in manifest.units if unit.path)


def _without(manifest: Manifest, shared: Counter[str]) -> list[tuple[int, UnitRecord]]:
    left, found = Counter(shared), []
    for place, unit in enumerate(manifest.units):
        if unit.path and left[str(unit.sha256)]:
            left[str(unit.sha256)] -= 1
        elif unit.path:
            found.append((place, unit))
    return found


class _Spill:
    """Rows on disk, in a file for each bucket of ids."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self._writers = [pa.ipc.new_file(path, _SPILLED) for path in paths]

    def add(
        self, keys: pa.RecordBatch, side: int, unit: int, digests: list[bytes] | None, start: int
    ) -> None:
        """Add the rows of some keys; they are the unit's from `start` on."""
        n = keys.num_rows
        ids = keys.column("id").cast(pa.string())
        piece = (
            keys.column("piece").cast(pa.int32())
            if "piece" in keys.schema.names
            else pa.array(np.zeros(n, "i4"))
        )
        digest = pa.nulls(n, pa.binary(16)) if digests is None else pa.array(digests, pa.binary(16))
        places = (
            np.full(n, side, "i4"),
            np.full(n, unit, "i4"),
            np.arange(start, start + n, dtype="i4"),
        )
        rows = pa.record_batch([ids, piece, digest, *map(pa.array, places)], schema=_SPILLED)
        for number, chosen in in_buckets(
            hash_ids(ids) % np.uint64(len(self.paths)), len(self.paths)
        ):
            self._writers[number].write_batch(rows.take(pa.array(chosen)))

    def close(self) -> None:
        """Write what the files still hold back, and their ends."""
        for writer in self._writers:
            writer.close()


def _spill_unit(spill: _Spill, side: _Side, number: int, place: int, unit: UnitRecord) -> None:
    columns, start = side.columns, 0
    if not side.compared:
        columns = pa.schema([field for field in columns if field.name in KEYS])
    for batch in read_rows(side.manifest, unit, columns):
        spill.add(batch, number, place, digests(batch) if side.compared else None, start)
        start += batch.num_rows


def _compare(rows: pa.Table, sides: int, left_with: int, lack: Lack) -> pa.Table:
    """Note what is lacking of some ids, and return the keys to delete.

    So many old sides were read, among them what the database was left with.
    """
    wanted: dict[tuple[str, int], tuple[bytes | None, int, int]] = {}
    columns = [column.to_pylist() for column in rows.columns]
    for row_id, piece, digest, side, unit, row in zip(*columns, strict=True):
        if side == _NEW:
            if (row_id, piece) in wanted:
                raise DataGateError(f"the id {row_id!r} {REPEATED}")
            wanted[row_id, piece] = digest, unit, row
    first: set[tuple[str, int]] = set()  # what the database was left with
    equal: Counter[tuple[str, int]] = Counter()
    gone: dict[tuple[str, int], None] = {}
    for row_id, piece, digest, side, _, _ in zip(*columns, strict=True):
        key = row_id, piece
        if side == _NEW:
            continue
        if side == left_with:
            # two rows of one id; the row is written after they are deleted
            if key in first and digest is None:
                gone[key] = None
            first.add(key)
        if key not in wanted:
            gone[key] = None
        elif digest is not None and digest == wanted[key][0]:
            equal[key] += 1
    written = [key for key in wanted if not sides or equal[key] < sides]
    for key in written:
        _, unit, row = wanted[key]
        lack.rows.setdefault(unit, array("i")).append(row)
    changed = sum(key in first for key in written)
    deleted = sum(key in first and key not in wanted for key in gone)
    lack.counts += Changes(len(written) - changed, changed, deleted)
    lack.gone += len(gone)
    names = [list(part) for part in zip(*gone, strict=True)] or [[], []]
    return pa.table(
        [pa.array(names[0], pa.string()), pa.array(names[1], pa.int32())], schema=_DELETED
    )
