"""`sentence-beam rejects`: the rows that could not be embedded, with the reasons."""

import argparse
import sys
from collections import Counter

from sentence_beam.pipelines.common import command, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import function
from sentence_beam.pipelines.common.output import check_output, write_rows
from sentence_beam.pipelines.common.tables import Column, end, id_column, middle, table, wrapped
from sentence_beam.transforms import storage
from sentence_beam.transforms.base.numbers import counted
from sentence_beam.transforms.steps.options.store import SHOWN, RejectsOptions
from sentence_beam.transforms.store.runs.rejected_rows import rejected_rows, rejecting_run
from sentence_beam.transforms.store.shards.reject_files import rejects_table


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
    run, paths = rejecting_run(root, options.snapshot)
    rows = list(rejected_rows(root, paths))
    if options.output:
        write_rows(options.output, rejects_table(rows).to_pylist())
        values = {"store": root, "run": run, "rejected": len(rows), "output": options.output}
        return CommandOutput(
            [f"{len(rows):,} rejected rows of run {run} in {options.output}"], values
        )
    counts = Counter(row.reason for row in rows)
    why = "".join(f", {n:,} {reason}" for reason, n in counts.items())
    lines = wrapped([f"{root}: {counted(len(rows), 'row')} rejected in run {run}{why}"])
    shown: list[tuple[str, ...]] = [
        (row.file, str(row.row), row.id or "", row.reason, ascii(row.excerpt)[1:-1])
        for row in rows[:SHOWN]
    ]
    columns = [Column("file", middle, spare=1), Column("row", right=True), id_column()]
    if shown:
        lines += table([*columns, Column("reason"), Column("excerpt", end)], shown)
    if len(rows) > SHOWN:
        lines += [f"and {len(rows) - SHOWN:,} more; --output FILE has all"]
    return CommandOutput(
        lines, {"store": root, "run": run, "rejected": rejects_table(rows).to_pylist()}, always=True
    )


rejects = function("rejects", RejectsOptions, _run_rejects)
main = command.main(parser, _run_rejects, kind=RejectsOptions)

if __name__ == "__main__":
    sys.exit(main())
