"""Rows added, changed and deleted since the last snapshot, and ids that occur twice, counted by buckets of hashes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from transforms import storage
from transforms.errors import SentenceBeamError
from transforms.store.changes import Changes, ShardSide, buckets_for, count_changes, differing, read_side, repeated
from transforms.store.commit import Run, last_snapshot
from transforms.store.id_hashes import id_hashes
from transforms.store.manifest import Manifest
from transforms.store.records import Problem
from transforms.store.runs import read_result
from transforms.store.settled import Settled

CHANGES, IDS = "changes", "ids"


@dataclass(frozen=True)
class UnknownChanges:
    """Changes that cannot be counted, since an old shard is damaged or gone."""


@dataclass(frozen=True)
class ChangedShard:
    """A shard to read, of `size` bytes, and into how many buckets of ids its rows go."""

    path: str
    size: int
    is_new: bool
    buckets: int


@dataclass(frozen=True)
class IdShard:
    """A shard by its path in the store, and into how many buckets its ids go."""

    root: str
    path: str
    buckets: int


@dataclass(frozen=True)
class DuplicateIds:
    """The number of rows whose id an earlier row of the snapshot has."""

    rows: int


Counted = Changes | UnknownChanges | DuplicateIds
CountKey = tuple[str, int]  # of changes or of ids, and its number


def rows_to_count(
    settled: Settled | Problem, run: Run, ids: bool
) -> Iterator[Settled | Problem | ChangedShard | IdShard | Counted]:
    """What is given, and the shards to read for changes and, if these are to be counted, for ids.

    Where the run is to fail, none.
    """
    yield settled
    if isinstance(settled, Settled):
        yield from differing_shards(settled, run)
        if ids:
            yield from shards_to_count(settled, run)


def differing_shards(settled: Settled, run: Run) -> Iterator[ChangedShard | Changes | UnknownChanges]:
    """The shards that only one of two snapshots has; Changes, or that they are unknown, where none is to be read."""
    if run.previous is None:
        yield Changes(added=settled.tally.stored)
        return
    yield Changes()
    previous = _previous(run)
    if previous is None:
        yield UnknownChanges()
        return
    units = list(settled.units(run.root))
    old, new = differing(previous.units, units), differing(units, previous.units)
    buckets = buckets_for(sum(unit.rows for unit in (*old, *new)))
    for shards, is_new in ((old, False), (new, True)):
        for unit in shards:
            yield ChangedShard(storage.join(run.root, unit.path or ""), unit.bytes, is_new, buckets)


def hashes_of(shard: ChangedShard | IdShard) -> Iterator[tuple[CountKey, ShardSide | UnknownChanges | bytes]]:
    """The hashes of a shard's rows, or of its ids, by bucket."""
    if isinstance(shard, IdShard):
        for number, ids in id_hashes(shard.root, shard.path, shard.buckets):
            yield (IDS, number), ids
        return
    try:
        for number, side in read_side(shard.path, shard.is_new, shard.buckets, shard.size):
            yield (CHANGES, number), side
    except SentenceBeamError:
        yield (CHANGES, 0), UnknownChanges()


def count_bucket(bucket: tuple[CountKey, Iterable[ShardSide | UnknownChanges | bytes]]) -> Counted:
    """The changes, or the ids that occur twice, among the rows of one bucket."""
    (what, _), found = bucket
    parts = list(found)
    if what == IDS:
        return DuplicateIds(repeated(part for part in parts if isinstance(part, bytes)))
    known = [part for part in parts if isinstance(part, ShardSide)]
    return count_changes(known) if len(known) == len(parts) else UnknownChanges()


def total(found: Iterable[Any]) -> Changes | None:
    """The sum of all changes of a run; None where they are not known."""
    counted = [item for item in found if isinstance(item, (Changes, UnknownChanges))]
    known = [item for item in counted if isinstance(item, Changes)]
    return sum(known, Changes()) if known and len(known) == len(counted) else None


def shards_to_count(settled: Settled, run: Run) -> Iterator[IdShard | DuplicateIds]:
    """The shards whose ids are to be counted; DuplicateIds where nothing has to be read."""
    units = list(settled.units(run.root))
    previous = _previous(run) if run.previous else None
    if previous and not differing(previous.units, units) and not differing(units, previous.units):
        yield DuplicateIds(previous_duplicate_ids(run))
        return
    yield DuplicateIds(0)
    buckets = buckets_for(settled.tally.stored)
    yield from (IdShard(run.root, unit.path, buckets) for unit in units if unit.path)


def previous_duplicate_ids(run: Run) -> int:
    """The duplicate ids that the last run counted."""
    last = read_result(run.root, run.previous) if run.previous else None
    return last.duplicate_ids if last else 0


def _previous(run: Run) -> Manifest | None:
    """The last snapshot, if it can be read."""
    try:
        return last_snapshot(run)
    except SentenceBeamError:
        return None
