"""Push a snapshot into a database: write the rows that differ, record which snapshot it holds."""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import DataGateError, LedgerError, OptionError, cite
from sentence_beam.transforms.push.pushed_rows import find_columns, read_chosen
from sentence_beam.transforms.push.recorded import REPEATED
from sentence_beam.transforms.push.snapshot_difference import Difference, compare
from sentence_beam.transforms.push.state import PushRecord, State
from sentence_beam.transforms.push.target import Table, Target, find_keys
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.removed import naming_removal
from sentence_beam.transforms.store.runs.changed_rows import Changes
from sentence_beam.transforms.store.runs.run_result import has_committed, read_result


@dataclass(frozen=True)
class PushRequest:
    """The options of a push.

    `full` writes all rows and compares with the target's ids. `dry_run` writes nothing.
    `max_deletes` is the fraction of the target's rows that may be deleted.
    """

    full: bool = False
    dry_run: bool = False
    max_deletes: float = RememberedOptions.max_deletes


@dataclass(frozen=True)
class Pushed:
    """The result of a push.

    `held` is the snapshot that the database held before (None: none, or not known). `changes`
    counts the rows that were written and deleted, `rows` the rows in the database. `removed` are
    snapshots to compare with that vacuum removed; all rows were compared then.
    """

    new: Manifest
    held: str | None
    changes: Changes
    rows: int
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowsToWrite:
    """Rows of a snapshot that a target lacks: their columns, and their rows by unit's index."""

    new: Manifest
    columns: pa.Schema
    rows: Mapping[int, Sequence[int]]


WriteRows = Callable[[Target, RowsToWrite], None]


def push(
    current: Callable[[], Manifest],
    target: Target,
    options: PushRequest | None = None,
    by_workers: WriteRows | None = None,
) -> Pushed:
    """Make the target hold the rows of the store's current snapshot and no others.

    The snapshot is read after waiting for other pushes, so that it never replaces a newer one.
    `by_workers` writes the rows that are missing in place of this process.
    If vacuum removed a snapshot to compare with, all rows are written and compared with the ids of
    the target, as with `full`. Raises SpaceMismatchError if the target
    is of another space, OptionError if it holds rows of another store, DataGateError if ids repeat
    or too many rows would be deleted, LedgerError if counts differ at the end.
    """
    options = options or PushRequest()
    if by_workers is not None:
        _check_takes_workers(target)
    state = target.state()
    new = current()
    table = Table(_choose_columns(new, state), new.space, new.metric)
    if state is not None:
        _check_target(state, new, table, target.where)
    _check_ids(new)
    last = _read_last(new, state, options.full, target.where)
    if not last.whole and {manifest.run for manifest in last.compared} == {new.run}:
        return Pushed(new, last.held, Changes(), _count_rows(target, new))
    record = PushRecord(new.run, _choose_types(new, state, table), last.whole)
    mends = naming_removal([new, *last.compared], "push again")
    with mends, tempfile.TemporaryDirectory() as folder:
        listing = (lambda: target.listing(table.keys)) if last.whole else None
        difference = compare(new, table.columns, last.compared, listing, folder)
        if options.dry_run:
            return Pushed(new, last.held, difference.counts, new.rows.stored, last.removed)
        _check_deletes(difference, options.max_deletes, target.where)
        target.begin(table, record)
        _delete(target, difference)
        if difference.rows:
            write_rows = by_workers or _write
            write_rows(target, RowsToWrite(new, table.columns, difference.rows))
    rows = _count_rows(target, new)
    target.finish()
    return Pushed(new, last.held, difference.counts, rows, last.removed)


@dataclass(frozen=True)
class _Last:
    """The snapshots that a target may hold rows of.

    `held` and `removed` are as in Pushed. `compared` are the snapshots to compare with. `whole`
    means that the target's rows are not known, so that all rows are written.
    """

    held: str | None = None
    removed: tuple[str, ...] = ()
    whole: bool = False
    compared: Sequence[Manifest] = ()


def _read_last(new: Manifest, state: State | None, full: bool, where: str) -> _Last:
    """Read the snapshots that the target may hold rows of.

    Raises OptionError for rows of another store, unless `full`.
    """
    if state is None:
        return _Last()
    runs = dict.fromkeys(record.run for record in state.live.values())
    snapshots = {run: read_manifest(new.root, run) for run in runs}
    if not full:
        _check_store(snapshots, new, where)
    held = state.held.run if state.held is not None and state.is_known else None
    removed = tuple(run for run, manifest in snapshots.items() if manifest is None)
    whole = held is None or bool(removed) or full
    return _Last(held, removed, whole, _choose_compared(new, state, whole, snapshots))


def _choose_columns(new: Manifest, state: State | None) -> pa.Schema:
    """Return the columns of the snapshot's rows; an empty snapshot keeps the target's keys."""
    columns = find_columns(new)
    if not new.rows.stored and state is not None and "piece" in state.columns:
        return columns.append(pa.field("piece", pa.int32()))
    return columns


