"""`sentence-beam push`: a table of a database brought up to a store's current snapshot."""

import argparse
import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from sentence_beam.pipelines.common import command, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import function
from sentence_beam.pipelines.common.optional_beam import make_function, parse
from sentence_beam.pipelines.common.tables import wrapped
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.push import Pushed, PushRequest, open_target, redact
from sentence_beam.transforms.push import push as push_changes
from sentence_beam.transforms.push.push_parts import (
    check_concluded,
    conclude,
    delete_files,
    number_parts,
    plan_parts,
    write_part,
)
from sentence_beam.transforms.push.push_snapshot import RowsToWrite
from sentence_beam.transforms.push.push_targets import has_password
from sentence_beam.transforms.push.target import Target
from sentence_beam.transforms.steps.options.store import PushOptions
from sentence_beam.transforms.store import open_store

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions


def parser() -> argparse.ArgumentParser:
    """The options of `push`."""
    return options.command(
        "push",
        "Bring a table of PostgreSQL (pgvector), Qdrant or LanceDB up to a store: rows that were"
        " added, changed or deleted since the last push.",
        "sentence-beam push --store store --to 'lance:tables#docs'",
        "sentence-beam push --store store --to 'lance:tables#docs' --dry-run",
        kind=PushOptions,
    )


def _push(options: PushOptions, beam_options: "PipelineOptions | None") -> CommandOutput:
    root = open_store(options.store).manifest.root
    how = PushRequest(options.full, options.dry_run, options.max_deletes)
    by_workers = None
    if beam_options is not None:
        check_runner(options, root, beam_options)
        by_workers = partial(write_by_workers, beam_options=beam_options)
    with open_target(options.to) as target:
        pushed = push_changes(lambda: open_store(options.store).manifest, target, how, by_workers)
    manifest = pushed.new
    values = {
        "store": manifest.root,
        "to": redact(options.to),
        "run": manifest.run,
        "dry_run": options.dry_run,
    }
    values |= {"held": pushed.held, "rows": pushed.rows, **asdict(pushed.changes)}
    return CommandOutput(wrapped(summarise(pushed, redact(options.to), options.dry_run)), values)


def check_runner(options: PushOptions, root: str, beam_options: "PipelineOptions") -> None:
    """Raise OptionError if workers cannot write, or would be told a password."""
    from sentence_beam.pipelines.common import engines

    engines.check_waits(beam_options, "push")
    engines.check_shared(beam_options, store=root)
    if has_password(options.to):
        raise OptionError(
            f"{cite('to')} {redact(options.to)}: with --runner a password would be in the job's"
            " description; leave it out, and set PGPASSWORD here and on the workers"
        )


def write_by_workers(target: Target, wanted: RowsToWrite, beam_options: "PipelineOptions") -> None:
    """Write rows by a pipeline, whose parts are files in the store meanwhile."""
    import apache_beam as beam

    from sentence_beam.pipelines.common import engines
    from sentence_beam.transforms.beam.written_parts import WriteParts

    with target.written_by_workers() as writer:
        job = plan_parts(wanted, writer)
        try:
            written = WriteParts(job, number_parts, write_part, conclude)
            with engines.explaining(), beam.Pipeline(options=beam_options) as pipeline:
                _ = pipeline | "Snapshot" >> beam.Create([job.run]) | "Push" >> written
            check_concluded(job)
        finally:
            delete_files(job)


def summarise(pushed: Pushed, where: str, dry_run: bool) -> list[str]:
    """Summary lines, one fact each."""
    numbers = ", ".join(f"{number:,} {what}" for what, number in asdict(pushed.changes).items())
    things = "pieces" if pushed.new.rows.pieces is not None else "rows"
    holds = "holds"
    if dry_run:
        numbers = f"{numbers} (nothing was written)"
        holds = "would hold"
    since = pushed.held or "all rows: no snapshot was there"
    if pushed.removed:
        since = f"all {things} compared: vacuum removed the snapshot {', '.join(pushed.removed)}"
    return [
        format_summary_line(things, numbers),
        format_summary_line("since", since),
        format_summary_line(
            "table", f"{where} {holds} {pushed.rows:,} {things} of {pushed.new.run}"
        ),
    ]


push = function("push", PushOptions, make_function(_push))
main = command.main(parser, _push, parse, kind=PushOptions)

if __name__ == "__main__":
    sys.exit(main())
