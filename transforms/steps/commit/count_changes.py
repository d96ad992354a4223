"""Rows added, changed and deleted since the last snapshot, and duplicate ids.

Deleted rows are also counted as the gate counts them. All are counted by buckets of hashes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transforms import storage
from transforms.base.errors import SentenceBeamError
from transforms.store.manifest import Manifest
from transforms.store.records import Problem, UnitRecord
from transforms.store.runs.changes import (
    Changes,
    ShardSide,
    buckets_for,
    count_changes,
    differing,
    read_side,
    repeated,
)
from transforms.store.runs.commit import Run, last_snapshot
from transforms.store.runs.deletes import KeyedRows, RowKeys, row_keys, rows_gone
from transforms.store.runs.facts import RunFact
from transforms.store.runs.plan import file_of, shared_plan
from transforms.store.runs.result import read_result
from transforms.store.runs.settled import Settled
from transforms.store.shards.id_hashes import id_hashes

KNOWN = "known"
CHANGES = "changes"
DELETES = "deletes"
IDS = "ids"


@dataclass(frozen=True)
class ChangedShard:
    """A shard to read, of `size` bytes, whose rows go into `buckets` buckets of ids."""

    path: str
    size: int
    is_new: bool
    buckets: int


@dataclass(frozen=True)
class IdShard:
    """A shard by its path in the store, whose ids go into `buckets` buckets."""

    root: str
    path: str
    buckets: int


@dataclass(frozen=True)
class ShardOfGate:
    """A changed shard to read for the gate of deleted rows, and the keys of its rows."""

    shard: ChangedShard
    keys: RowKeys


@dataclass(frozen=True)
class Counting:
    """An element of the count: a known fact, or a shard to read for one of the counts."""

    fact: RunFact | None = None
    changed: ChangedShard | None = None
    gate: ShardOfGate | None = None
    ids: IdShard | None = None


Hashes = ShardSide | KeyedRows | bytes | None  # None: an old shard is damaged or gone
CountKey = tuple[str, int]  # what is known, or a bucket of what is counted, and its number


def rows_to_count(fact: RunFact, run: Run, ids: bool) -> Iterator[Counting]:
    """Yield the given fact, and the shards to read for changes, gate and (`ids`) ids.

    If the run is to fail, there are no shards.
    """
    yield Counting(fact)
    settled = fact.settled
    if settled is not None:
        differ = differing_units(settled, run)
        yield from shards_of_changes(settled, run, differ)
        yield from (Counting(gate=shard) for shard in shards_of_gate(run, differ))
        if ids:
            yield from shards_of_ids(settled, run, differ)


@dataclass(frozen=True)
class Differing:
    """The units with rows that only the last (`old`) or the next snapshot (`new`) has."""

    old: list[UnitRecord]
    new: list[UnitRecord]


def differing_units(settled: Settled, run: Run) -> Differing | None:
    """Return the units that differ from the last snapshot; None if it cannot be read.

    Parts that both manifests have are not read.
    """
    previous = _previous(run) if run.previous else None
    if previous is None:
        return None
    both = set(previous.parts) & set(settled.parts)
    before = previous.units_but(both)
    units = list(settled.units(run.root, both))
    return Differing(differing(before, units), differing(units, before))


def shards_of_changes(settled: Settled, run: Run, differ: Differing | None) -> Iterator[Counting]:
    """Yield the shards that only one of two snapshots has, or known changes."""
    if run.previous is None:
        yield Counting(RunFact(changes=Changes(added=settled.tally.stored)))
        return
    yield Counting(RunFact(changes=Changes()))
    if differ is None:
        yield Counting(RunFact(changes_unknown=True))
        return
    yield from (Counting(changed=shard) for shard in changed_shards(run.root, differ))


def shards_of_gate(run: Run, differ: Differing | None) -> Iterator[ShardOfGate]:
    """Yield the changed shards, if they have rows enough for the gate to refuse the run."""
    if differ is None or not run.has_delete_gate:
        return
    if sum(unit.written for unit in differ.old) <= run.gates.max_deletes * run.previous_rows:
        return
    last = last_snapshot(run)
    files = [file_of(entry) for entry in shared_plan(run.root, run.id).files]
    keys = None
    if last is not None:
        keys = row_keys(run.options, last, files)
    if keys is not None:
        yield from (ShardOfGate(shard, keys) for shard in changed_shards(run.root, differ))


def changed_shards(root: str, differ: Differing) -> Iterator[ChangedShard]:
    """Yield the shards that only one of two snapshots has."""
    buckets = buckets_for(sum(unit.rows for unit in (*differ.old, *differ.new)))
    for shards, is_new in ((differ.old, False), (differ.new, True)):
        for unit in shards:
            yield ChangedShard(storage.join(root, unit.path or ""), unit.bytes, is_new, buckets)


def hashes_of(element: Counting) -> Iterator[tuple[CountKey, RunFact | Hashes]]:
    """Yield the hashes of a shard's rows, or of its ids, by bucket; a fact by its own key."""
    if element.fact is not None:
        yield (KNOWN, 0), element.fact
    if element.changed is not None:
        yield from _of_changed(element.changed)
    if element.gate is not None:
        yield from _of_gate(element.gate)
    if element.ids is not None:
        yield from _of_ids(element.ids)


