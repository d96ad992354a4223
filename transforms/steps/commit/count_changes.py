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
import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.base.pairing import group_by_size
from sentence_beam.transforms.store.entries import ChangesEntry
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.changed_rows import (
    BLOCK,
    Changes,
    SnapshotShard,
    by_bucket,
    count_changes,
    find_changed_rows,
    find_left_over,
    list_value_columns,
    make_block,
    unpacked,
    write_changes,
)
from sentence_beam.transforms.store.runs.commit import Run, read_last_snapshot
from sentence_beam.transforms.store.runs.deleted_rows import (
    KeyedRows,
    RowKeys,
    choose_replaced_keys,
    count_rows_gone,
)
from sentence_beam.transforms.store.runs.listed_changes import count_buckets, count_repeated
from sentence_beam.transforms.store.runs.recorded_plan import read_plan
from sentence_beam.transforms.store.runs.run_facts import RunFact
from sentence_beam.transforms.store.runs.run_result import read_result
from sentence_beam.transforms.store.runs.settled_tables import Settled
from sentence_beam.transforms.store.shards.id_hashes import (
    hash_ids_in,
    keep_hashes,
    pack_hashes,
    read_id_hashes,
)
from sentence_beam.transforms.store.shards.shard_reading import read_shard
from sentence_beam.transforms.store.tables.table_columns import make_records
from sentence_beam.transforms.store.tables.table_parts import read_table
from sentence_beam.transforms.store.tables.unit_rows import find_differing_parts

KNOWN = "known"
CHANGES = "changes"
DELETES = "deletes"
IDS = "ids"
READ_ROWS = 500_000  # of the shards that an element reads: some 100 MB


@dataclass(frozen=True)
class ComparedShards:
    """Shards that only one of two snapshots has, and what is counted of their rows.

    Rows go into `buckets` buckets. They are compared by id, text and the values of `columns` (None:
    not compared), and counted by `keys` for the gate of deleted rows (None: not counted). The ids
    of new shards go into `id_buckets` buckets (0: not counted).
    """

    shards: tuple[SnapshotShard, ...]
    buckets: int
    columns: tuple[str, ...] | None
    keys: RowKeys | None
    id_buckets: int = 0

    @property
    def read_columns(self) -> list[str]:
        """The columns to read, each once; a shard may lack some."""
        keyed = self.keys.columns if self.keys is not None else ()
        return [*dict.fromkeys(("id", "row_hash", "piece", *keyed, *(self.columns or ())))]

    def counts_ids_of(self, shard: SnapshotShard) -> bool:
        """Whether the ids of a shard are counted."""
        return shard.is_new and self.id_buckets > 0

    def needs(self, shard: SnapshotShard) -> bool:
        """Whether the run fails if a shard cannot be read."""
        return shard.is_new and (self.keys is not None or self.id_buckets > 0)


@dataclass(frozen=True)
class ShardsOfIds:
    """Shards by their paths in the store, whose ids go into `buckets` buckets."""

    paths: tuple[str, ...]
    buckets: int


@dataclass(frozen=True)
class Counting:
    """An element of the count: a known fact, or shards to read."""

    fact: RunFact | None = None
    compared: ComparedShards | None = None
    ids: ShardsOfIds | None = None


Packed = RunFact | bytes | None  # None: an old shard is damaged or gone
CountKey = tuple[str, int]  # what is known, or a bucket of what is counted, and its number


def list_rows_to_count(
    fact: RunFact, run: Run, ids: bool, changes: bool = True
) -> Iterator[Counting]:
    """Yield the given fact, and the shards to read for gate, (`changes`) changes and (`ids`) ids.

    A shard that several of them need is read once. If the run is to fail, there are no shards.
    """
    yield Counting(fact)
    settled = fact.settled
    if settled is None:
        return
    differ = find_differing_units(settled, run)
    if changes:
        yield from list_known_changes(settled, run, differ)
    id_buckets = count_buckets(settled.tally.stored) if ids else 0
    compared = list(_list_compared(run, differ, changes, id_buckets))
    yield from (Counting(compared=shards) for shards in compared)
    if ids:
        counted_paths = {shard.path for group in compared for shard in group.shards if shard.is_new}
        yield from list_shards_of_ids(settled, run, differ, counted_paths)


