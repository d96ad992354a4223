"""`sentence-beam diff`: the rows in which two snapshots differ."""

import argparse
import sys
from collections import Counter, deque
from collections.abc import Iterator

import pyarrow as pa

from pipelines.common import command, options
from pipelines.common.library import function
from pipelines.common.output import check_output, write_tables
from pipelines.common.said import Said
from pipelines.common.tables import Column, middle, table, wrapped
from transforms.steps.options.store import SHOWN, DiffOptions
from transforms.store import open_store
from transforms.store.runs import changes


def parser() -> argparse.ArgumentParser:
    """The options of `diff`."""
    return options.command(
        "diff",
        "List the ids that were added, changed or deleted between two snapshots.",
        "sentence-beam diff --store store",
        "sentence-beam diff -3 latest --store store --output changes.parquet",
        kind=DiffOptions,
    )


def _diff(asked: DiffOptions) -> Said:
    check_output(asked.output)
    old = open_store(asked.store, asked.old).manifest
    new = open_store(asked.store, asked.new).manifest
    counts = Counter[str]()
    shown = list[tuple[str, str]]()

    def counted() -> Iterator[pa.Table]:
        for differing in changes.diff(old, new):
            counts.update(differing.column("change").to_pylist())
            first = differing.slice(0, SHOWN - len(shown)).select(["change", "id"])
            shown.extend((row["change"], row["id"]) for row in first.to_pylist())
            yield differing

    if asked.output:
        write_tables(asked.output, changes.SCHEMA, counted())
    else:
        deque(counted(), maxlen=0)
    numbers = {what: counts[what] for what in ("added", "changed", "deleted")}
    total = ", ".join(f"{number:,} {what}" for what, number in numbers.items())
    if new.rows.pieces is not None:
        total = f"{total} (pieces)"
    values = {"store": new.root, "old": old.run, "new": new.run, **numbers}
    if asked.output:
        return Said([f"{total} in {asked.output}"], {**values, "output": asked.output})
    lines = wrapped([f"{total} from {old.run} to {new.run}"])
    lines += _first_rows(shown, counts.total())
    rows = [{"change": change, "id": row_id} for change, row_id in shown]
    return Said(lines, {**values, "rows": rows}, asked=True)


def _first_rows(shown: list[tuple[str, str]], total: int) -> list[str]:
    """Return a table of the first of `total` rows, and how many more there are."""
    lines = []
    if shown:
        lines += table([Column("change"), Column("id", middle)], shown)
    if total > SHOWN:
        lines.append(f"and {total - SHOWN:,} more; --output FILE has all")
    return lines


diff = function("diff", DiffOptions, _diff)
main = command.main(parser, _diff, kind=DiffOptions)

if __name__ == "__main__":
    sys.exit(main())
