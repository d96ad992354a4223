"""`sentence-beam diff`: the rows in which two snapshots differ."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from pipelines import command, options
from pipelines.output import check_output, write_tables
from transforms.store import open_store
from transforms.store.changes import SCHEMA, diff


def parser() -> argparse.ArgumentParser:
    """The options of `diff`."""
    p = options.command("diff", "List the ids that were added, changed or deleted between two snapshots.")
    p.add_argument("old", metavar="A", help="run of the older snapshot")
    p.add_argument("new", metavar="B", help="run of the newer snapshot")
    options.add_store(p)
    p.add_argument("--output", required=True, metavar="FILE", help=".parquet file with a row for each difference")
    return p


def _diff(args: argparse.Namespace) -> None:
    check_output(args.output, (".parquet",))
    old, new = (open_store(args.store, run).manifest for run in (args.old, args.new))
    counts: Counter[str] = Counter()

    def counted() -> Iterator[pa.Table]:
        for table in diff(old, new):
            counts.update(table.column("change").to_pylist())
            yield table

    write_tables(args.output, SCHEMA, counted())
    print(f"{counts['added']:,} added, {counts['changed']:,} changed, {counts['deleted']:,} deleted in {args.output}")


main = command.main(parser, _diff)

if __name__ == "__main__":
    sys.exit(main())
