"""`sentence-beam rejects`: the rows that could not be embedded, with the reasons."""

import argparse
import sys
from collections import Counter
from dataclasses import asdict

from pipelines import command, options
from pipelines.output import TABLE_FILE, check_output, write_rows
from pipelines.said import Said
from pipelines.tables import Column, end, id_column, middle, table, wrapped
from transforms import storage
from transforms.store.rejected import rejected_rows, rejecting_run

SHOWN = 100


def parser() -> argparse.ArgumentParser:
    """The options of `rejects`."""
    p = options.command(
        "rejects",
        "List the rows that could not be embedded, with the reasons.",
        "sentence-beam rejects --store store",
        "sentence-beam rejects --store store --output rejected.jsonl",
    )
    options.add_store(p)
    p.add_argument(
        "--run",
        metavar="RUN",
        help="a run or the beginning of one, latest, or -1 for the one before (default: the last with a list)",
    )
    p.add_argument(
        "--output", metavar="FILE", help=f"{TABLE_FILE} with all of them (default: the first {SHOWN} are printed)"
    )
    return p


def _rejects(args: argparse.Namespace) -> Said:
    check_output(args.output)
    root = storage.absolute(args.store)
    run, paths = rejecting_run(root, args.run)
    rows = list(rejected_rows(root, paths))
    if args.output:
        write_rows(args.output, [asdict(row) for row in rows])
        values = {"store": root, "run": run, "rejected": len(rows), "output": args.output}
        return Said([f"{len(rows):,} rejected rows of run {run} in {args.output}"], values)
    counts = Counter(row.reason for row in rows)
    why = "".join(f", {n:,} {reason}" for reason, n in counts.items())
    lines = wrapped([f"{root}: {len(rows):,} rows rejected in run {run}{why}"])
    shown: list[tuple[str, ...]] = [
        (row.file, str(row.row), row.id or "", row.reason, ascii(row.excerpt)[1:-1]) for row in rows[:SHOWN]
    ]
    columns = [Column("file", middle, spare=1), Column("row", right=True), id_column()]
    lines += table([*columns, Column("reason"), Column("excerpt", end)], shown) if shown else []
    lines += [f"and {len(rows) - SHOWN:,} more; --output FILE has all"] if len(rows) > SHOWN else []
    return Said(lines, {"store": root, "run": run, "rejected": [asdict(row) for row in rows]}, asked=True)


main = command.main(parser, _rejects)

if __name__ == "__main__":
    sys.exit(main())
