"""A snapshot pushed into a database: what it lacks is written, and it remembers which snapshot it
holds.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transforms.base import progress
from transforms.base.errors import DataGateError, LedgerError, OptionError
from transforms.push.compare import REPEATED, Lack, Listing, lacking
from transforms.push.rows import columns_of, read_rows, types_of
from transforms.push.state import PushRecord, State
from transforms.push.target import Table, Target, keys_of
from transforms.store.entries import RememberedOptions
from transforms.store.manifest import Manifest, read_manifest
from transforms.store.runs.changes import Changes
from transforms.store.runs.result import has_committed, read_result


@dataclass(frozen=True)
class PushRequest:
    """How a snapshot is pushed.

    `since` names a run whose differences are written too, whatever the target says it holds. `full`
    writes all rows and compares with the ids that are there. `dry_run` writes nothing.
    `max_deletes` is the fraction of the target's rows that may be deleted.
    """

    since: str | None = None
    full: bool = False
    dry_run: bool = False
    max_deletes: float = RememberedOptions.max_deletes


@dataclass(frozen=True)
class Pushed:
    """The result of a push.

    `held` is the snapshot that the database was left with before (None: none, or not known).
    `changes` counts the rows that it was given, `rows` those that it holds.
    """

    new: Manifest
    held: str | None
    changes: Changes
    rows: int


def push(
    current: Callable[[], Manifest], target: Target, options: PushRequest | None = None
) -> Pushed:
    """Have the target hold the rows of the store's current snapshot and no others.

    The snapshot is read after the turn was waited for, so that none is pushed over a newer one.
    Raises SpaceMismatchError for a target of another space, OptionError for rows of another store
    and for snapshots that are gone, DataGateError if ids repeat or too many rows would be deleted,
    LedgerError if counts differ at the end.
    """
    options = options or PushRequest()
    found = target.state()
    new = current()
    table = Table(_columns(new, found), new.space, new.metric)
    if found is not None:
        _check(found, new, table, target.where)
    _check_ids(new)
    held = found.held.run if found and found.held and found.is_known else None
    whole = found is not None and (held is None or options.full)
    snapshots = _read_snapshots(new, found, options.since)
    if found is not None and not options.full:
        _check_store(snapshots, new, whole, target.where)
    old = _compared(new, found, whole, snapshots)
    if not whole and {manifest.run for manifest in old} == {new.run}:
        return Pushed(new, held, Changes(), _counted(target, new))
    record = PushRecord(new.run, _types(new, found, table), whole)
    with tempfile.TemporaryDirectory() as folder:
        lack = lacking(new, table.columns, old, _listing(target, table, record), folder)
        if options.dry_run:
            return Pushed(new, held, lack.counts, new.rows.stored)
        _check_deletes(lack, options.max_deletes, target.where)
        target.begin(table, record)
        _write(target, new, table.columns, lack)
    rows = _counted(target, new)
    target.finish()
    return Pushed(new, held, lack.counts, rows)


def _columns(new: Manifest, found: State | None) -> pa.Schema:
    """The columns of the snapshot's rows; without a row, those that tell the target's rows apart,
    and the vector.
    """
    columns = columns_of(new)
    if not new.rows.stored and found is not None and "piece" in found.columns:
        return columns.append(pa.field("piece", pa.int32()))
    return columns


def _types(new: Manifest, found: State | None, table: Table) -> dict[str, str]:
    """The types of the table's columns; an empty snapshot changes none."""
    if found is not None and found.columns and not new.rows.stored:
        return found.columns
    return types_of(table.columns)


def _check(found: State, new: Manifest, table: Table, where: str) -> None:
    """Raise if a target is of another space or metric, or of pieces while the snapshot has none."""
    mend = "name another table, or drop this one"
    found.space.check(new.space, f"--to {where}: its vectors are of another space", mend)
    if found.metric != table.metric:
        raise OptionError(
            f"--to {where}: it is made for the metric {found.metric}, the store's is"
            f" {table.metric}; {mend}"
        )
    if found.live and keys_of(list(found.columns)) != table.keys:
        kinds = ("pieces of documents", "rows that were not cut")
        of, wanted = kinds if "piece" in found.columns else kinds[::-1]
        raise OptionError(f"--to {where}: it holds {of}, the store has {wanted}; {mend}")


