"""`sentence-beam diff`: the rows in which two snapshots differ."""

import argparse
import sys
from collections import Counter, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sentence_beam.pipelines.common import command, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import function
from sentence_beam.pipelines.common.output import check_output, write_tables
from sentence_beam.pipelines.common.tables import Column, cut_end, cut_middle, format_table, wrapped
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.steps.options.store import SHOWN, DiffOptions
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs import listed_changes
from sentence_beam.transforms.store.runs.answer_figures import CAUSES, describe_causes

if TYPE_CHECKING:
    from sentence_beam.transforms.steps.watch.compared_answers import ComparedQuery


def parser() -> argparse.ArgumentParser:
    """The options of `diff`."""
    return options.command(
        "diff",
        "List the ids that were added, changed or deleted between two snapshots.",
        "sentence-beam diff --store store",
        "sentence-beam diff -3 latest --store store --output listed_changes.parquet",
        kind=DiffOptions,
    )


def _diff(options: DiffOptions) -> CommandOutput:
    check_output(options.output)
    old = open_store(options.store, options.old).manifest
    new = open_store(options.store, options.new).manifest
    counts = Counter[str]()
    shown = list[tuple[str, str]]()

    def tallied() -> Iterator[pa.Table]:
        for differing in listed_changes.diff(old, new):
            counts.update(differing.column("change").to_pylist())
            first = differing.slice(0, SHOWN - len(shown)).select(["change", "id"])
            shown.extend((row["change"], row["id"]) for row in first.to_pylist())
            yield differing

    if options.output:
        write_tables(options.output, listed_changes.SCHEMA, tallied())
    else:
        deque(tallied(), maxlen=0)
    numbers = {what: counts[what] for what in ("added", "changed", "deleted")}
    total = ", ".join(f"{number:,} {what}" for what, number in numbers.items())
    if new.rows.pieces is not None:
        total = f"{total} (pieces)"
    more, answers = _compare_answers(old, new)
    values = {"store": new.root, "old": old.run, "new": new.run, **numbers, "answers": answers}
    if options.output:
        lines = [f"{total} in {options.output}", *more]
        return CommandOutput(lines, {**values, "output": options.output})
    lines = wrapped([f"{total} from {old.run} to {new.run}"])
    lines += _list_first_rows(shown, counts.total())
    rows = [{"change": change, "id": row_id} for change, row_id in shown]
    return CommandOutput([*lines, *more], {**values, "rows": rows}, always=True)


def _list_first_rows(shown: list[tuple[str, str]], total: int) -> list[str]:
    """Return a table of the first of `total` rows, and how many more there are."""
    lines = format_table([Column("change"), Column("id", cut_middle)], shown) if shown else []
    if total > SHOWN:
        lines.append(f"and {total - SHOWN:,} more; --output FILE has all")
    return lines


def _compare_answers(old: Manifest, new: Manifest) -> tuple[list[str], dict[str, Any] | None]:
    """Return lines and values on the watched queries whose answers differ most.

    None if the snapshots do not have their answers to the same queries on record.
    """
    if old.watch is None or new.watch is None or old.watch.digest != new.watch.digest:
        return [], None
    from sentence_beam.transforms.steps.watch.snapshots import (
        compare_snapshots,
        list_changed_queries,
    )

    compared = compare_snapshots(old, new)
    figures = compared.figures
    rows = [row for query in list_changed_queries(compared) for row in _list_lost(query)]
    causes = f": {describe_causes(figures.causes)}" if rows else ""
    lines = wrapped(
        [f"{figures.lost:,} of {format_count(figures.answers, 'answer')} changed{causes}"]
    )
    if rows:
        cells = [[CAUSES[row["cause"]], str(row["rank"]), row["id"], row["query"]] for row in rows]
        columns = [
            Column("cause"),
            Column("rank"),
            Column("id", cut_middle),
            Column("query", cut_end),
        ]
        lines += format_table(columns, cells[:SHOWN])
    if len(rows) > SHOWN:
        lines.append(f"and {len(rows) - SHOWN:,} more")
    return lines, {**figures.to_json(), "rows": rows[:SHOWN]}


def _list_lost(query: "ComparedQuery") -> list[dict[str, Any]]:
    """A row for each lost answer of a query, with its rank before."""
    return [
        {
            "query": query.text,
            "rank": place + 1,
            "id": query.before[place].id,
            "score": query.before[place].score,
            "cause": reason.cause,
        }
        for place, reason in sorted(query.lost.items())
    ]


diff = function("diff", DiffOptions, _diff)
main = command.main(parser, _diff, kind=DiffOptions)

if __name__ == "__main__":
    sys.exit(main())
