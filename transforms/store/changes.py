"""What changed between two snapshots. A row is its (id, row hash), and a snapshot a multiset of these.

An id whose rows are others now is changed as often as both snapshots have it, and added or deleted for the rest.
Units that both snapshots have, byte for byte, cancel out and are not read.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from transforms.store.duplicates import hash_ids, in_buckets
from transforms.store.records import UnitRecord
from transforms.store.shards import as_hashes, read_shard

MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplying loses nothing


@dataclass(frozen=True)
class Changes:
    """Rows by what became of them since the last snapshot."""

    added: int = 0
    changed: int = 0
    deleted: int = 0

    def __add__(self, other: "Changes") -> "Changes":
        return Changes(self.added + other.added, self.changed + other.changed, self.deleted + other.deleted)


@dataclass(frozen=True)
class Side:
    """Rows of one shard: `ids` uint64 hashes of the ids, `rows` uint64 hashes of ids and texts, both as bytes."""

    is_new: bool
    ids: bytes
    rows: bytes


def differing(units: Iterable[UnitRecord], others: Iterable[UnitRecord]) -> list[UnitRecord]:
    """Units with rows of which the other snapshot has no copy: as many of each content as are in excess."""
    left = Counter(unit.sha256 for unit in others if unit.path)
    found = []
    for unit in units:
        if unit.path and left[unit.sha256]:
            left[unit.sha256] -= 1
        elif unit.path:
            found.append(unit)
    return found


def read_side(path: str, is_new: bool, buckets: int, size: int | None = None) -> Iterator[tuple[int, Side]]:
    """The rows of a shard (of `size` bytes, if known), by a bucket of their id."""
    ids, rows = [], []
    for batch in read_shard(path, ["id", "row_hash"], size):
        ids.append(hash_ids(batch.column(0)))
        rows.append(np.ascontiguousarray(as_hashes(batch.column(1))[:, :8]).view(np.uint64).reshape(-1))
    all_ids = np.concatenate(ids) if ids else np.empty(0, np.uint64)
    all_rows = all_ids * MIX + np.concatenate(rows) if rows else all_ids
    for number, places in in_buckets(all_ids, buckets):
        yield number, Side(is_new, all_ids[places].tobytes(), all_rows[places].tobytes())


def count_changes(sides: Iterable[Side]) -> Changes:
    """The changes within one bucket."""
    old: list[Side] = []
    new: list[Side] = []
    for side in sides:
        (new if side.is_new else old).append(side)
    deleted, added = _excess([side.ids for side in old], [side.ids for side in new])
    lost, _ = _excess([side.rows for side in old], [side.rows for side in new])
    return Changes(added=added, changed=lost - deleted, deleted=deleted)


def _excess(old: list[bytes], new: list[bytes]) -> tuple[int, int]:
    """How many items the old multiset has beyond the new one, and the new one beyond the old."""
    before, after = (np.frombuffer(b"".join(parts), np.uint64) for parts in (old, new))
    items = np.concatenate([before, after])
    if not len(items):
        return 0, 0
    order = np.argsort(items)
    first = np.flatnonzero(np.append(True, np.diff(items[order]) != 0))
    sign = np.repeat([1, -1], [len(before), len(after)])
    difference = np.add.reduceat(sign[order], first)
    return int(difference[difference > 0].sum()), int(-difference[difference < 0].sum())
