"""Changes between two snapshots, counted and listed, and ids that rows of one snapshot share.

A row is its (id, row hash), a snapshot a multiset of rows. An id with other rows than before is
changed as often as both snapshots have it, and added or deleted for the rest. Units that both
snapshots have, byte for byte, cancel out and are not read. Duplicate ids are allowed, and counted.
Ids are compared by 64-bit hashes, in buckets that are counted separately.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import pyarrow as pa

from transforms import storage
from transforms.base import progress
from transforms.base.arrow import as_hashes, hash_prefixes
from transforms.corpus.buckets import in_buckets
from transforms.store.manifest import Manifest
from transforms.store.records import UnitRecord
from transforms.store.shards.id_hashes import hash_ids
from transforms.store.shards.reading import read_shard

BUCKET_ROWS = 1_000_000
BUCKETS = 256
LISTED_ROWS = 250_000  # of a bucket that is listed: its rows are held as Python objects
MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplying loses nothing
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("change", pa.string()),
        ("old_row_hash", pa.binary(16)),
        ("new_row_hash", pa.binary(16)),
    ]
)
_ROWS = pa.schema([("id", pa.string()), ("row_hash", pa.binary(16)), ("sign", pa.int8())])


def buckets_for(rows: int) -> int:
    """Return the number of buckets for the ids of so many rows."""
    return min(1 + rows // BUCKET_ROWS, BUCKETS)


def repeated(parts: Iterable[bytes]) -> int:
    """Return the number of a bucket's rows whose id an earlier row has."""
    # np.unique takes twenty times as long
    hashes = np.sort(np.frombuffer(b"".join(parts), np.uint64))
    return int(np.count_nonzero(hashes[1:] == hashes[:-1]))


@dataclass(frozen=True)
class Changes:
    """The numbers of rows that were added, changed and deleted since the last snapshot."""

    added: int = 0
    changed: int = 0
    deleted: int = 0

    def __add__(self, other: "Changes") -> "Changes":
        return Changes(
            self.added + other.added, self.changed + other.changed, self.deleted + other.deleted
        )


@dataclass(frozen=True)
class ShardSide:
    """Rows of one shard, as packed uint64: hashes of ids, and of ids with texts."""

    is_new: bool
    ids: bytes
    rows: bytes


def differing(units: Iterable[UnitRecord], others: Iterable[UnitRecord]) -> list[UnitRecord]:
    """Return the units with rows of which the other snapshot has no copy.

    Of each content these are as many as it lacks.
    """
    left = Counter(unit.sha256 for unit in others if unit.path)
    found = []
    for unit in units:
        if unit.path and left[unit.sha256]:
            left[unit.sha256] -= 1
        elif unit.path:
            found.append(unit)
    return found


def read_side(
    path: str, is_new: bool, buckets: int, size: int | None = None
) -> Iterator[tuple[int, ShardSide]]:
    """Yield (bucket, its rows) for the ids of a shard.

    `size` is the shard's in bytes, if known.
    """
    ids = []
    rows = []
    for batch in read_shard(path, ["id", "row_hash"], size):
        ids.append(hash_ids(batch.column(0)))
        rows.append(hash_prefixes(as_hashes(batch.column(1))))
    all_ids = np.concatenate(ids) if ids else np.empty(0, np.uint64)
    all_rows = all_ids
    if rows:
        all_rows = all_ids * MIX + np.concatenate(rows)
    for number, places in in_buckets(all_ids % np.uint64(buckets), buckets):
        yield number, ShardSide(is_new, all_ids[places].tobytes(), all_rows[places].tobytes())


def count_changes(sides: Iterable[ShardSide]) -> Changes:
    """Return the changes among the rows of one bucket, of the old and of the new snapshot."""
    old: list[ShardSide] = []
    new: list[ShardSide] = []
    for side in sides:
        if side.is_new:
            new.append(side)
        else:
            old.append(side)
    deleted, added = _excess([side.ids for side in old], [side.ids for side in new])
    lost, _ = _excess([side.rows for side in old], [side.rows for side in new])
    return Changes(added=added, changed=lost - deleted, deleted=deleted)


def _excess(old: list[bytes], new: list[bytes]) -> tuple[int, int]:
    """Return how many items each of two multisets has beyond the other, the old one first."""
    before, after = (np.frombuffer(b"".join(parts), np.uint64) for parts in (old, new))
    items = np.concatenate([before, after])
    if not len(items):
        return 0, 0
    order = np.argsort(items)
    first = np.flatnonzero(np.append(True, np.diff(items[order]) != 0))
    sign = np.repeat([1, -1], [len(before), len(after)])
    difference = np.add.reduceat(sign[order], first)
    return int(difference[difference > 0].sum()), int(-difference[difference < 0].sum())


def diff(old: Manifest, new: Manifest) -> Iterator[pa.Table]:
    """Yield tables of `SCHEMA` with the ids that were added, changed or deleted.

    Each table has some of the ids, sorted. A changed id has both hashes, an added one no old and a
    deleted one no new hash.
    """
    sides = [(old.root, unit, -1) for unit in differing(old.units, new.units)]
    sides += [(new.root, unit, 1) for unit in differing(new.units, old.units)]
    rows = sum(unit.rows for _, unit, _ in sides)
    buckets = min(-(-rows // LISTED_ROWS), BUCKETS)
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, f"{bucket}.arrow") for bucket in range(buckets)]
        _spill(sides, paths)
        for path in progress.over(paths, "comparing", "parts"):
            with pa.memory_map(path) as source:
                yield _compare(pa.ipc.open_file(source).read_all())
            os.unlink(path)


def _spill(sides: list[tuple[str, UnitRecord, int]], paths: list[str]) -> None:
    """Write every row into the file of its bucket."""
    writers = [pa.ipc.new_file(path, _ROWS) for path in paths]
    for root, unit, sign in progress.over(sides, "reading", "shards"):
        for batch in read_shard(
            storage.join(root, unit.path or ""), ["id", "row_hash"], unit.bytes
        ):
            signs = pa.array(np.full(batch.num_rows, sign, np.int8))
            rows = pa.record_batch([*batch.columns, signs], schema=_ROWS)
            bucket = hash_ids(batch.column(0)) % np.uint64(len(paths))
            for number, places in in_buckets(bucket, len(paths)):
                writers[number].write_batch(rows.take(pa.array(places)))
    for writer in writers:
        writer.close()


def _compare(rows: pa.Table) -> pa.Table:
    """Return the differences among the rows of some ids."""
    counts = rows.group_by(["id", "row_hash"]).aggregate([("sign", "sum")])
    removed: dict[str, list[bytes]] = {}
    added: dict[str, list[bytes]] = {}
    for row_id, row_hash, sign in zip(
        *(column.to_pylist() for column in counts.columns), strict=True
    ):
        hashes = [row_hash] * abs(sign)
        if sign > 0:
            added.setdefault(row_id, []).extend(hashes)
        elif sign < 0:
            removed.setdefault(row_id, []).extend(hashes)
    found = [
        change
        for row_id in sorted({*removed, *added})
        for change in _of_one_id(row_id, removed, added)
    ]
    return pa.Table.from_pylist(found, schema=SCHEMA)


def _of_one_id(
    row_id: str, removed: dict[str, list[bytes]], added: dict[str, list[bytes]]
) -> Iterator[dict[str, object]]:
    for old, new in zip_longest(sorted(removed.get(row_id, [])), sorted(added.get(row_id, []))):
        if old is None:
            change = "added"
        else:
            change = "deleted" if new is None else "changed"
        yield {"id": row_id, "change": change, "old_row_hash": old, "new_row_hash": new}
