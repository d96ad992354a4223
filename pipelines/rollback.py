"""`sentence-beam rollback`: a new snapshot with the content of an earlier one."""

import argparse
import sys
from dataclasses import asdict, replace

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import beam_flags, command, engines, options
from pipelines.said import Said
from pipelines.summary import changes_line, things_of, vectors_of
from pipelines.writing import recorded, result_of, submitted, writing
from transforms import storage
from transforms.beam import Commit, Settle
from transforms.errors import OptionError
from transforms.steps.from_snapshot import carried_units, record_plan, run_like
from transforms.steps.index_files import IndexRecord
from transforms.store import layout, open_store
from transforms.store.commit import Run
from transforms.store.manifest import Manifest, snapshots
from transforms.store.open import named_run
from transforms.store.run_ids import new_run
from transforms.store.runs import Result
from transforms.store.verify import missing_file


def parser() -> argparse.ArgumentParser:
    """The options of `rollback`."""
    p = options.command(
        "rollback",
        "Commit a new snapshot with the rows, the index and the options of an earlier one.",
        "sentence-beam rollback 20260314T031500_123Z-4f1d2a --store store",
        "sentence-beam rollback -1 --store store",
    )
    p.add_argument("run", metavar="RUN", help="run of the earlier snapshot; history lists them")
    options.add_store(p)
    return p


def _rollback(args: argparse.Namespace, beam_options: PipelineOptions) -> Said:
    root = open_store(args.store).root
    restored = named_run(root, args.run)
    run_id = new_run(root)
    engines.check_shared(beam_options, store=root)
    snapshot_to_restore(root, restored)  # a mistake should not touch the store
    with writing(root, run_id, beam_options) as writer:
        current, earlier = open_store(root).manifest, snapshot_to_restore(root, restored)
        run = replace(
            run_like(earlier, run_id, "rollback"),
            previous=current.run,
            previous_digest=current.digest,
            version=current.version,
        )
        record_plan(earlier, run_id)
        with recorded(run, writer), writer.pipeline() as pipeline:
            build(pipeline, earlier, run, raises=not writer.waits)
        result = result_of(root, run_id, writer)
    if result is None:
        return submitted(root, run_id)
    return Said(summary(result, restored, root), {"store": root, "restored": restored, **asdict(result)})


def snapshot_to_restore(root: str, run: str) -> Manifest:
    """The snapshot of a run. Raises OptionError where it is the current one, or is not there with all of its files."""
    if run == open_store(root).manifest.run:
        raise OptionError(f"{run} is the current snapshot of {root} already; sentence-beam history lists all runs")
    if run not in snapshots(root):
        path = storage.join(root, layout.snapshot(run))
        raise OptionError(f"{path} is missing: no run has that name, or vacuum removed its snapshot; see history")
    manifest = open_store(root, run).manifest
    missing = missing_file(manifest)
    if missing is not None:
        raise OptionError(f"{missing} is missing, which the snapshot {run} needs; choose one that vacuum left whole")
    return manifest


def build(pipeline: beam.Pipeline, earlier: Manifest, run: Run, raises: bool = False) -> beam.PCollection:
    """The whole graph; gives the one Result."""
    units = pipeline | "Snapshot" >> beam.Create([earlier.run]) | "Units" >> beam.FlatMap(carried_units, run.root)
    settled = (units,) | "Commit/Settle" >> Settle(run)
    found = [settled]
    if earlier.index:
        found.append(pipeline | "Index" >> beam.Create([IndexRecord(earlier.index)]))
    return tuple(found) | "Commit" >> Commit(run, raises, ids=run.options.id_column is not None)


def summary(result: Result, earlier: str, root: str) -> list[str]:
    """What came of it; one fact a line."""
    return [
        f"rows        {vectors_of(result.ledger)} as in {earlier}",
        *([f"changes     {changes_line(result.changes, things_of(result.ledger))}"] if result.changes else []),
        f"store       {root} (snapshot {result.run})",
    ]


main = command.main(parser, _rollback, beam_flags.parse)

if __name__ == "__main__":
    sys.exit(main())
