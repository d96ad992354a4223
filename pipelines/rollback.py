"""`sentence-beam rollback`: a new snapshot with the content of an earlier one."""

import argparse
import sys
from dataclasses import asdict

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from sentence_beam.pipelines.common import beam_flags, command, engines, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.index_lines import describe_answers
from sentence_beam.pipelines.common.library import pipeline_function
from sentence_beam.pipelines.common.summary import (
    count_vectors,
    describe_changes,
    describe_checked,
    name_things,
)
from sentence_beam.pipelines.common.writing import (
    describe_submitted,
    read_run_result,
    recording,
    writing,
)
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.beam import Commit, Settle, with_watch
from sentence_beam.transforms.steps.commit.restore import (
    check_shards,
    find_snapshot_to_restore,
    make_restoring_run,
)
from sentence_beam.transforms.steps.options.from_snapshot import record_plan
from sentence_beam.transforms.steps.options.store import RollbackOptions
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.open import find_named_run
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.run_facts import IndexRecord, RunFact
from sentence_beam.transforms.store.runs.run_ids import make_run_id
from sentence_beam.transforms.store.runs.run_result import Result


def parser() -> argparse.ArgumentParser:
    """The options of `rollback`."""
    return options.command(
        "rollback",
        "Commit a new snapshot with the rows, the index and the options of an earlier one.",
        "sentence-beam rollback 20260314T031500_123Z-4f1d2a --store store",
        "sentence-beam rollback -1 --store store",
        kind=RollbackOptions,
    )


def _run_rollback(options: RollbackOptions, beam_options: PipelineOptions) -> CommandOutput:
    root = open_store(options.store).root
    restored = find_named_run(root, options.run)
    run_id = make_run_id(root)
    engines.check_shared(beam_options, store=root)
    find_snapshot_to_restore(root, restored)  # a mistake should not touch the store
    with writing(root, run_id, beam_options) as writer:
        current = open_store(root).manifest
        earlier = find_snapshot_to_restore(root, restored)
        run = make_restoring_run(earlier, current, run_id)
        checked = check_shards(earlier, current, run)
        record_plan(earlier, run_id, checked=checked)
        with recording(run, writer), writer.pipeline() as pipeline:
            build(pipeline, earlier, run, raises=not writer.waits)
        result = read_run_result(root, run_id, writer)
    if result is None:
        return describe_submitted(root, run_id)
    return CommandOutput(
        summarise(result, restored, root), {"store": root, "restored": restored, **asdict(result)}
    )


def build(
    pipeline: beam.Pipeline, earlier: Manifest, run: Run, raises: bool = False
) -> beam.PCollection:
    """The whole graph; gives the one Result."""
    settled = pipeline | "Commit/Settle" >> Settle(run)
    facts_of_run = [settled]
    if earlier.index:
        facts_of_run.append(
            pipeline | "Index" >> beam.Create([RunFact(index=IndexRecord(earlier.index))])
        )
    facts = with_watch(facts_of_run, run)
    return facts | "Commit" >> Commit(run, raises, ids=run.options.id_column is not None)


def summarise(result: Result, earlier: str, root: str) -> list[str]:
    """The closing lines about a run, one fact a line."""
    lines = [format_summary_line("rows", f"{count_vectors(result.ledger)} as in {earlier}")]
    if result.changes:
        lines.append(
            format_summary_line(
                "changes", describe_changes(result.changes, name_things(result.ledger))
            )
        )
    if result.checked and result.checked["shards"]:
        lines.append(format_summary_line("checked", describe_checked(result.checked)))
    return [
        *lines,
        *describe_answers(root, result),
        format_summary_line("store", f"{root} (snapshot {result.run})"),
    ]


rollback = pipeline_function("rollback", RollbackOptions, _run_rollback)
main = command.main(parser, _run_rollback, beam_flags.parse, kind=RollbackOptions)

if __name__ == "__main__":
    sys.exit(main())
