"""`sentence-beam history`: every run of a store, a line each."""

import argparse
import sys
from dataclasses import asdict
from typing import Any

from sentence_beam.pipelines.common import command, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import function
from sentence_beam.pipelines.common.output import check_output, write_rows
from sentence_beam.pipelines.common.tables import Column, cut_end, format_table, show_number
from sentence_beam.transforms import storage
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.base.progress import format_duration
from sentence_beam.transforms.report.run_history import (
    RunSummary,
    read_known_summaries,
    read_summaries,
)
from sentence_beam.transforms.steps.forget.erasure_record import read_unfinished
from sentence_beam.transforms.steps.options.store import HistoryOptions
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.manifest import read_manifest, snapshots
from sentence_beam.transforms.store.runs.run_result import COMMITTED

PIECES_AT = 5  # behind the rows
COUNTS = (
    "rows",
    "added",
    "changed",
    "deleted",
    "embedded",
    "reused",
    "duplicates",
    "carried",
    "rejected",
)
COLUMNS = (
    Column("run"), Column("started", spare=12), Column("time", spare=5, right=True),
    Column("command", spare=1), Column("rows", right=True), Column("added", spare=3, right=True),
    Column("changed", spare=4, right=True), Column("deleted", spare=2, right=True),
    Column("embedded", spare=6, right=True), Column("reused", spare=7, right=True),
    Column("duplicates", spare=9, right=True), Column("carried", spare=8, right=True),
    Column("rejected", spare=10, right=True), Column("recall", spare=11, right=True),
    Column("status"), Column("snapshot", spare=1), Column("message", cut_end, spare=0),
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """The options of `history`."""
    return options.command(
        "history",
        "List every run of a store: when, what it did, and how it ended.",
        "sentence-beam history --store store",
        "sentence-beam history --store store --output runs.jsonl",
        kind=HistoryOptions,
    )


def _run_history(options: HistoryOptions) -> CommandOutput:
    check_output(options.output)
    root = storage.absolute(options.store)
    current = read_manifest(root)
    summaries = read_summaries(root, read_known_summaries(root))
    if not summaries:
        open_store(root)  # raises: there is no store
    kept = dict.fromkeys(snapshots(root), "kept")
    if current:
        kept[current.run] = "current"
    states = [
        kept.get(summary.run, "removed") if summary.status == COMMITTED else ""
        for summary in summaries
    ]
    runs = [list_columns(summary, state) for summary, state in zip(summaries, states, strict=True)]
    if options.output:
        write_rows(options.output, runs)
        values = {"store": root, "output": options.output, "runs": len(runs)}
        return CommandOutput([f"{format_count(len(runs), 'run')} in {options.output}"], values)
    lines = _make_table(summaries, states)
    left = read_unfinished(current) if current is not None else None
    if left is not None:
        lines.append(
            f"the erasure of run {left.run} is unfinished, earlier snapshots are still there; the"
            " next command that writes, vacuum for one, finishes it"
        )
    return CommandOutput(lines, {"store": root, "runs": runs}, always=True)


def _make_table(summaries: list[RunSummary], states: list[str]) -> list[str]:
    """Return a line for each run; pieces and what is OCCASIONAL are columns if a run has any."""
    rows = [make_cells(summary, state) for summary, state in zip(summaries, states, strict=True)]
    shown = list(COLUMNS)
    if any(summary.pieces is not None for summary in summaries):
        shown.insert(PIECES_AT, Column("pieces", right=True))
        rows = [
            (*row[:PIECES_AT], show_number(summary.pieces, ","), *row[PIECES_AT:])
            for row, summary in zip(rows, summaries, strict=True)
        ]
    for column, cell_of in OCCASIONAL:
        extra = [cell_of(summary) for summary in summaries]
        if any(extra):
            shown.insert(-1, column)
            rows = [(*row[:-1], cell, row[-1]) for row, cell in zip(rows, extra, strict=True)]
    return format_table(shown, rows)


def _show_changed_answers(summary: RunSummary) -> str:
    beyond = summary.answers_beyond
    return "" if beyond is None else f"{100 * beyond:.1f} %"


def _show_pending(summary: RunSummary) -> str:
    pending = summary.pending
    return f"{pending.files:,}" if pending is not None and pending.files else ""


def list_versions(summary: RunSummary) -> str:
    """The versions of the tables that a run read."""
    return ", ".join((summary.tables or {}).values())


# columns that are shown if a run has something for them, and their cells
OCCASIONAL = (
    (Column("changed answers", spare=9, right=True), _show_changed_answers),
    (Column("pending", spare=7, right=True), _show_pending),
    (Column("table version", spare=8), list_versions),
)


def list_columns(summary: RunSummary, state: str) -> dict[str, Any]:
    """Return a run for `--output` and `--json`, without the figures of stages in `report.json`."""
    return {name: value for name, value in asdict(summary).items() if name != "measures"} | {
        "snapshot": state
    }


def make_cells(summary: RunSummary, state: str) -> tuple[str, ...]:
    """The cells of a run's line; empty if something is not known."""
    counts = [getattr(summary, name) for name in COUNTS]
    took = format_duration(summary.seconds) if summary.seconds is not None else ""
    return (
        summary.run,
        summary.started[:16].replace("T", " "),
        took,
        summary.command,
        *(show_number(count, ",") for count in counts),
        show_number(summary.recall, ".4f"),
        summary.status,
        state,
        summary.message,
    )


history = function("history", HistoryOptions, _run_history)
main = command.main(parser, _run_history, kind=HistoryOptions)

if __name__ == "__main__":
    sys.exit(main())