def _check_ids(manifest: Manifest) -> None:
    """Raise DataGateError for a snapshot in which ids are known to repeat."""
    result = read_result(manifest.root, manifest.run)
    if result is not None and result.duplicate_ids:
        raise DataGateError(
            f"{manifest.root}: an id of {manifest.run} ({result.duplicate_ids:,} rows too many)"
            f" {REPEATED}"
        )


def _check_deletes(lack: Lack, max_deletes: float, where: str) -> None:
    """Raise DataGateError if too many rows of the target would be deleted."""
    if lack.counts.deleted > max_deletes * lack.before:
        raise DataGateError(
            f"--to {where}: {lack.counts.deleted:,} of its {lack.before:,} rows would be deleted,"
            f" more than --max-deletes {max_deletes:g} allows; check the store and the table, or"
            " push with --max-deletes 1"
        )


def _read_snapshots(
    new: Manifest, found: State | None, since: str | None
) -> dict[str, Manifest | None]:
    """The snapshots whose rows the target may hold, and the one of `since`; None for those that the
    store lacks.
    """
    runs = [record.run for record in found.live.values()] if found else []
    if since is not None:
        runs.append(since)
    return {run: read_manifest(new.root, run) for run in dict.fromkeys(runs)}


def _check_store(
    snapshots: Mapping[str, Manifest | None], new: Manifest, whole: bool, where: str
) -> None:
    """Raise OptionError for rows of another store, and for snapshots that are gone unless all rows
    are written.
    """
    for run, manifest in snapshots.items():
        if manifest is not None:
            continue
        rows = f"--to {where}: it holds rows of {run}"
        if not has_committed(new.root, run):
            what = "so it is another store's; name another table, or push with --full"
            raise OptionError(f"{rows}, which is no snapshot of {new.root}, {what}")
        if not whole:
            raise OptionError(f"{rows}, which vacuum removed from {new.root}; push with --full")


def _compared(
    new: Manifest, found: State | None, whole: bool, snapshots: Mapping[str, Manifest | None]
) -> list[Manifest]:
    """The snapshots to compare with, the one that the target was left with first.

    If all rows are written, the target lists those that it has. Only unfinished pushes may add rows
    to these.
    """
    if found is None:
        return []
    runs = [record.run for record in found.unfinished.values()]
    if not whole and found.held is not None:
        runs = [found.held.run, *snapshots]
    manifests = [
        manifest for run in dict.fromkeys(runs) if (manifest := snapshots[run]) is not None
    ]
    if whole:
        return manifests
    for manifest in manifests[1:]:
        _check_ids(manifest)
    return [
        manifest
        for place, manifest in enumerate(manifests)
        if place == 0 or manifest.run != new.run
    ]


def _listing(target: Target, table: Table, record: PushRecord) -> Listing | None:
    """The keys of all rows of the target, if it is not known what it holds."""
    if not record.whole:
        return None
    return lambda: target.listing(table.keys)


def _write(target: Target, new: Manifest, columns: pa.Schema, lack: Lack) -> None:
    """Write what is lacking, and delete the rest."""
    with progress.stage("writing", lack.written + lack.gone, "rows"):
        for keys in lack.deletions():
            target.delete(keys)
            progress.step(keys.num_rows)
        for place in sorted(lack.rows):
            wanted, start = np.sort(np.array(lack.rows[place])), 0
            for batch in read_rows(new, new.units[place], columns):
                here = wanted[(wanted >= start) & (wanted < start + batch.num_rows)] - start
                start += batch.num_rows
                if len(here):
                    target.upsert(
                        batch if len(here) == batch.num_rows else batch.take(pa.array(here))
                    )
                    progress.step(len(here))


def _counted(target: Target, new: Manifest) -> int:
    """The number of rows in the target. Raises LedgerError if it is not that of the snapshot."""
    rows = target.count()
    if rows != new.rows.stored:
        raise LedgerError(
            f"--to {target.where}: it holds {rows:,} rows, {new.root} has {new.rows.stored:,};"
            " somebody else wrote there, or ids repeat; push with --full"
        )
    return rows
