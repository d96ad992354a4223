"""`sentence-beam dedup`: the rows of a store that say nearly the same."""

import argparse
import sys
import tempfile
from pathlib import Path

from pipelines import command, options
from pipelines.output import TABLE_FILE, check_output, write_table
from pipelines.said import Said
from transforms.steps.dedup import Deduplicated, deduplicate
from transforms.steps.options import DedupOptions
from transforms.store import open_store


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


def dedup(store: str, threshold: float) -> Deduplicated:
    """The rows of a store in groups of near duplicates, each with the row to keep.

    Raises the errors with which `sentence-beam dedup` ends.
    """
    asked = DedupOptions(store, threshold, "")
    manifest = open_store(asked.store).manifest
    with tempfile.TemporaryDirectory() as folder:
        return deduplicate(manifest, asked.threshold, Path(folder))


def _dedup(args: argparse.Namespace) -> Said:
    asked = DedupOptions(**vars(args))
    check_output(asked.output)
    found = dedup(asked.store, asked.threshold)
    write_table(asked.output, found.rows)
    rows = len(found.rows)
    lines = [
        f"rows        {rows:,}, {rows - found.duplicates:,} to keep",
        f"duplicates  {found.duplicates:,} in {found.groups:,} groups",
        f"found       {found.found:.1%} of the {found.sampled:,} pairs of some rows, which were compared with all",
        f"output      {asked.output}",
    ]
    counts = {"rows": rows, "groups": found.groups, "duplicates": found.duplicates}
    return Said(lines, {"output": asked.output, **counts, "found": found.found, "sampled": found.sampled})


main = command.main(parser, _dedup)

if __name__ == "__main__":
    sys.exit(main())
