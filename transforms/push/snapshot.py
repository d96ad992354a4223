"""A snapshot pushed into a database: what it lacks is written, and it remembers which snapshot it holds."""

import tempfile
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from transforms import progress
from transforms.errors import DataGateError, LedgerError, OptionError
from transforms.push.compare import REPEATED, Lack, lacking
from transforms.push.rows import columns_of, read_rows, types_of
from transforms.push.target import State, Table, Target, keys_of
from transforms.store.changes import Changes
from transforms.store.manifest import Manifest, read_manifest
from transforms.store.runs import read_result


@dataclass(frozen=True)
class Pushed:
    """What came of a push: the snapshot that the database was left with (None: none, or not known), the rows that it
    was given, and how many it holds."""

    held: str | None
    changes: Changes
    rows: int


def push(new: Manifest, target: Target, since: str | None = None, full: bool = False, dry_run: bool = False) -> Pushed:
    """Have the target hold the snapshot's rows and no others.

    `since` names a run whose differences are written too, whatever the target says it holds; `full` writes all rows and
    compares with what is there; `dry_run` writes nothing. Raises SpaceMismatchError for a target of another space,
    OptionError where a snapshot is gone, DataGateError where ids repeat, LedgerError where counts differ at the end.
    """
    found = target.state()
    table = Table(_columns(new, found), new.space.dim, new.metric)
    if found is not None:
        _check(found, new, table, target.where)
    _check_ids(new)
    held, old = found.run if found else None, list[Manifest]()
    columns = types_of(table.columns) if found is None or new.rows.stored else found.columns
    anew = full or found is None or held is None or found.columns != columns
    if found is not None and not anew:
        old = _snapshots(new, found, since, target.where)
    if not anew and {manifest.run for manifest in old} == {new.run}:
        return Pushed(held, Changes(), _counted(target, new))
    with tempfile.TemporaryDirectory() as folder:
        listing = (lambda: target.listing(table.keys)) if anew and found is not None else None
        lack = lacking(new, table.columns, old, listing, folder)
        if dry_run:
            return Pushed(held, lack.counts, new.rows.stored)
        state = State(new.space, new.metric, columns, None if anew else held)
        state = replace(state, pending=() if anew or found is None else found.pending).begun(new.run)
        target.begin(table, state, anew)
        _write(target, new, table.columns, lack)
    rows = _counted(target, new)
    target.finish(replace(state, run=new.run, pending=()))
    return Pushed(held, lack.counts, rows)


def _columns(new: Manifest, found: State | None) -> pa.Schema:
    """The columns of the snapshot's rows; without a row, those that tell the target's rows apart, and the vector."""
    columns = columns_of(new)
    if not new.rows.stored and found is not None and "piece" in found.columns:
        return columns.append(pa.field("piece", pa.int32()))
    return columns


def _check(found: State, new: Manifest, table: Table, where: str) -> None:
    """Raise where a target is of another space or metric, or of pieces where the snapshot has none."""
    mend = "name another table, or drop this one"
    found.space.check(new.space, f"--to {where}: its vectors are of another space", mend)
    if found.metric != table.metric:
        raise OptionError(
            f"--to {where}: it is made for the metric {found.metric}, the store's is {table.metric}; {mend}"
        )
    if keys_of(list(found.columns)) != table.keys:
        kinds = ("pieces of documents", "rows that were not cut")
        of, wanted = kinds if "piece" in found.columns else kinds[::-1]
        raise OptionError(f"--to {where}: it holds {of}, the store has {wanted}; {mend}")


def _check_ids(manifest: Manifest) -> None:
    """Raise DataGateError for a snapshot in which ids are known to repeat."""
    result = read_result(manifest.root, manifest.run)
    if result is not None and result.duplicate_ids:
        raise DataGateError(
            f"{manifest.root}: an id of {manifest.run} ({result.duplicate_ids:,} rows too many) {REPEATED}"
        )


def _snapshots(new: Manifest, found: State, since: str | None, where: str) -> list[Manifest]:
    """The snapshots whose rows the target may hold, the one it was left with first; then the one of `since`."""
    manifests = []
    for run in dict.fromkeys(filter(None, (found.run, *found.pending, since))):
        manifest = read_manifest(new.root, run)
        if manifest is None:
            raise OptionError(
                f"--to {where}: it holds rows of {run}, which is no snapshot of {new.root} (removed by vacuum, or of "
                "another store); push with --full"
            )
        manifests.append(manifest)
    for manifest in manifests[1:]:
        _check_ids(manifest)
    return [manifest for place, manifest in enumerate(manifests) if place == 0 or manifest.run != new.run]


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
                    target.upsert(batch if len(here) == batch.num_rows else batch.take(pa.array(here)))
                    progress.step(len(here))


def _counted(target: Target, new: Manifest) -> int:
    """The number of rows in the target. Raises LedgerError where it is not that of the snapshot."""
    rows = target.count()
    if rows != new.rows.stored:
        raise LedgerError(
            f"--to {target.where}: it holds {rows:,} rows, {new.root} has {new.rows.stored:,}; somebody else wrote "
            "there, or ids repeat; push with --full"
        )
    return rows