def _list_compared(
    run: Run, differ: "Differing | None", changes: bool, id_buckets: int
) -> Iterator[ComparedShards]:
    """Yield the shards that only one snapshot has, if changes or the gate need them."""
    keys = find_keys_of_gate(run, differ)
    if differ is not None and (changes or keys is not None):
        columns = differ.columns if changes else None
        for shards in differ.groups():
            yield ComparedShards(shards, differ.buckets, columns, keys, id_buckets)


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
        return count_buckets(sum(unit.rows for unit in (*self.old, *self.new)))

    def groups(self) -> Iterator[tuple[SnapshotShard, ...]]:
        """Yield the shards to read at once; old and new ones of a unit are neighbours."""
        sides = [(unit, False) for unit in self.old] + [(unit, True) for unit in self.new]
        sides.sort(key=lambda side: (side[0].unit, side[1]))
        for group in group_by_size(sides, lambda side: side[0].rows, READ_ROWS):
            yield tuple(
                SnapshotShard(unit.path or "", unit.bytes, is_new) for unit, is_new in group
            )


def find_differing_units(settled: Settled, run: Run) -> Differing | None:
    """Return the units that differ from the last snapshot; None if it cannot be read.

    Parts that both snapshots have are not read.
    """
    if run.previous is None:
        return None
    try:
        previous = read_last_snapshot(run)
        assert previous is not None, "a run that is named is read or raises"
        old, new = find_differing_parts(run.root, previous.units, settled.units)
    except SentenceBeamError:
        return None
    columns = list_value_columns(previous.options, run.options)
    return Differing(make_records(old), make_records(new), columns)


def list_known_changes(settled: Settled, run: Run, differ: Differing | None) -> Iterator[Counting]:
    """Yield the changes that are known without reading a shard."""
    if run.previous is None:
        yield Counting(RunFact(changes=Changes(added=settled.tally.stored)))
        return
    yield Counting(RunFact(changes=Changes()))
    if differ is None:
        yield Counting(RunFact(changes_unknown=True))


def find_keys_of_gate(run: Run, differ: Differing | None) -> RowKeys | None:
    """Return the keys for the gate of deleted rows; None if it cannot refuse the run."""
    if differ is None or not run.has_delete_gate:
        return None
    if sum(unit.written for unit in differ.old) <= run.gates.max_deletes * run.previous_rows:
        return None
    last = read_last_snapshot(run)
    files = read_plan(run.root, run.id).files
    return choose_replaced_keys(run.options, last, files) if last is not None else None


def read_by_bucket(element: Counting, run: tuple[str, str]) -> Iterator[tuple[CountKey, Packed]]:
    """Yield the rows of some shards, or the hashes of their ids, by bucket.

    A fact has a key of its own. `run` is the run's key.
    """
    root, _ = run
    if element.fact is not None:
        yield (KNOWN, 0), element.fact
    if element.compared is not None:
        yield from _read_compared(root, element.compared)
    if element.ids is not None:
        yield from _read_ids(root, element.ids)


def _read_compared(root: str, compared: ComparedShards) -> Iterator[tuple[CountKey, Packed]]:
    """Yield what is counted of the rows that only one snapshot has, by bucket.

    The gate counts the rows of a damaged old shard as rows that stay.
    """
    blocks = [BLOCK.empty_table()]
    keyed: list[KeyedRows] = []
    hashes = [np.empty(0, np.uint64)]
    is_whole = True
    for shard in compared.shards:
        path = storage.join(root, shard.path)
        try:
            batches = [*read_shard(path, compared.read_columns, shard.size)]
        except SentenceBeamError as error:
            is_whole = False
            if compared.needs(shard):
                yield (KNOWN, 0), RunFact(problem=Problem.from_error(error))
            continue
        if compared.columns is not None:
            blocks += [make_block(batch, shard, compared.columns) for batch in batches]
        if compared.keys is not None:
            keyed += [compared.keys.key_rows(batch, shard.is_new) for batch in batches]
        if compared.counts_ids_of(shard):
            hashes.append(hash_ids_in(batches))
            keep_hashes(root, shard.path, hashes[-1])
    if compared.columns is not None:
        rows = by_bucket(find_left_over(pa.concat_tables(blocks)), compared.buckets)
        yield from _add_keys(CHANGES, rows if is_whole else [(0, None)])
    yield from _add_keys(DELETES, KeyedRows.from_parts(keyed).by_bucket(compared.buckets))
    yield from _add_keys(IDS, pack_hashes(np.concatenate(hashes), max(1, compared.id_buckets)))


