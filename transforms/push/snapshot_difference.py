"""Compare a snapshot with what a database may hold: the rows to write, the rows to delete.

A database may hold rows of several snapshots: the one that its last complete push left, and those
of pushes that did not end. A row is written unless all of these have the same row. Shards that all
of these have, byte for byte, are not read. Rows are cut into buckets by their ids, so that memory
does not grow with the number of rows. If the runs between the snapshots recorded what they changed,
only that is read (`recorded`).
"""

import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.columns import (
    get_column,
    get_numbers,
    look_up,
    rank_equals,
    sum_by_place,
)
from sentence_beam.transforms.base.errors import DataGateError
from sentence_beam.transforms.corpus.buckets import split_by_bucket
from sentence_beam.transforms.push.pushed_rows import compute_digests, find_columns, read_rows
from sentence_beam.transforms.push.recorded import REPEATED, RecordedDifference, compare_recorded
from sentence_beam.transforms.push.target import KEYS, find_keys
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.changed_rows import Changes
from sentence_beam.transforms.store.runs.listed_changes import BUCKETS, LISTED_ROWS
from sentence_beam.transforms.store.shards.id_hashes import hash_ids

_NEW = 0  # the side of the snapshot that is pushed
_SPILLED = pa.schema(
    [("id", pa.string()), ("piece", pa.int32()), ("digest", pa.binary(16)), ("side", pa.int32())]
    + [("shard", pa.int32()), ("row", pa.int32())]
)
_DELETED = pa.schema([("id", pa.string()), ("piece", pa.int32())])
Listing = Callable[[], Iterable[pa.RecordBatch]]


@dataclass
class Difference:
    """The rows to write, by the number of their shard, and the file with the keys to delete.

    `counts` are relative to the `before` rows that the last complete push left; rows that are
    written without comparison count as changed if they existed. `deletable` is the number of keys
    to delete, whether their rows exist or may exist.
    """

    keys: tuple[str, ...]
    deleted: str
    counts: Changes = field(default_factory=Changes)
    before: int = 0
    rows: "dict[int, array[int]]" = field(default_factory=dict)
    deletable: int = 0

    @property
    def written(self) -> int:
        """The number of rows to write."""
        return sum(map(len, self.rows.values()))

    def read_deletions(self) -> Iterator[pa.RecordBatch]:
        """The keys of the rows to delete."""
        with pa.memory_map(self.deleted) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number).select(list(self.keys))


def compare(
    new: Manifest, columns: pa.Schema, old: Sequence[Manifest], listing: Listing | None, folder: str
) -> Difference:
    """Compare a snapshot with a database that may hold rows of the `old` snapshots.

    The last complete push left the first of the old snapshots. If a `listing` of the database's
    keys is given, that is what it was left with, and any row may be in it. `folder` takes temporary
    files. Raises DataGateError if two rows have one id.
    """
    difference = Difference(find_keys(columns.names), os.path.join(folder, "deleted.arrow"))
    if old:
        difference.before = old[0].rows.stored
    recorded = compare_recorded(new, columns, old) if listing is None else None
    if recorded is not None:
        _take_recorded(difference, recorded)
        return difference
    sides = _make_sides(new, columns, old, listing is None)
    spill = _spill_sides(sides, folder)
    left_with = 1 if listing is None else len(sides)
    old_sides = len(old) if listing is None else len(sides)
    if listing is not None:
        difference.before = 0
        for batch in listing():
            spill.add(batch, left_with, 0, None, 0)
            difference.before += batch.num_rows
    spill.close()
    with pa.ipc.new_file(difference.deleted, _DELETED) as deleted:
        for path in spill.paths:
            with pa.memory_map(path) as source:
                rows = pa.ipc.open_file(source).read_all()
                deleted.write_table(_compare(rows, old_sides, left_with, difference))
            os.unlink(path)
    return difference


def _take_recorded(difference: Difference, recorded: RecordedDifference) -> None:
    """Add the difference that the runs recorded, and write the keys to delete."""
    difference.rows = recorded.rows
    difference.counts = recorded.counts
    difference.deletable = len(recorded.deleted)
    with pa.ipc.new_file(difference.deleted, _DELETED) as deleted:
        deleted.write_table(_make_key_table([(row_id, 0) for row_id in recorded.deleted]))


@dataclass(frozen=True)
class _Side:
    """The numbers of the shards of one snapshot to read; `compared` by digests or not."""

    manifest: Manifest
    columns: pa.Schema
    shards: np.ndarray
    compared: bool


def _make_sides(
    new: Manifest, columns: pa.Schema, old: Sequence[Manifest], compared: bool
) -> list[_Side]:
    """Return the snapshot and the old ones, without the shards that all have."""
    alike = [find_columns(manifest).equals(columns) for manifest in old]
    shards = [np.arange(len(manifest.shards)) for manifest in (new, *old)]
    if old and all(alike) and compared:
        shards = _find_unshared([new, *old])
    sides = [_Side(new, columns, shards[0], compared and any(alike))]
    for manifest, is_alike, of_side in zip(old, alike, shards[1:], strict=True):
        side_columns = _select_keys(find_columns(manifest)) if not is_alike else columns
        sides.append(_Side(manifest, side_columns, of_side, compared and is_alike))
    return sides


def _select_keys(columns: pa.Schema) -> pa.Schema:
    return pa.schema([column for column in columns if column.name in KEYS])


def _find_unshared(manifests: Sequence[Manifest]) -> list[np.ndarray]:
    """Return the numbers of each snapshot's shards of which not every snapshot has a copy."""
    hashes = [get_column(manifest.shards, "sha256") for manifest in manifests]
    codes = pa.concat_arrays(hashes).unique()
    at = [look_up(of_one, codes) for of_one in hashes]
    shared = np.min([sum_by_place(places, len(codes)) for places in at], axis=0)
    return [np.flatnonzero(rank_equals(places) >= shared[places]) for places in at]