def _choose_types(new: Manifest, state: State | None, table: Table) -> dict[str, str]:
    """Return the types of the table's columns; an empty snapshot changes none."""
    if state is not None and state.columns and not new.rows.stored:
        return state.columns
    return {field.name: str(field.type) for field in table.columns}


def _check_target(state: State, new: Manifest, table: Table, where: str) -> None:
    """Raise if the target's space, metric or keys differ from the snapshot's."""
    mend = "name another table, or drop this one"
    state.space.check(new.space, f"{cite('to')} {where}: its vectors are of another space", mend)
    if state.metric != table.metric:
        raise OptionError(
            f"{cite('to')} {where}: it is made for the metric {state.metric}, the store's is "
            f"{table.metric}; {mend}"
        )
    if state.live and find_keys(list(state.columns)) != table.keys:
        held = "rows that were not cut"
        pushed = "pieces of documents"
        if "piece" in state.columns:
            held, pushed = pushed, held
        raise OptionError(f"{cite('to')} {where}: it holds {held}, the store has {pushed}; {mend}")


def _check_ids(manifest: Manifest) -> None:
    """Raise DataGateError if the snapshot is known to have duplicate ids."""
    result = read_result(manifest.root, manifest.run)
    if result is not None and result.duplicate_ids:
        raise DataGateError(
            f"{manifest.root}: an id of {manifest.run} ({result.duplicate_ids:,} rows too many) "
            f"{REPEATED}"
        )


def _check_deletes(difference: Difference, max_deletes: float, where: str) -> None:
    """Raise DataGateError if too many rows of the target would be deleted."""
    deleted = difference.counts.deleted
    if deleted > max_deletes * difference.before:
        raise DataGateError(
            f"{cite('to')} {where}: {deleted:,} of its {difference.before:,} rows would be deleted,"
            f" more than {cite('max_deletes')} {max_deletes:g} allows; check the store and the"
            f" table, or push with {cite('max_deletes')} 1"
        )


def _check_store(snapshots: Mapping[str, Manifest | None], new: Manifest, where: str) -> None:
    """Raise OptionError for rows of another store."""
    for run, manifest in snapshots.items():
        if manifest is None and not has_committed(new.root, run):
            raise OptionError(
                f"{cite('to')} {where}: it holds rows of {run}, which is no snapshot of {new.root},"
                f" so it is another store's; name another table, or push with {cite('full=True')}"
            )


def _choose_compared(
    new: Manifest, state: State, whole: bool, snapshots: Mapping[str, Manifest | None]
) -> list[Manifest]:
    """Return the snapshots to compare with, first the one that the last complete push left.

    If all rows are written, the target lists its rows; only unfinished pushes may add others.
    """
    runs = [record.run for record in state.unfinished.values()]
    if not whole and state.held is not None:
        runs = [state.held.run, *snapshots]
    manifests = []
    for run in dict.fromkeys(runs):
        manifest = snapshots[run]
        if manifest is not None:
            manifests.append(manifest)
    if whole:
        return manifests
    for manifest in manifests[1:]:
        _check_ids(manifest)
    others = [manifest for manifest in manifests[1:] if manifest.run != new.run]
    return manifests[:1] + others


def _check_takes_workers(target: Target) -> None:
    """Raise OptionError if a target takes one request at a time."""
    if not target.takes_parallel:
        raise OptionError(
            f"{cite('to')} {target.where}: --runner is for PostgreSQL and for a server of Qdrant;"
            " leave it out"
        )


def _delete(target: Target, difference: Difference) -> None:
    """Delete the rows of the difference."""
    with progress.stage("deleting", difference.deletable, "rows"):
        for keys in difference.read_deletions():
            target.delete(keys)
            progress.step(keys.num_rows)


def _write(target: Target, wanted: RowsToWrite) -> None:
    """Write rows, those of as many shards at once as there are cores, if the target takes it."""
    with progress.stage("writing", sum(map(len, wanted.rows.values())), "rows"):
        work = [partial(_write_shard, target, wanted, number) for number in sorted(wanted.rows)]
        at_once = min(os.cpu_count() or 1, len(work)) if target.takes_parallel else 1
        if at_once == 1:
            for write in work:
                write()
        else:
            _write_side_by_side(work, at_once)


def _write_side_by_side(work: Sequence[Callable[[], None]], threads: int) -> None:
    """Do the work in so many threads; the first error ends it."""
    with ThreadPoolExecutor(threads) as pool:
        try:
            for future in as_completed([pool.submit(job) for job in work]):
                future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _write_shard(target: Target, wanted: RowsToWrite, number: int) -> None:
    """Write the wanted rows of the shard with this number."""
    for batch in read_chosen(wanted.new, number, wanted.columns, np.array(wanted.rows[number])):
        target.upsert(batch)
        progress.step(batch.num_rows)


def _count_rows(target: Target, new: Manifest) -> int:
    """Count the target's rows. Raises LedgerError if the snapshot has another number of rows."""
    rows = target.count()
    if rows != new.rows.stored:
        raise LedgerError(
            f"{cite('to')} {target.where}: it holds {rows:,} rows, {new.root} has"
            f" {new.rows.stored:,}; somebody else wrote there, or ids repeat; push with"
            f" {cite('full=True')}"
        )
    return rows
