"""`sentence-beam history`: every run of a store, one a line."""

import argparse
import sys
from dataclasses import asdict

from pipelines import command, options
from pipelines.output import aligned, check_output, write_rows
from pipelines.progress import duration
from transforms.report.history import RunSummary, known_summaries, run_summaries
from transforms.store import open_store
from transforms.store.manifest import snapshots
from transforms.store.runs import COMMITTED

COUNTS = ("rows", "embedded", "reused", "duplicates", "carried", "rejected")
HEADS = ("run", "started", "time", *COUNTS, "recall", "status", "snapshot", "message")
RIGHT = frozenset(("time", *COUNTS, "recall"))


def parser() -> argparse.ArgumentParser:
    """The options of `history`."""
    p = options.command("history", "List every run of a store: when, what it did, and how it ended.")
    options.add_store(p)
    p.add_argument("--output", metavar="FILE", help="write .parquet or .jsonl, with more columns, instead of a table")
    return p


def _history(args: argparse.Namespace) -> None:
    check_output(args.output)
    current = open_store(args.store).manifest
    kept = {run: "kept" for run in snapshots(current.root)} | {current.run: "current"}
    found = run_summaries(current.root, known_summaries(current.root))
    states = [kept.get(night.run, "removed") if night.status == COMMITTED else "" for night in found]
    if args.output:
        write_rows(args.output, [asdict(n) | {"snapshot": state} for n, state in zip(found, states, strict=True)])
        print(f"{len(found)} runs in {args.output}")
    else:
        rows = [cells(night, state) for night, state in zip(found, states, strict=True)]
        print("\n".join(aligned(HEADS, rows, RIGHT)))


def cells(night: RunSummary, state: str) -> tuple[str, ...]:
    """A night's line; nothing where nothing is known."""
    counts = [getattr(night, name) for name in COUNTS]
    return (
        night.run,
        night.started[:16].replace("T", " "),
        "" if night.seconds is None else duration(night.seconds),
        *("" if count is None else f"{count:,}" for count in counts),
        "" if night.recall is None else f"{night.recall:.4f}",
        night.status,
        state,
        night.message,
    )


main = command.main(parser, _history)

if __name__ == "__main__":
    sys.exit(main())
