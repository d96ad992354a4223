"""Tables of Iceberg and Delta Lake as input: the data files of their current snapshot.

Files of a snapshot never change, so that those which the next snapshot has too are carried over unread. Rows that a
table has deleted apart from its files, and columns that files have under other names, are refused.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

from transforms import storage
from transforms.errors import MissingExtraError, OptionError, SentenceBeamError, first_line
from transforms.storage.base import Entry

ICEBERG, DELTA = "iceberg:", "delta:"
METADATA = ".metadata.json"
FIELD_ID = b"PARQUET:field_id"


def is_table(pattern: str) -> bool:
    """Whether an `--input` names a table and no files."""
    return pattern.startswith((ICEBERG, DELTA))


def absolute_input(pattern: str) -> str:
    """An `--input` as workers see it: what it has of a local path is absolute."""
    if not is_table(pattern):
        return storage.absolute(pattern)
    kind, _, name = pattern.partition(":")
    return f"{kind}:{storage.absolute(name)}" if kind == "delta" or name.endswith(METADATA) else pattern


def table_entries(pattern: str) -> Iterator[tuple[Entry, str]]:
    """(entry, path relative to the table) of each data file of a table's current snapshot, sorted by path.

    Raises OptionError for a table that is not there, or whose files do not hold its rows as they are.
    """
    try:
        root, paths = _delta_files(pattern) if pattern.startswith(DELTA) else _iceberg_files(pattern)
    except ImportError as error:
        module = (error.name or "a package").partition(".")[0]
        raise MissingExtraError(
            f"--input {pattern} needs {module}, which is not installed; pip install 'sentence-beam[iceberg]'"
        ) from error
    if not paths:
        raise OptionError(f"--input {pattern}: the table has no data file; check the name")
    store = storage.storage_of(root)
    listed = {} if storage.is_local(root) else {entry.path: entry for entry in store.below(root)}  # in one request
    for path in sorted(paths):
        entry = listed.get(path) or store.stat(path)
        if entry is None:
            raise SentenceBeamError(f"{path} is missing, a file of --input {pattern}; restore it, or repair the table")
        yield entry, path.removeprefix(f"{root}/")


def _delta_files(pattern: str) -> tuple[str, list[str]]:
    """The folder and the data files of a Delta table."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    root = storage.absolute(pattern.removeprefix(DELTA))
    try:
        table = DeltaTable(root)
        features = table.protocol().reader_features or []
        mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
        paths = [_path(uri) for uri in table.file_uris()]
    except (DeltaError, OSError) as error:
        raise OptionError(f"--input {pattern}: no Delta table can be read there ({first_line(error)})") from error
    if "deletionVectors" in features:
        raise OptionError(
            f"--input {pattern}: rows may be deleted by deletion vectors, which stay in its files; rewrite the table "
            "(REORG TABLE ... APPLY (PURGE)) and drop the feature deletionVectors"
        )
    if mapped:
        raise OptionError(
            f"--input {pattern}: its files have its columns under other names (delta.columnMapping.mode); copy it into "
            "a table without"
        )
    return root, paths


def _iceberg_files(pattern: str) -> tuple[str, list[str]]:
    """The folder and the data files of an Iceberg table."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
    from pyiceberg.table import StaticTable

    name = pattern.removeprefix(ICEBERG)
    catalog, _, identifier = name.partition(".")
    try:
        if name.endswith(METADATA):
            table: Any = StaticTable.from_metadata(storage.absolute(name))
        else:
            table = load_catalog(catalog).load_table(identifier)
        tasks = list(table.scan().plan_files())
    except (NoSuchTableError, NoSuchNamespaceError, OSError, ValueError) as error:
        raise OptionError(
            f"--input {pattern}: no Iceberg table can be read there ({first_line(error)}); write "
            f"{ICEBERG}CATALOG.NAMESPACE.TABLE with a catalog of .pyiceberg.yaml, or {ICEBERG}PATH{METADATA}"
        ) from error
    deleting = next((task for task in tasks if task.delete_files), None)
    if deleting is not None:
        raise OptionError(
            f"--input {pattern}: rows of {_path(deleting.file.file_path)} are deleted by delete files, which are not "
            "read; rewrite the table's data files (rewrite_data_files)"
        )
    paths = [_path(task.file.file_path) for task in tasks]
    _check_names(pattern, table, paths)
    return _path(table.location()).rstrip("/"), paths


def _path(uri: str) -> str:
    """The path or URL by which a file is opened here."""
    return uri.removeprefix("file://").replace("s3a://", "s3://", 1)


def _check_names(pattern: str, table: Any, paths: list[str]) -> None:
    """Raise OptionError for a file that has another column under the name of one, or one under another name.

    Files are opened only where the table ever had a column under two names, or two under one.
    """
    now = {field.name: field.field_id for field in table.schema().fields}
    ever = {(field.name, field.field_id) for schema in table.metadata.schemas for field in schema.fields}
    moved = {name for name, number in ever if now.get(name, number) != number}
    moved |= {name for name, number in now.items() if any(n == number and other != name for other, n in ever)}
    for path in paths if moved else ():
        with storage.storage_of(path).open(path) as raw, pq.ParquetFile(raw) as parquet:
            fields = list(parquet.schema_arrow)
        found = {field.name: int(field.metadata[FIELD_ID]) for field in fields if FIELD_ID in (field.metadata or {})}
        for name in sorted(moved):
            if found.get(name, now[name]) != now[name] or (name not in found and now[name] in found.values()):
                raise OptionError(
                    f"--input {pattern}: the column {name} of the table is another one in {path}; rewrite the table's "
                    "data files (rewrite_data_files)"
                )
