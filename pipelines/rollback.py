"""`sentence-beam rollback`: a new snapshot with the content of an earlier one."""

import argparse
import sys
from collections.abc import Collection
from dataclasses import asdict, replace

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.common import beam_flags, command, engines, options
from pipelines.common.library import pipeline_function
from pipelines.common.said import Said
from pipelines.common.summary import changes_line, checked_line, things_of, vectors_of
from pipelines.common.writing import recorded, result_of, submitted, writing
from transforms import storage
from transforms.base.errors import OptionError
from transforms.beam import Commit, Settle
from transforms.steps.options.from_snapshot import carried_units, record_plan, run_like
from transforms.steps.options.store import RollbackOptions
from transforms.store import layout, open_store
from transforms.store.manifest import Manifest, snapshots
from transforms.store.open import named_run
from transforms.store.runs.carried import ROUND, CarriedShards, Checked, stride
from transforms.store.runs.commit import Run
from transforms.store.runs.facts import IndexRecord, RunFact
from transforms.store.runs.result import Result
from transforms.store.runs.run_ids import new_run
from transforms.store.verify import faults_without_reading


def parser() -> argparse.ArgumentParser:
    """The options of `rollback`."""
    return options.command(
        "rollback",
        "Commit a new snapshot with the rows, the index and the options of an earlier one.",
        "sentence-beam rollback 20260314T031500_123Z-4f1d2a --store store",
        "sentence-beam rollback -1 --store store",
        kind=RollbackOptions,
    )


def _rollback(asked: RollbackOptions, beam_options: PipelineOptions) -> Said:
    root = open_store(asked.store).root
    restored = named_run(root, asked.run)
    run_id = new_run(root)
    engines.check_shared(beam_options, store=root)
    snapshot_to_restore(root, restored)  # a mistake should not touch the store
    with writing(root, run_id, beam_options) as writer:
        current = open_store(root).manifest
        earlier = snapshot_to_restore(root, restored)
        if asked.check_carried is None:
            fraction = current.options.check_carried
        else:
            fraction = asked.check_carried
        way = stride(earlier, current.check_from, fraction)
        run = replace(
            run_like(earlier, run_id, "rollback"),
            previous=current.run,
            previous_digest=current.digest,
            version=current.version,
            check_from=current.check_from,
            check_stride=way,
        )
        if asked.check_carried is None:
            returning = shards_only_in(earlier, current)
        else:
            returning = set()
        record_plan(earlier, run_id, read_some(earlier, current.check_from, way, returning))
        with recorded(run, writer), writer.pipeline() as pipeline:
            build(pipeline, earlier, run, raises=not writer.waits)
        result = result_of(root, run_id, writer)
    if result is None:
        return submitted(root, run_id)
    return Said(
        summary(result, restored, root), {"store": root, "restored": restored, **asdict(result)}
    )


def snapshot_to_restore(root: str, run: str) -> Manifest:
    """The snapshot of a run. Raises OptionError if it is the current one, or is not there with
    all of its files.
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
    fault = next(faults_without_reading(manifest), None)
    if fault is not None:
        raise _damaged(fault, run)
    return manifest


def _damaged(fault: str, run: str) -> OptionError:
    return OptionError(
        f"{fault}; the snapshot {run} needs it: choose one that is whole, or restore the file"
    )


def shards_only_in(earlier: Manifest, current: Manifest) -> set[str]:
    """The shards of the earlier snapshot that the current one does not have: no run has checked
    them since.
    """
    held = {unit.path for unit in current.units}
    return {unit.path for unit in earlier.units if unit.path and unit.path not in held}


def read_some(earlier: Manifest, start: int, way: int, returning: Collection[str]) -> Checked:
    """Read the returning shards of a snapshot, and those that lie on the round from `start` on, so
    far as `way`.

    Raises OptionError if one of them is damaged.
    """
    back = [unit for unit in earlier.units if unit.path in returning]
    others = [unit for unit in earlier.units if unit.path not in returning]
    of_back = CarriedShards(earlier.root, start, ROUND).check(back)
    checked = of_back.merge(CarriedShards(earlier.root, start, way).check(others))
    if checked.damaged:
        path = storage.join(earlier.root, checked.damaged[0])
        raise _damaged(f"{path} was changed after it was written", earlier.run)
    return checked


def build(
    pipeline: beam.Pipeline, earlier: Manifest, run: Run, raises: bool = False
) -> beam.PCollection:
    """The whole graph; gives the one Result."""
    units = (
        pipeline
        | "Snapshot" >> beam.Create([earlier.run])
        | "Units" >> beam.FlatMap(carried_units, run.root)
    )
    settled = (units,) | "Commit/Settle" >> Settle(run)
    found = [settled]
    if earlier.index:
        found.append(pipeline | "Index" >> beam.Create([RunFact(index=IndexRecord(earlier.index))]))
    return tuple(found) | "Commit" >> Commit(run, raises, ids=run.options.id_column is not None)


def summary(result: Result, earlier: str, root: str) -> list[str]:
    """The closing lines about a run, one fact a line."""
    lines = [f"rows        {vectors_of(result.ledger)} as in {earlier}"]
    if result.changes:
        lines.append(f"changes     {changes_line(result.changes, things_of(result.ledger))}")
    if result.checked and result.checked["shards"]:
        lines.append(f"checked     {checked_line(result.checked)}")
    return [*lines, f"store       {root} (snapshot {result.run})"]


rollback = pipeline_function("rollback", RollbackOptions, _rollback)
main = command.main(parser, _rollback, beam_flags.parse, kind=RollbackOptions)

if __name__ == "__main__":
    sys.exit(main())
