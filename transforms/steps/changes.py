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
from transforms.store.records import Problem, UnitRecord
from transforms.store.runs import read_result
from transforms.store.settled import Settled

KNOWN, CHANGES, IDS = "known", "changes", "ids"


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


Known = Settled | Problem | Changes | UnknownChanges | DuplicateIds
Hashes = ShardSide | UnknownChanges | bytes
CountKey = tuple[str, int]  # what is known, or a bucket of changes or of ids, and its number


def rows_to_count(settled: Settled | Problem, run: Run, ids: bool) -> Iterator[Known | ChangedShard | IdShard]:
    """What is given, and the shards to read for changes and, if these are to be counted, for ids.

    Where the run is to fail, none.
    """
    yield settled
    if isinstance(settled, Settled):
        differ = differing_units(settled, run)
        yield from shards_of_changes(settled, run, differ)
        if ids:
            yield from shards_of_ids(settled, run, differ)


@dataclass(frozen=True)
class Differing:
    """The units with rows of which only the last snapshot (`old`) or only the one to come (`new`) has a copy."""

    old: list[UnitRecord]
    new: list[UnitRecord]


def differing_units(settled: Settled, run: Run) -> Differing | None:
    """The units that differ from the last snapshot, None where there is none that can be read.

    Parts that both manifests have are not read.
    """
    previous = _previous(run) if run.previous else None
    if previous is None:
        return None
    both = set(previous.parts) & set(settled.parts)
    before, units = previous.units_but(both), list(settled.units(run.root, both))
    return Differing(differing(before, units), differing(units, before))


def shards_of_changes(
    settled: Settled, run: Run, differ: Differing | None
) -> Iterator[ChangedShard | Changes | UnknownChanges]:
    """The shards that only one of two snapshots has; Changes, or that they are unknown, where none is to be read."""
    if run.previous is None:
        yield Changes(added=settled.tally.stored)
        return
    yield Changes()
    if differ is None:
        yield UnknownChanges()
        return
    buckets = buckets_for(sum(unit.rows for unit in (*differ.old, *differ.new)))
    for shards, is_new in ((differ.old, False), (differ.new, True)):
        for unit in shards:
            yield ChangedShard(storage.join(run.root, unit.path or ""), unit.bytes, is_new, buckets)


def hashes_of(shard: Known | ChangedShard | IdShard) -> Iterator[tuple[CountKey, Known | Hashes]]:
    """The hashes of a shard's rows, or of its ids, by bucket; what is known already by a key of its own."""
    if not isinstance(shard, ChangedShard | IdShard):
        yield (KNOWN, 0), shard
        return
    if isinstance(shard, IdShard):
        try:
            for number, ids in id_hashes(shard.root, shard.path, shard.buckets):
                yield (IDS, number), ids
        except SentenceBeamError as error:  # nothing may be committed that names a shard which cannot be read
            yield (KNOWN, 0), Problem.of(error)
        return
    try:
        for number, side in read_side(shard.path, shard.is_new, shard.buckets, shard.size):
            yield (CHANGES, number), side
    except SentenceBeamError:
        yield (CHANGES, 0), UnknownChanges()


def count_bucket(bucket: tuple[CountKey, Iterable[Any]]) -> list[Known]:
    """The changes, or the ids that occur twice, among the rows of one bucket; or what was known."""
    (what, _), found = bucket
    parts = list(found)
    if what == KNOWN:
        return parts
    if what == IDS:
        return [DuplicateIds(repeated(parts))]
    known = [part for part in parts if isinstance(part, ShardSide)]
    return [count_changes(known) if len(known) == len(parts) else UnknownChanges()]


def total(found: Iterable[Any]) -> Changes | None:
    """The sum of all changes of a run; None where they are not known."""
    counted = [item for item in found if isinstance(item, (Changes, UnknownChanges))]
    known = [item for item in counted if isinstance(item, Changes)]
    return sum(known, Changes()) if known and len(known) == len(counted) else None


def shards_of_ids(settled: Settled, run: Run, differ: Differing | None) -> Iterator[IdShard | DuplicateIds]:
    """The shards whose ids are to be counted; DuplicateIds where nothing has to be read."""
    if differ is not None and not differ.old and not differ.new:
        yield DuplicateIds(previous_duplicate_ids(run))
        return
    yield DuplicateIds(0)
    buckets = buckets_for(settled.tally.stored)
    yield from (IdShard(run.root, unit.path, buckets) for unit in settled.units(run.root) if unit.path)


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
