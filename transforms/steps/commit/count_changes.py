"""Rows added, changed and deleted since the last snapshot, and duplicate ids.

Deleted rows are also counted as the gate counts them. All are counted by buckets of hashes, one a
million rows. An element reads several shards, and the old and the new shard of a unit together, so
that the rows which both have do not travel.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.base.pairs import group_by_size
from sentence_beam.transforms.store.changes_entry import ChangesEntry
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.changed_rows import (
    Changes,
    SnapshotShard,
    by_bucket,
    changed_rows,
    count_changes,
    read_block,
    unpacked,
    value_columns,
    write_changes,
)
from sentence_beam.transforms.store.runs.changes import buckets_for, repeated
from sentence_beam.transforms.store.runs.commit import Run, last_snapshot
from sentence_beam.transforms.store.runs.deletes import KeyedRows, RowKeys, row_keys, rows_gone
from sentence_beam.transforms.store.runs.facts import RunFact
from sentence_beam.transforms.store.runs.plan import read_plan
from sentence_beam.transforms.store.runs.result import read_result
from sentence_beam.transforms.store.runs.settle import Settled
from sentence_beam.transforms.store.shards.id_hashes import hashes_by_bucket, id_hashes
from sentence_beam.transforms.store.tables.columns import records_of
from sentence_beam.transforms.store.tables.parts import read_table
from sentence_beam.transforms.store.tables.units import differing_parts

KNOWN = "known"
CHANGES = "changes"
DELETES = "deletes"
IDS = "ids"
READ_ROWS = 500_000  # of the shards that an element reads: some 100 MB


@dataclass(frozen=True)
class ChangedShards:
    """Shards whose rows go into `buckets` buckets of ids.

    Rows are compared by id, text and the values of some `columns`.
    """

    shards: tuple[SnapshotShard, ...]
    columns: tuple[str, ...]
    buckets: int


@dataclass(frozen=True)
class ShardsOfGate:
    """Changed shards to read for the gate of deleted rows, and the keys of their rows."""

    shards: tuple[SnapshotShard, ...]
    keys: RowKeys
    buckets: int


@dataclass(frozen=True)
class ShardsOfIds:
    """Shards by their paths in the store, whose ids go into `buckets` buckets."""

    paths: tuple[str, ...]
    buckets: int


@dataclass(frozen=True)
class Counting:
    """An element of the count: a known fact, or shards to read for one of the counts."""

    fact: RunFact | None = None
    changed: ChangedShards | None = None
    gate: ShardsOfGate | None = None
    ids: ShardsOfIds | None = None


Packed = RunFact | bytes | None  # None: an old shard is damaged or gone
CountKey = tuple[str, int]  # what is known, or a bucket of what is counted, and its number


def rows_to_count(fact: RunFact, run: Run, ids: bool, changes: bool = True) -> Iterator[Counting]:
    """Yield the given fact, and the shards to read for gate, (`changes`) changes and (`ids`) ids.

    If the run is to fail, there are no shards.
    """
    yield Counting(fact)
    settled = fact.settled
    if settled is not None:
        differ = differing_units(settled, run)
        if changes:
            yield from shards_of_changes(settled, run, differ)
        yield from (Counting(gate=shards) for shards in shards_of_gate(run, differ))
        if ids:
            yield from shards_of_ids(settled, run, differ)


@dataclass(frozen=True)
class Differing:
    """The units with rows that only the last (`old`) or the next snapshot (`new`) has.

    `columns` are those whose values both snapshots keep.
    """

    old: list[UnitRecord]
    new: list[UnitRecord]
    columns: tuple[str, ...]

    @property
    def buckets(self) -> int:
        """The number of buckets for all their rows."""
        return buckets_for(sum(unit.rows for unit in (*self.old, *self.new)))

    def groups(self) -> Iterator[tuple[SnapshotShard, ...]]:
        """Yield the shards to read at once; old and new ones of a unit are neighbours."""
        sides = [(unit, False) for unit in self.old] + [(unit, True) for unit in self.new]
        sides.sort(key=lambda side: (side[0].unit, side[1]))
        for group in group_by_size(sides, lambda side: side[0].rows, READ_ROWS):
            yield tuple(
                SnapshotShard(unit.path or "", unit.bytes, is_new) for unit, is_new in group
            )


def differing_units(settled: Settled, run: Run) -> Differing | None:
    """Return the units that differ from the last snapshot; None if it cannot be read.

    Parts that both snapshots have are not read.
    """
    previous = _previous(run) if run.previous else None
    if previous is None:
        return None
    try:
        old, new = differing_parts(run.root, previous.units, settled.units)
    except SentenceBeamError:
        return None
    columns = value_columns(previous.options, run.options)
    return Differing(records_of(old), records_of(new), columns)


def shards_of_changes(settled: Settled, run: Run, differ: Differing | None) -> Iterator[Counting]:
    """Yield the shards that only one of two snapshots has, or known changes."""
    if run.previous is None:
        yield Counting(RunFact(changes=Changes(added=settled.tally.stored)))
        return
    yield Counting(RunFact(changes=Changes()))
    if differ is None:
        yield Counting(RunFact(changes_unknown=True))
        return
    for shards in differ.groups():
        yield Counting(changed=ChangedShards(shards, differ.columns, differ.buckets))


def shards_of_gate(run: Run, differ: Differing | None) -> Iterator[ShardsOfGate]:
    """Yield the changed shards, if they have rows enough for the gate to refuse the run."""
    if differ is None or not run.has_delete_gate:
        return
    if sum(unit.written for unit in differ.old) <= run.gates.max_deletes * run.previous_rows:
        return
    last = last_snapshot(run)
    files = read_plan(run.root, run.id).files
    keys = row_keys(run.options, last, files) if last is not None else None
    if keys is not None:
        yield from (ShardsOfGate(shards, keys, differ.buckets) for shards in differ.groups())


def hashes_of(element: Counting, run: tuple[str, str]) -> Iterator[tuple[CountKey, Packed]]:
    """Yield the rows of some shards, or the hashes of their ids, by bucket.

    A fact has a key of its own. `run` is the run's key.
    """
    root, _ = run
    if element.fact is not None:
        yield (KNOWN, 0), element.fact
    if element.changed is not None:
        yield from _of_changed(root, element.changed)
    if element.gate is not None:
        yield from _of_gate(root, element.gate)
    if element.ids is not None:
        yield from _of_ids(root, element.ids)


def _of_changed(root: str, given: ChangedShards) -> Iterator[tuple[CountKey, bytes | None]]:
    """Yield the rows that only one snapshot has, by bucket."""
    try:
        block = read_block(root, given.shards, given.columns)
    except SentenceBeamError:
        yield (CHANGES, 0), None
        return
    for number, rows in by_bucket(block, given.buckets):
        yield (CHANGES, number), rows


def _of_ids(root: str, given: ShardsOfIds) -> Iterator[tuple[CountKey, RunFact | bytes]]:
    """Yield the hashes of the shards' ids by bucket."""
    try:
        hashes = np.concatenate([id_hashes(root, path) for path in given.paths])
    except SentenceBeamError as error:
        # nothing may be committed that names a shard which cannot be read
        yield (KNOWN, 0), RunFact(problem=Problem.of(error))
        return
    for number, ids in hashes_by_bucket(hashes, given.buckets):
        yield (IDS, number), ids


