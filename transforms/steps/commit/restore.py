"""The snapshot that `rollback` restores: whether it is whole, and the run that commits it again."""

from dataclasses import replace

import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow_arrays import make_mask_array
from sentence_beam.transforms.base.columns import get_column, is_valid, look_up
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.steps.options.from_snapshot import make_run_like
from sentence_beam.transforms.store import layout, open_store
from sentence_beam.transforms.store.manifest import Manifest, snapshots
from sentence_beam.transforms.store.runs.carried_check import (
    COLUMNS,
    ROUND,
    Checked,
    ShardCheck,
    stride,
)
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.verification import find_faults_without_reading


def find_snapshot_to_restore(root: str, run: str) -> Manifest:
    """Return the snapshot of a run.

    Raises OptionError if it is the current one, if it does not exist, and if one of its files is
    missing or has another size.
    """
    if run == open_store(root).manifest.run:
        raise OptionError(
            f"{run} is the current snapshot of {root} already; sentence-beam history lists all runs"
        )
    if run not in snapshots(root):
        path = storage.join(root, layout.snapshot(run))
        raise OptionError(
            f"{path} is missing: no run has that name, or vacuum removed its snapshot; see history"
        )
    manifest = open_store(root, run).manifest
    fault = next(find_faults_without_reading(manifest), None)
    if fault is not None:
        raise _damaged(fault, run)
    return manifest


def _damaged(fault: str, run: str) -> OptionError:
    return OptionError(
        f"{fault}; the snapshot {run} needs it: choose one that is whole, or restore the file"
    )


def make_restoring_run(earlier: Manifest, current: Manifest, run_id: str) -> Run:
    """Return the run that commits the earlier snapshot again, on top of the current one."""
    return replace(
        make_run_like(earlier, run_id, "rollback"),
        previous=current.run,
        previous_digest=current.digest,
        version=current.version,
        watch=current.watch,
        forgotten=current.forgotten,
        like=current.like,
        check_from=current.check_from,
        check_stride=stride(earlier, current.check_from),
    )


def check_shards(earlier: Manifest, current: Manifest, run: Run) -> Checked:
    """Read the shards of the earlier snapshot whose turn it is in this run.

    Read also all that the current snapshot does not have: no run has checked them since. Raises
    OptionError if one of them is damaged.
    """
    units = earlier.read_units(*COLUMNS)
    is_back = is_valid(units, "path") & (look_up(units.column("path"), _read_held(current)) < 0)
    read_all = ShardCheck(earlier.root, run.check_from, ROUND)
    states = [
        read_all.states(units.filter(make_mask_array(is_back))),
        run.make_shard_check().states(units.filter(make_mask_array(~is_back))),
    ]
    checked = Checked.from_states(pa.concat_tables(states))
    if checked.damaged:
        path = storage.join(earlier.root, checked.damaged[0])
        raise _damaged(f"{path} was changed after it was written", earlier.run)
    return checked


def _read_held(current: Manifest) -> pa.Array:
    """Return the shards of the current snapshot; none if it is damaged, which a rollback mends."""
    try:
        return get_column(current.shards, "path")
    except SentenceBeamError:
        return pa.array([], pa.string())
