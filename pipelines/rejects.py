"""`sentence-beam rejects`: the rows that could not be embedded, with the reasons."""

import argparse
import sys
from collections import Counter
from dataclasses import asdict

from pipelines import command, options
from pipelines.output import aligned, check_output, write_rows
from transforms import storage
from transforms.store.rejected import rejected_rows, rejecting_run

HEADS = ("file", "row", "id", "reason", "excerpt")
SHOWN = 100


def parser() -> argparse.ArgumentParser:
    """The options of `rejects`."""
    p = options.command("rejects", "List the rows that could not be embedded, with the reasons.")
    options.add_store(p)
    p.add_argument(
        "--run",
        metavar="RUN",
        help="a snapshot's run, or one that ended since too many were rejected (default: the last of these)",
    )
    p.add_argument(
        "--output", metavar="FILE", help=f"write all into .parquet or .jsonl instead of printing the first {SHOWN}"
    )
    return p


def _rejects(args: argparse.Namespace) -> None:
    check_output(args.output)
    root = storage.absolute(args.store)
    run, paths = rejecting_run(root, args.run)
    rows = list(rejected_rows(root, paths))
    if args.output:
        write_rows(args.output, [asdict(row) for row in rows])
        print(f"{len(rows):,} rejected rows of run {run} in {args.output}")
        return
    counts = Counter(row.reason for row in rows)
    print(f"{root}: {len(rows):,} rows rejected in run {run}{''.join(f', {n:,} {why}' for why, n in counts.items())}")
    shown: list[tuple[str, ...]] = [
        (row.file, str(row.row), row.id or "", row.reason, ascii(row.excerpt)[1:-1]) for row in rows[:SHOWN]
    ]
    if shown:
        print("\n".join(aligned(HEADS, shown, frozenset({"row"}))))
    if len(rows) > SHOWN:
        print(f"and {len(rows) - SHOWN:,} more; --output FILE has all")


main = command.main(parser, _rejects)

if __name__ == "__main__":
    sys.exit(main())
