"""Rows added, changed and deleted since the last snapshot, and ids that occur twice, counted by buckets of hashes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from transforms import storage
from transforms.errors import SentenceBeamError
from transforms.store.changes import Changes, ShardSide, buckets_for, count_changes, differing, read_side
from transforms.store.commit import Run, last_snapshot
from transforms.store.manifest import Manifest
from transforms.store.records import Problem, UnitRecord
from transforms.store.runs import read_result


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
class DuplicateIds:
    """The number of rows whose id an earlier row of the snapshot has."""

    rows: int


def differing_shards(found: list[Any], run: Run) -> Iterator[ChangedShard | Changes | UnknownChanges]:
    """The shards that only one of two snapshots has; and Changes (or that they are unknown) where none is to be read.

    `found` is everything known of a run, units and problems among it; where the run is to fail there is nothing to do.
    """
    units = _once(item for item in found if isinstance(item, UnitRecord))
    if any(isinstance(item, Problem) for item in found):
        return
    if run.previous is None:
        yield Changes(added=sum(unit.rows for unit in units))
        return
    yield Changes()
    previous = _previous(run)
    if previous is None:
        yield UnknownChanges()
        return
    old, new = differing(previous.units, units), differing(units, previous.units)
    buckets = buckets_for(sum(unit.rows for unit in (*old, *new)))
    for shards, is_new in ((old, False), (new, True)):
        for unit in shards:
            yield ChangedShard(storage.join(run.root, unit.path or ""), unit.bytes, is_new, buckets)


def read_changed(shard: ChangedShard) -> Iterator[tuple[int, ShardSide | UnknownChanges]]:
    """The hashes of a shard's rows, by bucket."""
    try:
        yield from read_side(shard.path, shard.is_new, shard.buckets, shard.size)
    except SentenceBeamError:
        yield 0, UnknownChanges()


def count_bucket(bucket: tuple[int, Iterable[ShardSide | UnknownChanges]]) -> Changes | UnknownChanges:
    """The changes among the rows of one bucket."""
    sides = list(bucket[1])
    known = [side for side in sides if isinstance(side, ShardSide)]
    return count_changes(known) if len(known) == len(sides) else UnknownChanges()


def total(found: Iterable[Any]) -> Changes | None:
    """The sum of all changes of a run; None where they are not known."""
    counted = [item for item in found if isinstance(item, (Changes, UnknownChanges))]
    known = [item for item in counted if isinstance(item, Changes)]
    return sum(known, Changes()) if known and len(known) == len(counted) else None


def shards_to_count(found: list[UnitRecord], run: Run) -> Iterator[tuple[str, str, int] | DuplicateIds]:
    """(root, shard, buckets) whose ids are to be counted; DuplicateIds where nothing has to be read."""
    units = _once(found)
    previous = _previous(run) if run.previous else None
    if previous and not differing(previous.units, units) and not differing(units, previous.units):
        yield DuplicateIds(previous_duplicate_ids(run))
        return
    yield DuplicateIds(0)
    buckets = buckets_for(sum(unit.rows for unit in units))
    yield from ((run.root, unit.path, buckets) for unit in units if unit.path)


def previous_duplicate_ids(run: Run) -> int:
    """The duplicate ids that the last run counted."""
    last = read_result(run.root, run.previous) if run.previous else None
    return last.duplicate_ids if last else 0


def _once(units: Iterable[UnitRecord]) -> list[UnitRecord]:
    """The units, each once: an engine that tries a bundle again delivers some twice."""
    return list({unit.unit: unit for unit in units}.values())


def _previous(run: Run) -> Manifest | None:
    """The last snapshot, if it can be read."""
    try:
        return last_snapshot(run)
    except SentenceBeamError:
        return None
