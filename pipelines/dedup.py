"""`sentence-beam dedup`: the rows of a store that say nearly the same."""

import argparse
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from pipelines import command, options
from pipelines.library import as_function, options_of
from pipelines.output import TABLE_FILE, check_output, write_tables
from pipelines.said import Said
from pipelines.tables import Column, id_column, one_line, table, text_column
from transforms.numbers import counted
from transforms.steps.dedup import Deduplicated, deduplicate
from transforms.steps.options import DedupOptions
from transforms.steps.store_vectors import with_texts
from transforms.store import open_store
from transforms.store.manifest import Manifest
from transforms.values import StrPath


def parser() -> argparse.ArgumentParser:
    """The options of `dedup`."""
    p = options.command(
        "dedup",
        "Find the rows of a store that say nearly the same, and which one of each group to keep.",
        "sentence-beam dedup --store store --threshold 0.95 --output duplicates.parquet",
        "sentence-beam dedup --store store --threshold 0.9 --output duplicates.csv --json",
    )
    options.add_store(p)
    p.add_argument(
        "--threshold",
        type=options.cosine,
        required=True,
        metavar="X",
        help="rows whose cosine is X or more are near duplicates, and so is what these are near duplicates of",
    )
    p.add_argument("--output", required=True, metavar="FILE", help=TABLE_FILE)
    return p


def dedup(store: StrPath, threshold: float) -> Deduplicated:
    """The rows of a store in groups of near duplicates, each with the row to keep.

    Raises the errors with which `sentence-beam dedup` ends.
    """
    with as_function(DedupOptions):
        asked = options_of(DedupOptions, "dedup", {"store": store, "threshold": threshold, "output": ""})
        return run(open_store(asked.store).manifest, asked.threshold)


def run(manifest: Manifest, threshold: float) -> Deduplicated:
    """The rows of a snapshot in groups."""
    with tempfile.TemporaryDirectory() as folder:
        return deduplicate(manifest, threshold, Path(folder))


def _dedup(args: argparse.Namespace) -> Said:
    asked = DedupOptions(**vars(args))
    check_output(asked.output)
    manifest = open_store(asked.store).manifest
    found = run(manifest, asked.threshold)
    write_tables(asked.output, *with_texts(found.rows, manifest))
    rows = len(found.rows)
    lines = [
        *shown(found.largest),
        f"rows        {rows:,}, {rows - found.duplicates:,} to keep",
        f"duplicates  {found.duplicates:,} in {counted(found.groups, 'group')}",
        f"found       {found.found:.1%} of the {found.sampled:,} pairs of some rows, which were compared with all",
        f"output      {asked.output}",
    ]
    counts = {"rows": rows, "groups": found.groups, "duplicates": found.duplicates}
    return Said(lines, {"output": asked.output, **counts, "found": found.found, "sampled": found.sampled})


def shown(rows: pa.Table) -> list[str]:
    """The largest groups as a table, and an empty line; nothing where no group is."""
    if not len(rows):
        return []
    columns = [Column("component", right=True), Column("keep"), Column("score"), id_column(), text_column("text")]
    cells = [
        [str(row["component"]), "yes" if row["keep"] else "no", f"{row['score']:.4f}", row["id"], one_line(row["text"])]
        for row in rows.to_pylist()
    ]
    return [*table(columns, cells), ""]


main = command.main(parser, _dedup)

if __name__ == "__main__":
    sys.exit(main())