def _add_keys(
    what: str, buckets: Iterable[tuple[int, bytes | None]]
) -> Iterator[tuple[CountKey, bytes | None]]:
    return (((what, number), rows) for number, rows in buckets)


def _read_ids(root: str, batch: ShardsOfIds) -> Iterator[tuple[CountKey, Packed]]:
    """Yield the hashes of the shards' ids by bucket."""
    try:
        hashes = np.concatenate([read_id_hashes(root, path) for path in batch.paths])
    except SentenceBeamError as error:
        # nothing may be committed that names a shard which cannot be read
        yield (KNOWN, 0), RunFact(problem=Problem.from_error(error))
        return
    yield from _add_keys(IDS, pack_hashes(hashes, batch.buckets))


def count_bucket(bucket: tuple[CountKey, Iterable[Any]], run: tuple[str, str]) -> list[RunFact]:
    """Return the changes, or the duplicate ids, of one bucket; or known facts.

    The changed rows are written. `run` is the run's key.
    """
    (what, _), values = bucket
    parts = list(values)
    if what == KNOWN:
        return parts
    if what == IDS:
        return [RunFact(duplicate_ids=count_repeated(parts))]
    if what == DELETES:
        return [RunFact(deleted=count_rows_gone(parts))]
    if any(part is None for part in parts):
        return [RunFact(changes_unknown=True)]
    changed = find_changed_rows(unpacked(parts))
    if not len(changed):
        return []
    return [RunFact(changes=count_changes(changed), changed=write_changes(*run, changed))]


def list_recorded_changes(facts: Sequence[RunFact], run: Run) -> ChangesEntry | None:
    """Return the entry of the files with the changed rows; None if they are not known."""
    if run.previous is None or sum_changes(facts) is None:
        return None
    files = [fact.changed for fact in facts if fact.changed is not None]
    return ChangesEntry(run.previous, tuple(sorted(files, key=attrgetter("path"))))


def sum_changes(facts: Sequence[RunFact]) -> Changes | None:
    """Return the sum of all changes of a run; None if they are not known."""
    changes = [fact.changes for fact in facts if fact.changes is not None]
    if not changes or any(fact.changes_unknown for fact in facts):
        return None
    return sum(changes, Changes())


def list_shards_of_ids(
    settled: Settled, run: Run, differ: Differing | None, compared: set[str]
) -> Iterator[Counting]:
    """Yield the shards, beside those `compared`, whose ids are to be counted.

    Yields the known number of duplicates if no row changed.
    """
    unchanged = differ is not None and not differ.old and not differ.new
    recorded = read_previous_duplicate_ids(run) if unchanged else None
    if recorded is not None:
        yield Counting(RunFact(duplicate_ids=recorded))
        return
    yield Counting(RunFact(duplicate_ids=0))
    buckets = count_buckets(settled.tally.stored)
    units = read_table(run.root, "units", settled.units, ["path", "rows"])
    rest = (unit for unit in units.to_pylist() if unit["path"] not in {None, *compared})
    for group in group_by_size(rest, itemgetter("rows"), READ_ROWS):
        yield Counting(ids=ShardsOfIds(tuple(shard["path"] for shard in group), buckets))


def read_previous_duplicate_ids(run: Run) -> int | None:
    """Return the duplicate ids that the last run counted.

    Returns None if its result is missing or damaged.
    """
    if run.previous is None:
        return 0
    last = read_result(run.root, run.previous)
    return last.duplicate_ids if last else None
