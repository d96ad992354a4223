"""`sentence-beam diff`: the rows in which two snapshots differ."""

import argparse
import sys
from collections import Counter, deque
from collections.abc import Iterator

import pyarrow as pa

from pipelines import command, options
from pipelines.output import TABLE_FILE, check_output, write_tables
from pipelines.said import Said
from pipelines.tables import Column, middle, table, wrapped
from transforms.store import open_store
from transforms.store.changes import SCHEMA, diff

SHOWN = 100
NAMES = "a run or the beginning of one, latest, or -1 for the one before"


def parser() -> argparse.ArgumentParser:
    """The options of `diff`."""
    p = options.command(
        "diff",
        "List the ids that were added, changed or deleted between two snapshots.",
        "sentence-beam diff --store store",
        "sentence-beam diff -3 latest --store store --output changes.parquet",
    )
    p.add_argument("old", nargs="?", default="-1", metavar="A", help=f"the older snapshot: {NAMES} (default: -1)")
    p.add_argument(
        "new", nargs="?", default="latest", metavar="B", help=f"the newer snapshot: {NAMES} (default: latest)"
    )
    options.add_store(p)
    p.add_argument(
        "--output",
        metavar="FILE",
        help=f"{TABLE_FILE} with a row for each difference (default: the first {SHOWN} are printed)",
    )
    return p


def _diff(args: argparse.Namespace) -> Said:
    check_output(args.output)
    old, new = (open_store(args.store, run).manifest for run in (args.old, args.new))
    counts, shown = Counter[str](), list[tuple[str, str]]()

    def counted() -> Iterator[pa.Table]:
        for differing in diff(old, new):
            counts.update(differing.column("change").to_pylist())
            first = differing.slice(0, SHOWN - len(shown)).select(["change", "id"])
            shown.extend((row["change"], row["id"]) for row in first.to_pylist())
            yield differing

    if args.output:
        write_tables(args.output, SCHEMA, counted())
    else:
        deque(counted(), maxlen=0)
    numbers = {what: counts[what] for what in ("added", "changed", "deleted")}
    pieces = " (pieces)" if new.rows.pieces is not None else ""
    total = ", ".join(f"{number:,} {what}" for what, number in numbers.items()) + pieces
    values = {"store": new.root, "old": old.run, "new": new.run, **numbers}
    if args.output:
        return Said([f"{total} in {args.output}"], {**values, "output": args.output})
    lines = wrapped([f"{total} from {old.run} to {new.run}"])
    lines += table([Column("change"), Column("id", middle)], shown) if shown else []
    lines += [f"and {counts.total() - SHOWN:,} more; --output FILE has all"] if counts.total() > SHOWN else []
    return Said(lines, {**values, "rows": [{"change": change, "id": name} for change, name in shown]}, asked=True)


main = command.main(parser, _diff)

if __name__ == "__main__":
    sys.exit(main())
