"""`sentence-beam cluster`: the rows of a store in groups by what they are about."""

import argparse
import sys
import tempfile
from pathlib import Path

from pipelines import command, options
from pipelines.library import as_function, options_of
from pipelines.output import TABLE_FILE, check_file, check_output, write_table
from pipelines.said import Said
from pipelines.tables import Column, table, text_column
from transforms.steps.cluster import AGGLOMERATIVE_ROWS, Clustered, by_number, by_threshold
from transforms.steps.options import ClusterOptions
from transforms.store import open_store
from transforms.values import StrPath

SHOWN = 20
NAMED_BY = 3


def parser() -> argparse.ArgumentParser:
    """The options of `cluster`."""
    p = options.command(
        "cluster",
        "Put the rows of a store into groups by what they are about.",
        "sentence-beam cluster --store store --clusters 8 --output clusters.parquet",
        "sentence-beam cluster --store store --threshold 0.6 --output groups.parquet",
    )
    options.add_store(p)
    how = p.add_mutually_exclusive_group(required=True)
    how.add_argument(
        "--clusters", type=options.positive, metavar="K", help="how many, found by k-means over cosines (default: none)"
    )
    how.add_argument(
        "--threshold",
        type=options.cosine,
        metavar="X",
        help="as many as there are when groups are joined while the mean cosine between them is X or more; for at most "
        f"{AGGLOMERATIVE_ROWS:,} rows (default: none)",
    )
    p.add_argument(
        "--output",
        required=True,
        metavar="FILE",
        help=f"{TABLE_FILE}; the clusters themselves go into a Parquet file beside it, <name>-clusters.parquet",
    )
    return p


def cluster(store: StrPath, clusters: int | None = None, threshold: float | None = None) -> Clustered:
    """The rows of a store in so many clusters, or in as many as a threshold gives.

    Raises the errors with which `sentence-beam cluster` ends.
    """
    with as_function(ClusterOptions), tempfile.TemporaryDirectory() as folder:
        given = {"store": store, "output": "", "clusters": clusters, "threshold": threshold}
        asked = options_of(ClusterOptions, "cluster", given)
        manifest = open_store(asked.store).manifest
        if asked.clusters is not None:
            return by_number(manifest, asked.clusters, Path(folder))
        return by_threshold(manifest, float(asked.threshold or 0), Path(folder))


def _cluster(args: argparse.Namespace) -> Said:
    asked = ClusterOptions(**vars(args))
    check_output(asked.output)
    path = Path(asked.output)
    beside = str(path.with_name(f"{path.stem}-clusters.parquet"))
    check_file(beside)
    found = cluster(asked.store, asked.clusters, asked.threshold)
    write_table(asked.output, found.rows)
    write_table(beside, found.clusters)
    clusters = found.clusters.select(["label", "size", "names"]).to_pylist()
    cells = [[str(c["label"]), str(c["size"]), " | ".join(c["names"][:NAMED_BY])] for c in clusters[:SHOWN]]
    lines = table(
        [Column("label", right=True), Column("size", right=True), text_column("nearest to its centre")], cells
    )
    more = [f"and {len(clusters) - SHOWN:,} smaller ones"] if len(clusters) > SHOWN else []
    several = "s" if len(clusters) > 1 else ""
    last = f"{len(found.rows):,} rows in {asked.output}, {len(clusters):,} cluster{several} in {beside}"
    values = {"output": asked.output, "beside": beside, "rows": len(found.rows), "clusters": clusters}
    return Said([*lines, *more, "", last], values)


main = command.main(parser, _cluster)

if __name__ == "__main__":
    sys.exit(main())
