"""`sentence-beam cluster`: group the rows of a store by topic."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import overload

from sentence_beam.pipelines.common import command, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import without_none
from sentence_beam.pipelines.common.output import check_file, check_output, write_table
from sentence_beam.pipelines.common.progress import muting
from sentence_beam.pipelines.common.tables import Column, format_table, make_text_column
from sentence_beam.transforms.base.keyword_options import make_options
from sentence_beam.transforms.base.logs import keep_root_logger
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.base.values import StrPath
from sentence_beam.transforms.search import Selection
from sentence_beam.transforms.steps.joins.row_groups import (
    Clustered,
    group_by_min_score,
    group_by_number,
)
from sentence_beam.transforms.steps.options.joins import ClusterOptions
from sentence_beam.transforms.store import open_store

SHOWN = 20
NAMED_BY = 3


def parser() -> argparse.ArgumentParser:
    """The options of `cluster`."""
    return options.command(
        "cluster",
        "Group the rows of a store by topic.",
        "sentence-beam cluster --store store --clusters 8 --output clusters.parquet",
        "sentence-beam cluster --store store --min-score 0.6 --output groups.parquet",
        kind=ClusterOptions,
    )


@overload
def cluster(
    store: StrPath | None = None,
    clusters: int | None = None,
    min_score: float | None = None,
    *,
    where: str | None = None,
    snapshot: str | None = None,
    output: None = None,
) -> Clustered: ...


@overload
def cluster(
    store: StrPath | None = None,
    clusters: int | None = None,
    min_score: float | None = None,
    *,
    where: str | None = None,
    snapshot: str | None = None,
    output: StrPath,
) -> str: ...


def cluster(
    store: StrPath | None = None,
    clusters: int | None = None,
    min_score: float | None = None,
    *,
    where: str | None = None,
    snapshot: str | None = None,
    output: StrPath | None = None,
) -> Clustered | str:
    """Return the rows of a store in `clusters` groups, or merged down to `min_score`.

    With an `output` the rows are written there, and its path is returned. Raises the errors with
    which `sentence-beam cluster` ends.
    """
    keywords = {
        "store": store,
        "output": output or "",
        "clusters": clusters,
        "min_score": min_score,
        "where": where,
        "snapshot": snapshot,
    }
    with keep_root_logger(), muting():
        options = make_options(ClusterOptions, "cluster", without_none(keywords))
        if output is None:
            return run(options)
        _cluster(options)
        return options.output


def run(options: ClusterOptions) -> Clustered:
    """Return the selected rows of a snapshot in clusters."""
    selection = Selection.from_manifest(
        open_store(options.store, options.snapshot).manifest, options.where
    )
    with tempfile.TemporaryDirectory() as folder:
        if options.clusters is not None:
            return group_by_number(selection, options.clusters, Path(folder))
        return group_by_min_score(selection, float(options.min_score or 0), Path(folder))


def _cluster(options: ClusterOptions) -> CommandOutput:
    check_output(options.output)
    path = Path(options.output)
    beside = str(path.with_name(f"{path.stem}-clusters.parquet"))
    check_file(beside)
    clustered = run(options)
    write_table(options.output, clustered.rows)
    write_table(beside, clustered.clusters)
    clusters = clustered.clusters.select(["label", "size", "names"]).to_pylist()
    cells = [
        [str(c["label"]), str(c["size"]), " | ".join(c["names"][:NAMED_BY])]
        for c in clusters[:SHOWN]
    ]
    lines = format_table(
        [
            Column("label", right=True),
            Column("size", right=True),
            make_text_column("nearest to its centre"),
        ],
        cells,
    )
    more = [f"and {len(clusters) - SHOWN:,} smaller ones"] if len(clusters) > SHOWN else []
    rows = format_count(len(clustered.rows), "row")
    last = f"{rows} in {options.output}, {format_count(len(clusters), 'cluster')} in {beside}"
    values = {
        "output": options.output,
        "beside": beside,
        "rows": len(clustered.rows),
        "clusters": clusters,
    }
    return CommandOutput([*lines, *more, "", last], values)


main = command.main(parser, _cluster, kind=ClusterOptions)

if __name__ == "__main__":
    sys.exit(main())
