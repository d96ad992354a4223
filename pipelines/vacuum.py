"""`sentence-beam vacuum`: removes old snapshots, and files that no kept snapshot names."""

import argparse
import sys
import time
from collections.abc import Sequence

from apache_beam.options.pipeline_options import PipelineOptions

from sentence_beam.pipelines.common import beam_flags, command, engine_jobs, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import pipeline_function
from sentence_beam.pipelines.common.writing import writing
from sentence_beam.transforms.base import values
from sentence_beam.transforms.base.numbers import format_amount, format_count
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.steps.options.store import OLDER_THAN, VacuumOptions
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs.run_ids import make_run_id
from sentence_beam.transforms.store.vacuum import Rubbish, find_rubbish, remove

NAMED = 5


def parser() -> argparse.ArgumentParser:
    """The options of `vacuum`."""
    return options.command(
        "vacuum",
        "Remove old snapshots, and the files that no kept snapshot names.",
        "sentence-beam vacuum --store store --dry-run",
        "sentence-beam vacuum --store store --keep 7 --older-than 14d",
        kind=VacuumOptions,
    )


def _vacuum(options: VacuumOptions, beam_options: PipelineOptions) -> CommandOutput:
    root = open_store(options.store).root
    older_than = options.older_than
    if older_than is None and options.keep is None:
        older_than = values.duration(OLDER_THAN)
    if options.dry_run:
        lease.check(root, engine_jobs.ask_state)
        return list_removed(
            root, find_rubbish(root, options.keep or 1, older_than, time.time()), "would be removed"
        )
    with writing(root, make_run_id(), beam_options):
        rubbish = find_rubbish(root, options.keep or 1, older_than, time.time())
        remove(rubbish)
    return list_removed(root, rubbish, "removed")


def list_removed(root: str, rubbish: Rubbish, what: str) -> CommandOutput:
    """Return the message that lists what is removed."""
    sizes = {"files": len(rubbish.files), "bytes": sum(entry.size for entry in rubbish.files)}
    names = {"snapshots": list(rubbish.snapshots), "kept": list(rubbish.kept)}
    return CommandOutput(
        describe_rubbish(rubbish, what),
        {"store": root, "removed": what == "removed", **names, **sizes},
    )


def describe_rubbish(rubbish: Rubbish, what: str) -> list[str]:
    """The lines about what is removed: snapshots by name, files by kind, and the sum."""
    removed = f"{len(rubbish.snapshots):,} {what}{_list_names(rubbish.snapshots)}"
    shown = [format_summary_line("snapshots", f"{removed}, {len(rubbish.kept):,} kept")]
    shown += [
        format_summary_line(kind, _describe_files(*sums))
        for kind, sums in sorted(rubbish.by_kind.items())
        if kind != "snapshots"
    ]
    number = len(rubbish.files)
    size = sum(entry.size for entry in rubbish.files)
    return [*shown, format_summary_line("all", f"{_describe_files(number, size)} {what}")]


def _list_names(runs: Sequence[str]) -> str:
    if not runs:
        return ""
    names = list(runs[:NAMED])
    if len(runs) > NAMED:
        names.append("...")
    return f" ({', '.join(names)})"


def _describe_files(number: int, size: int) -> str:
    return f"{format_count(number, 'file')}, {format_amount(size)}"


vacuum = pipeline_function("vacuum", VacuumOptions, _vacuum)
main = command.main(parser, _vacuum, beam_flags.parse, kind=VacuumOptions)

if __name__ == "__main__":
    sys.exit(main())
