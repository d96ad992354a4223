"""The data files of a table of Delta Lake, without loading its rows."""

from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, cite, first_line
from sentence_beam.transforms.corpus.lake_parts import (
    DELTA,
    LakePart,
    filter_paths,
    find_local_path,
    list_latest,
)


def open_delta(pattern: str, version: int | None) -> Any:
    """Open a version of a Delta table; None: the current one."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(storage.absolute(pattern.removeprefix(DELTA)))
        if version is not None:
            _load_version(pattern, table, version)
        return table
    except (DeltaError, OSError) as error:
        raise OptionError(
            f"{cite('input')} {pattern}: no Delta table can be read there ({first_line(error)});"
            " check the path"
        ) from error


def list_delta_files(pattern: str, part: LakePart) -> tuple[str, list[str]]:
    """Return the folder and the data files of a Delta table."""
    root = storage.absolute(pattern.removeprefix(DELTA))
    table = open_delta(pattern, part.version)
    metadata = table.metadata()
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        raise OptionError(
            f"{cite('input')} {pattern}: its files have its columns under other names"
            " (delta.columnMapping.mode); copy it into a table without"
        )
    files = pa.table(table.get_add_actions(flatten=True))
    paths = [_resolve_path(root, path) for path in files.column("path").to_pylist()]
    if part.filter is not None:
        values = {name: files.column(f"partition.{name}") for name in metadata.partition_columns}
        paths = filter_paths(pattern, paths, pa.table(values), part.filter)
    if "deletionVectors" in (table.protocol().reader_features or []):
        _check_vectors(pattern, table, paths)
    return root, paths


def _resolve_path(root: str, path: str) -> str:
    """Return the path or URL of a data file by its path in the log of a Delta table.

    The log's paths are URL-encoded once and relative to the table; those of a clone are URLs.
    """
    decoded = unquote(path)
    return find_local_path(decoded) if "://" in decoded else f"{root}/{decoded}"


def _check_vectors(pattern: str, table: Any, paths: list[str]) -> None:
    """Raise OptionError if a deletion vector deletes rows of one of the files."""
    read = set(paths)
    for batch in table.deletion_vectors():
        for uri in pa.record_batch(batch).column("filepath").to_pylist():
            path = find_local_path(unquote(uri))
            if path in read or find_local_path(uri) in read:
                raise OptionError(
                    f"{cite('input')} {pattern}: rows of {path} are deleted by a deletion vector,"
                    " which is not read; rewrite the files that have one (REORG TABLE ... APPLY"
                    " (PURGE))"
                )


def _load_version(pattern: str, table: Any, version: int) -> None:
    """Load a version of a Delta table. Raises OptionError if the table does not have it."""
    from deltalake.exceptions import DeltaError

    try:
        table.load_as_version(version)
    except DeltaError as error:
        versions = sorted(commit["version"] for commit in table.history())
        if version in versions:
            raise
        raise OptionError(
            f"{cite('input_version')} {version}: {pattern} has no such version;"
            f" {list_latest(versions)}"
        ) from error
