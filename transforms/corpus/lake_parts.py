"""Parts shared by the tables of Iceberg and Delta Lake: versions, filters of partitions, paths."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.where import Words, evaluate_filter, parse_filter

ICEBERG = "iceberg:"
DELTA = "delta:"
NAMED = 5  # versions of a table that a message names


@dataclass(frozen=True)
class LakePart:
    """The version and the partitions to read of a table.

    `version` is a version of Delta Lake, or the id of a snapshot of Iceberg; None: the current one.
    `filter` selects partitions; None: all.
    """

    version: int | None = None
    filter: str | None = None


WHOLE = LakePart()


def list_latest(versions: Sequence[object]) -> str:
    """Return the end of a message: the latest versions of a table, and the number of the others."""
    if not versions:
        return "it has none"
    listed = f"it has {', '.join(map(str, versions[-NAMED:]))}"
    earlier = len(versions) - NAMED
    return listed if earlier <= 0 else f"{listed} and {earlier:,} earlier ones"


def filter_paths(pattern: str, paths: list[str], partitions: pa.Table, filter_: str) -> list[str]:
    """Return the files whose partition, a row of `partitions` each, matches a filter.

    Raises OptionError for an invalid filter, and for a table without partitions.
    """
    if not partitions.num_columns:
        raise OptionError(
            f"{cite('input_filter')}: the files of {pattern} are not partitioned by a column; leave"
            " it out"
        )
    words = Words(cite("input_filter"), "partition column", f"{pattern} is partitioned by")
    matches = evaluate_filter(
        parse_filter(filter_, partitions.schema, words), partitions
    ).to_pylist()
    return [path for path, is_match in zip(paths, matches, strict=True) if is_match]


def find_local_path(uri: str) -> str:
    """Return the path or URL that opens a file here."""
    return uri.removeprefix("file://").replace("s3a://", "s3://", 1)