def _of_gate(root: str, given: ShardsOfGate) -> Iterator[tuple[CountKey, RunFact | bytes]]:
    """Yield the keys of the shards' rows by bucket.

    Rows of a damaged old shard count as rows that stay.
    """
    parts = []
    for shard in given.shards:
        try:
            path = storage.join(root, shard.path)
            parts.append(given.keys.read(path, shard.size, shard.is_new))
        except SentenceBeamError as error:
            if shard.is_new:
                yield (KNOWN, 0), RunFact(problem=Problem.of(error))
    for number, rows in KeyedRows.of(parts).by_bucket(given.buckets):
        yield (DELETES, number), rows


def count_bucket(bucket: tuple[CountKey, Iterable[Any]], run: tuple[str, str]) -> list[RunFact]:
    """Return the changes, or the duplicate ids, of one bucket; or known facts.

    The changed rows are written. `run` is the run's key.
    """
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
    changed = changed_rows(unpacked(parts))
    if not len(changed):
        return []
    return [RunFact(changes=count_changes(changed), changed=write_changes(*run, changed))]


def recorded_changes(facts: Sequence[RunFact], run: Run) -> ChangesEntry | None:
    """Return the entry of the files with the changed rows; None if they are not known."""
    if run.previous is None or total(facts) is None:
        return None
    files = [fact.changed for fact in facts if fact.changed is not None]
    return ChangesEntry(run.previous, tuple(sorted(files, key=attrgetter("path"))))


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
    units = read_table(run.root, "units", settled.units, ["path", "rows"])
    shards = units.filter(units.column("path").is_valid()).to_pylist()
    for group in group_by_size(shards, itemgetter("rows"), READ_ROWS):
        yield Counting(ids=ShardsOfIds(tuple(shard["path"] for shard in group), buckets))


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