class _Spill:
    """Rows on disk, in a file for each bucket of ids."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self._writers = [pa.ipc.new_file(path, _SPILLED) for path in paths]

    def add(
        self, keys: pa.RecordBatch, side: int, shard: int, marks: list[bytes] | None, start: int
    ) -> None:
        """Add consecutive rows of a shard by their keys; `start` is the index of the first."""
        n = keys.num_rows
        ids = keys.column("id").cast(pa.string())
        pieces = pa.array(np.zeros(n, "i4"))
        if "piece" in keys.schema.names:
            pieces = keys.column("piece").cast(pa.int32())
        digest_column = pa.nulls(n, pa.binary(16))
        if marks is not None:
            digest_column = pa.array(marks, pa.binary(16))
        sides = pa.array(np.full(n, side, "i4"))
        shards = pa.array(np.full(n, shard, "i4"))
        places = pa.array(np.arange(start, start + n, dtype="i4"))
        columns = [ids, pieces, digest_column, sides, shards, places]
        rows = pa.record_batch(columns, schema=_SPILLED)
        buckets = hash_ids(ids) % np.uint64(len(self.paths))
        for number, chosen in split_by_bucket(buckets, len(self.paths)):
            self._writers[number].write_batch(rows.take(pa.array(chosen)))

    def close(self) -> None:
        """Flush and close the files."""
        for writer in self._writers:
            writer.close()


def _spill_sides(sides: Sequence[_Side], folder: str) -> _Spill:
    rows = sum(int(get_numbers(side.manifest.shards, "rows")[side.shards].sum()) for side in sides)
    buckets = min(1 + rows // LISTED_ROWS, BUCKETS)
    spill = _Spill([os.path.join(folder, f"{number}.arrow") for number in range(buckets)])
    for place, side in enumerate(sides):
        for shard in progress.count_over(side.shards.tolist(), "comparing", "shards"):
            _spill_shard(spill, side, place, shard)
    return spill


def _spill_shard(spill: _Spill, side: _Side, place: int, shard: int) -> None:
    columns = side.columns if side.compared else _select_keys(side.columns)
    start = 0
    for batch in read_rows(side.manifest, shard, columns):
        row_digests = compute_digests(batch) if side.compared else None
        spill.add(batch, place, shard, row_digests, start)
        start += batch.num_rows


_Key = tuple[str, int]  # id and piece


@dataclass(frozen=True)
class _Wanted:
    """A row of the snapshot that is pushed: its digest (None: not compared), shard and row."""

    digest: bytes | None
    shard: int
    row: int


@dataclass(frozen=True)
class _OldRows:
    """The old rows of one bucket of ids.

    `left_with` are the keys that the database was left with, `deleted` the keys to delete, in
    order; `equal` counts the old snapshots with the same row as the pushed one.
    """

    left_with: set[_Key]
    deleted: list[_Key]
    equal: Counter[_Key]


def _compare(rows: pa.Table, old_sides: int, left_with: int, difference: Difference) -> pa.Table:
    """Add the rows to write of one bucket of ids to `difference`; return the keys to delete.

    `old_sides` is the number of old sides, `left_with` the one that the database was left with.
    Raises DataGateError if two rows of the pushed snapshot have one id.
    """
    columns = [column.to_pylist() for column in rows.columns]
    wanted = _find_wanted(columns)
    old = _find_old(columns, wanted, left_with)
    written = [key for key in wanted if not old_sides or old.equal[key] < old_sides]
    for key in written:
        entry = wanted[key]
        difference.rows.setdefault(entry.shard, array("i")).append(entry.row)
    changed = sum(key in old.left_with for key in written)
    deleted = sum(key in old.left_with and key not in wanted for key in old.deleted)
    difference.counts += Changes(len(written) - changed, changed, deleted)
    difference.deletable += len(old.deleted)
    return _make_key_table(old.deleted)


def _make_key_table(keys: list[_Key]) -> pa.Table:
    ids = pa.array([row_id for row_id, _ in keys], pa.string())
    pieces = pa.array([piece for _, piece in keys], pa.int32())
    return pa.table([ids, pieces], schema=_DELETED)


def _find_wanted(columns: list[list[Any]]) -> dict[_Key, _Wanted]:
    """Return the rows of the pushed snapshot. Raises DataGateError if two have one id."""
    wanted: dict[_Key, _Wanted] = {}
    for row_id, piece, digest, side, shard, row in zip(*columns, strict=True):
        if side != _NEW:
            continue
        if (row_id, piece) in wanted:
            raise DataGateError(f"the id {row_id!r} {REPEATED}")
        wanted[row_id, piece] = _Wanted(digest, shard, row)
    return wanted


def _find_old(columns: list[list[Any]], wanted: Mapping[_Key, _Wanted], left_with: int) -> _OldRows:
    keys_left_with: set[_Key] = set()
    deleted: dict[_Key, None] = {}  # a set in order
    equal: Counter[_Key] = Counter()
    for row_id, piece, digest, side, _, _ in zip(*columns, strict=True):
        if side == _NEW:
            continue
        key = row_id, piece
        if side == left_with:
            # two listed rows have one id; delete both, then write the row
            if key in keys_left_with and digest is None:
                deleted[key] = None
            keys_left_with.add(key)
        if key not in wanted:
            deleted[key] = None
        elif digest is not None and digest == wanted[key].digest:
            equal[key] += 1
    return _OldRows(keys_left_with, list(deleted), equal)