def _of_changed(shard: ChangedShard) -> Iterator[tuple[CountKey, ShardSide | None]]:
    """Yield the hashes of a shard's rows by bucket."""
    try:
        for number, side in read_side(shard.path, shard.is_new, shard.buckets, shard.size):
            yield (CHANGES, number), side
    except SentenceBeamError:
        yield (CHANGES, 0), None


def _of_ids(shard: IdShard) -> Iterator[tuple[CountKey, RunFact | bytes]]:
    """Yield the hashes of a shard's ids by bucket."""
    try:
        for number, ids in id_hashes(shard.root, shard.path, shard.buckets):
            yield (IDS, number), ids
    except SentenceBeamError as error:
        # nothing may be committed that names a shard which cannot be read
        yield (KNOWN, 0), RunFact(problem=Problem.of(error))


def _of_gate(item: ShardOfGate) -> Iterator[tuple[CountKey, KeyedRows | RunFact]]:
    """Yield the keys of a shard's rows by bucket.

    Rows of a damaged old shard count as rows that stay.
    """
    shard = item.shard
    try:
        for number, rows in item.keys.read(shard.path, shard.size, shard.is_new, shard.buckets):
            yield (DELETES, number), rows
    except SentenceBeamError as error:
        if shard.is_new:
            yield (KNOWN, 0), RunFact(problem=Problem.of(error))


def count_bucket(bucket: tuple[CountKey, Iterable[Any]]) -> list[RunFact]:
    """Return the changes, or the duplicate ids, of one bucket; or known facts."""
    (what, _), found = bucket
    parts = list(found)
    if what == KNOWN:
        return parts
    if what == IDS:
        return [RunFact(duplicate_ids=repeated(parts))]
    if what == DELETES:
        return [RunFact(deleted=rows_gone(parts))]
    if any(part is None for part in parts):
        return [RunFact(changes_unknown=True)]
    return [RunFact(changes=count_changes(parts))]


def total(facts: Sequence[RunFact]) -> Changes | None:
    """Return the sum of all changes of a run; None if they are not known."""
    changes = [fact.changes for fact in facts if fact.changes is not None]
    if not changes or any(fact.changes_unknown for fact in facts):
        return None
    return sum(changes, Changes())


def shards_of_ids(settled: Settled, run: Run, differ: Differing | None) -> Iterator[Counting]:
    """Yield the shards whose ids are to be counted, or the known number of duplicates."""
    unchanged = differ is not None and not differ.old and not differ.new
    known = previous_duplicate_ids(run) if unchanged else None
    if known is not None:
        yield Counting(RunFact(duplicate_ids=known))
        return
    yield Counting(RunFact(duplicate_ids=0))
    buckets = buckets_for(settled.tally.stored)
    shards = (
        IdShard(run.root, unit.path, buckets) for unit in settled.units(run.root) if unit.path
    )
    yield from (Counting(ids=shard) for shard in shards)


def previous_duplicate_ids(run: Run) -> int | None:
    """Return the duplicate ids that the last run counted.

    Returns None if its result is missing or damaged.
    """
    if run.previous is None:
        return 0
    last = read_result(run.root, run.previous)
    return last.duplicate_ids if last else None


def _previous(run: Run) -> Manifest | None:
    """Return the last snapshot, if it can be read."""
    try:
        return last_snapshot(run)
    except SentenceBeamError:
        return None
