"""`sentence-beam dedup`: find near-duplicate rows of a store."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import overload

import pyarrow as pa

from sentence_beam.pipelines.common import command, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import without_none
from sentence_beam.pipelines.common.output import check_output, write_tables
from sentence_beam.pipelines.common.progress import muting
from sentence_beam.pipelines.common.tables import (
    Column,
    format_table,
    make_id_column,
    make_text_column,
    to_one_line,
)
from sentence_beam.transforms.base.keyword_options import make_options
from sentence_beam.transforms.base.logs import keep_root_logger
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.base.values import StrPath
from sentence_beam.transforms.search import Selection
from sentence_beam.transforms.steps.joins.near_duplicates import Deduplicated, deduplicate
from sentence_beam.transforms.steps.joins.store_vectors import append_texts
from sentence_beam.transforms.steps.options.joins import DedupOptions
from sentence_beam.transforms.store import open_store


def parser() -> argparse.ArgumentParser:
    """The options of `dedup`."""
    return options.command(
        "dedup",
        "Find near-duplicate rows of a store, and which row of each group to keep.",
        "sentence-beam dedup --store store --min-score 0.95 --output duplicates.parquet",
        "sentence-beam dedup --store store --min-score 0.9 --output duplicates.csv --json",
        kind=DedupOptions,
    )


@overload
def dedup(
    store: StrPath | None = None,
    min_score: float | None = None,
    *,
    where: str | None = None,
    snapshot: str | None = None,
    output: None = None,
) -> Deduplicated: ...


@overload
def dedup(
    store: StrPath | None = None,
    min_score: float | None = None,
    *,
    where: str | None = None,
    snapshot: str | None = None,
    output: StrPath,
) -> str: ...


def dedup(
    store: StrPath | None = None,
    min_score: float | None = None,
    *,
    where: str | None = None,
    snapshot: str | None = None,
    output: StrPath | None = None,
) -> Deduplicated | str:
    """Return the rows of a store in groups of near duplicates, each with the row to keep.

    With an `output` the rows are written there, and its path is returned. Raises the errors with
    which `sentence-beam dedup` ends.
    """
    keywords = {
        "store": store,
        "min_score": min_score,
        "where": where,
        "snapshot": snapshot,
        "output": output or "",
    }
    with keep_root_logger(), muting():
        options = make_options(DedupOptions, "dedup", without_none(keywords))
        if output is None:
            return run(options, _select(options))
        _dedup(options)
        return options.output


def _select(options: DedupOptions) -> Selection:
    """Return the rows that take part."""
    return Selection.from_manifest(
        open_store(options.store, options.snapshot).manifest, options.where
    )


def run(options: DedupOptions, selection: Selection) -> Deduplicated:
    """Return the selected rows in groups."""
    with tempfile.TemporaryDirectory() as folder:
        return deduplicate(selection, options.min_score, Path(folder))


def _dedup(options: DedupOptions) -> CommandOutput:
    check_output(options.output)
    selection = _select(options)
    deduplicated = run(options, selection)
    write_tables(options.output, *append_texts(deduplicated.rows, selection))
    rows = len(deduplicated.rows)
    pairs = f"the {deduplicated.sampled:,} pairs of some rows, which were compared with all"
    lines = [
        *show_groups(deduplicated.largest),
        format_summary_line("rows", f"{rows:,}, {rows - deduplicated.duplicates:,} to keep"),
        format_summary_line(
            "duplicates",
            f"{deduplicated.duplicates:,} in {format_count(deduplicated.groups, 'group')}",
        ),
        format_summary_line("found", f"{deduplicated.found:.1%} of {pairs}"),
        format_summary_line("output", options.output),
    ]
    counts = {"rows": rows, "groups": deduplicated.groups, "duplicates": deduplicated.duplicates}
    return CommandOutput(
        lines,
        {
            "output": options.output,
            **counts,
            "found": deduplicated.found,
            "sampled": deduplicated.sampled,
        },
    )


def show_groups(rows: pa.Table) -> list[str]:
    """Return the largest groups as a table with an empty line after it; nothing without groups."""
    if not len(rows):
        return []
    columns = [
        Column("component", right=True),
        Column("keep"),
        Column("score"),
        make_id_column(),
        make_text_column("text"),
    ]
    cells = [
        [
            str(row["component"]),
            "yes" if row["keep"] else "no",
            f"{row['score']:.4f}",
            row["id"],
            to_one_line(row["text"]),
        ]
        for row in rows.to_pylist()
    ]
    return [*format_table(columns, cells), ""]


main = command.main(parser, _dedup, kind=DedupOptions)

if __name__ == "__main__":
    sys.exit(main())
