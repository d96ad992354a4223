"""`sentence-beam rejects`: the rows that could not be embedded, with the reasons."""

import argparse
import sys
from collections import Counter

from sentence_beam.pipelines.common import command, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import function
from sentence_beam.pipelines.common.output import check_output, write_rows
from sentence_beam.pipelines.common.tables import (
    Column,
    cut_end,
    cut_middle,
    format_table,
    make_id_column,
    wrapped,
)
from sentence_beam.transforms import storage
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.steps.options.store import SHOWN, RejectsOptions
from sentence_beam.transforms.store.runs.rejected_rows import find_rejecting_run, read_rejected_rows
from sentence_beam.transforms.store.shards.reject_files import make_rejects_table


def parser() -> argparse.ArgumentParser:
    """The options of `rejects`."""
    return options.command(
        "rejects",
        "List the rows that could not be embedded, with the reasons.",
        "sentence-beam rejects --store store",
        "sentence-beam rejects --store store --output rejected.jsonl",
        kind=RejectsOptions,
    )


def _run_rejects(options: RejectsOptions) -> CommandOutput:
    check_output(options.output)
    root = storage.absolute(options.store)
    run, paths = find_rejecting_run(root, options.snapshot)
    rows = list(read_rejected_rows(root, paths))
    if options.output:
        write_rows(options.output, make_rejects_table(rows).to_pylist())
        values = {"store": root, "run": run, "rejected": len(rows), "output": options.output}
        return CommandOutput(
            [f"{len(rows):,} rejected rows of run {run} in {options.output}"], values
        )
    counts = Counter(row.reason for row in rows)
    why = "".join(f", {n:,} {reason}" for reason, n in counts.items())
    lines = wrapped([f"{root}: {format_count(len(rows), 'row')} rejected in run {run}{why}"])
    shown: list[tuple[str, ...]] = [
        (row.file, str(row.row), row.id or "", row.reason, ascii(row.excerpt)[1:-1])
        for row in rows[:SHOWN]
    ]
    columns = [Column("file", cut_middle, spare=1), Column("row", right=True), make_id_column()]
    if shown:
        lines += format_table([*columns, Column("reason"), Column("excerpt", cut_end)], shown)
    if len(rows) > SHOWN:
        lines += [f"and {len(rows) - SHOWN:,} more; --output FILE has all"]
    return CommandOutput(
        lines,
        {"store": root, "run": run, "rejected": make_rejects_table(rows).to_pylist()},
        always=True,
    )


rejects = function("rejects", RejectsOptions, _run_rejects)
main = command.main(parser, _run_rejects, kind=RejectsOptions)

if __name__ == "__main__":
    sys.exit(main())
