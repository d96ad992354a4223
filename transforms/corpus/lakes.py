"""Tables of Iceberg and Delta Lake as input: the data files of a snapshot, the current one unless
another is asked for.

Files of a snapshot never change, so that those which the next snapshot has too are carried over
unread. Rows that a table has deleted apart from its files, and columns that files have under other
names, are refused.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from transforms import storage
from transforms.base.errors import MissingExtraError, OptionError, SentenceBeamError, first_line
from transforms.base.extras import pip_line
from transforms.base.where import Words, checked, evaluated
from transforms.storage.base import Entry

ICEBERG, DELTA = "iceberg:", "delta:"
METADATA = ".metadata.json"
DELTA_LOG, FOLDER = "_delta_log", "metadata"  # folders of a table that say which files it has
DATA_FORMATS = ("parquet", "orc", "avro")
_LOG_FILE = re.compile(r"[0-9]{20}\.(?:.*\.)?(?:json|parquet)")
_METADATA_FILE = re.compile(r"(?:v([0-9]+)|([0-9]+)-[0-9a-f-]{36})(?:\.gz)?\.metadata\.json")
FIELD_ID = b"PARQUET:field_id"
NAMED = 5  # versions of a table that a message names


@dataclass(frozen=True)
class TablePart:
    """What is taken of a table: its current version or another, all of its partitions or those that
    a filter wants.

    `version` is a version of Delta Lake, or the id of a snapshot of Iceberg.
    """

    version: int | None = None
    filter: str | None = None


WHOLE = TablePart()


def is_table(pattern: str) -> bool:
    """Whether an `--input` names a table and no files."""
    return pattern.startswith((ICEBERG, DELTA))


def input_of_table(folder: str) -> str | None:
    """The `--input` that reads a folder as the table of Delta Lake or Iceberg that it is; None for
    another folder.
    """
    if any(_LOG_FILE.fullmatch(name) for name in _names_in(f"{folder}/{DELTA_LOG}")):
        return f"{DELTA}{folder}"
    numbers = {
        name: found
        for name in _names_in(f"{folder}/{FOLDER}")
        if (found := _METADATA_FILE.fullmatch(name))
    }
    if not numbers:
        return None
    latest = max(numbers, key=lambda name: int(numbers[name][1] or numbers[name][2]))
    return f"{ICEBERG}{folder}/{FOLDER}/{latest}"


def _names_in(folder: str) -> list[str]:
    return [
        entry.path.removeprefix(f"{folder}/") for entry in storage.storage_of(folder).below(folder)
    ]


def absolute_input(pattern: str) -> str:
    """An `--input` as workers see it: what it has of a local path is absolute."""
    if not is_table(pattern):
        return storage.absolute(pattern)
    kind, _, name = pattern.partition(":")
    return (
        f"{kind}:{storage.absolute(name)}"
        if kind == "delta" or name.endswith(METADATA)
        else pattern
    )


def table_entries(pattern: str, part: TablePart = WHOLE) -> Iterator[tuple[Entry, str]]:
    """(entry, path relative to the table) of each data file of a part of a table, sorted by path.

    Raises OptionError for a table or a part that is not there, or whose files do not hold its rows
    as they are.
    """
    with _installed(pattern):
        root, paths = (
            _delta_files(pattern, part)
            if pattern.startswith(DELTA)
            else _iceberg_files(pattern, part)
        )
    if not paths and part.filter is not None:
        raise OptionError(
            f"--input-filter: no data file of {pattern} is in a partition with {part.filter}"
        )
    if not paths:
        raise _empty(pattern)
    store = storage.storage_of(root)
    # in one request
    listed = {} if storage.is_local(root) else {entry.path: entry for entry in store.below(root)}
    for path in sorted(paths):
        entry = listed.get(path) or store.stat(path)
        if entry is None:
            mend = "restore it, repair the table, or take a later --input-version"
            raise SentenceBeamError(f"{path} is missing, a file of --input {pattern}; {mend}")
        yield entry, path.removeprefix(f"{root}/")


def version_of(pattern: str, asked: int | None = None) -> int:
    """The version of a table that is read: that asked for, else the current one.

    Raises OptionError for a table or a version that is not there.
    """
    with _installed(pattern):
        if pattern.startswith(DELTA):
            return int(_delta_table(pattern, asked).version())
        current = _iceberg_table(pattern, asked).current_snapshot()
    if asked is None and current is None:
        raise _empty(pattern)
    return asked if asked is not None else int(current.snapshot_id)


@contextlib.contextmanager
def _installed(pattern: str) -> Iterator[None]:
    """Raises MissingExtraError where the package that reads a table is missing."""
    try:
        yield
    except ImportError as error:
        module = (error.name or "a package").partition(".")[0]
        raise MissingExtraError(
            f"--input {pattern} needs {module}, which is not installed; {pip_line('iceberg')}"
        ) from error


def _empty(pattern: str) -> OptionError:
    return OptionError(f"--input {pattern}: the table has no data file; check the name")


def _delta_table(pattern: str, version: int | None) -> Any:
    """A Delta table as it was in a version."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(storage.absolute(pattern.removeprefix(DELTA)))
        if version is not None:
            _load_version(pattern, table, version)
        return table
    except (DeltaError, OSError) as error:
        raise OptionError(
            f"--input {pattern}: no Delta table can be read there ({first_line(error)}); check the"
            " path"
        ) from error


def _delta_files(pattern: str, part: TablePart) -> tuple[str, list[str]]:
    """The folder and the data files of a Delta table."""
    root, table = storage.absolute(pattern.removeprefix(DELTA)), _delta_table(pattern, part.version)
    metadata = table.metadata()
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        raise OptionError(
            f"--input {pattern}: its files have its columns under other names"
            " (delta.columnMapping.mode); copy it into a table without"
        )
    files = pa.table(table.get_add_actions(flatten=True))
    paths = [_path_in(root, path) for path in files.column("path").to_pylist()]
    if part.filter is not None:
        values = {name: files.column(f"partition.{name}") for name in metadata.partition_columns}
        paths = _wanted(pattern, paths, pa.table(values), part.filter)
    if "deletionVectors" in (table.protocol().reader_features or []):
        _check_vectors(pattern, table, paths)
    return root, paths


def _path_in(root: str, path: str) -> str:
    """The path or URL of a data file of the Delta table in a folder, by its path as the table's log
    has it.

    The log's paths are encoded once as in a URL, and relative to the table, or whole URLs of the
    files of a clone.
    """
    decoded = unquote(path)
    return _path(decoded) if "://" in decoded else f"{root}/{decoded}"


def _check_vectors(pattern: str, table: Any, paths: list[str]) -> None:
    """Raise OptionError for a file of a Delta table that has rows deleted by a deletion vector."""
    wanted = set(paths)
    for batch in table.deletion_vectors():
        for uri in pa.record_batch(batch).column("filepath").to_pylist():
            if _path(unquote(uri)) in wanted or _path(uri) in wanted:
                raise OptionError(
                    f"--input {pattern}: rows of {_path(unquote(uri))} are deleted by a deletion"
                    " vector, which is not read; rewrite the files that have one (REORG TABLE ..."
                    " APPLY (PURGE))"
                )


def _load_version(pattern: str, table: Any, version: int) -> None:
    """Make a Delta table what it was in a version. Raises OptionError for one that it has not."""
    from deltalake.exceptions import DeltaError

    try:
        table.load_as_version(version)
    except DeltaError as error:
        there = sorted(commit["version"] for commit in table.history())
        if version in there:
            raise
        raise OptionError(
            f"--input-version {version}: {pattern} has no such version; {_latest(there)}"
        ) from error


def _iceberg_table(pattern: str, version: int | None) -> Any:
    """An Iceberg table that has a version."""
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
    except (NoSuchTableError, NoSuchNamespaceError, OSError, ValueError) as error:
        raise _no_iceberg(pattern, error) from error
    _check_snapshot(pattern, table, version)
    return table


def _no_iceberg(pattern: str, error: Exception) -> OptionError:
    return OptionError(
        f"--input {pattern}: no Iceberg table can be read there ({first_line(error)}); write"
        f" {ICEBERG}CATALOG.NAMESPACE.TABLE with a catalog of .pyiceberg.yaml, or"
        f" {ICEBERG}PATH{METADATA}"
    )


def _iceberg_files(pattern: str, part: TablePart) -> tuple[str, list[str]]:
    """The folder and the data files of an Iceberg table."""
    table = _iceberg_table(pattern, part.version)
    current = table.current_snapshot()
    # then with the columns of today
    is_current = current is not None and current.snapshot_id == part.version
    scan = table.scan(snapshot_id=None if is_current else part.version)
    try:
        tasks = list(scan.plan_files())
    except (OSError, ValueError, NotImplementedError) as error:
        # which the planning itself does not take
        _check_equality_deletes(pattern, table, scan.snapshot())
        raise _no_iceberg(pattern, error) from error
    if part.filter is not None:
        partitions = _iceberg_partitions(table, [task.file for task in tasks])
        wanted = set(
            _wanted(
                pattern, [_path(task.file.file_path) for task in tasks], partitions, part.filter
            )
        )
        tasks = [task for task in tasks if _path(task.file.file_path) in wanted]
    for file in (file for task in tasks for file in task.delete_files):
        kind = "deletion vectors" if file.file_format.value == "PUFFIN" else "positional deletes"
        raise _deleted(pattern, f"{kind} ({_path(file.file_path)})")
    paths = [_path(task.file.file_path) for task in tasks]
    _check_names(pattern, table, scan.projection(), paths)
    return _path(table.location()).rstrip("/"), paths


def _check_equality_deletes(pattern: str, table: Any, snapshot: Any) -> None:
    """Raise OptionError for a snapshot of Iceberg that deletes rows by values of theirs."""
    from pyiceberg.manifest import DataFileContent, ManifestContent

    for manifest in snapshot.manifests(table.io):
        for entry in (
            manifest.fetch_manifest_entry(table.io)
            if manifest.content == ManifestContent.DELETES
            else ()
        ):
            if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
                raise _deleted(pattern, f"equality deletes ({_path(entry.data_file.file_path)})")


def _deleted(pattern: str, by: str) -> OptionError:
    return OptionError(
        f"--input {pattern}: rows are deleted by {by}, which are not read; rewrite the table's data"
        " files (CALL system.rewrite_data_files with the option delete-file-threshold 1)"
    )


def _check_snapshot(pattern: str, table: Any, version: int | None) -> None:
    """Raise OptionError for a snapshot that an Iceberg table has not."""
    if version is None or table.snapshot_by_id(version) is not None:
        return
    taken = sorted(table.snapshots(), key=lambda snapshot: snapshot.timestamp_ms)
    there = [
        f"{snapshot.snapshot_id}"
        f" ({datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC)"
        for snapshot in taken
    ]
    raise OptionError(
        f"--input-version {version}: {pattern} has no such snapshot; {_latest(there)}"
    )


def _latest(versions: Sequence[object]) -> str:
    """Which versions of a table there are, the last of them by name."""
    if not versions:
        return "it has none"
    earlier = len(versions) - NAMED
    return f"it has {', '.join(map(str, versions[-NAMED:]))}" + (
        f" and {earlier:,} earlier ones" if earlier > 0 else ""
    )


def _iceberg_partitions(table: Any, files: list[Any]) -> pa.Table:
    """The partition of each data file: a column a field that all of the files are partitioned
    by.
    """
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.schema import index_by_id

    sources = {
        number: field
        for schema in table.metadata.schemas
        for number, field in index_by_id(schema).items()
    }
    specs = {file.spec_id: table.specs()[file.spec_id].fields for file in files}
    places = {
        number: {field.field_id: at for at, field in enumerate(fields)}
        for number, fields in specs.items()
    }
    columns = {}
    for field in table.spec().fields if not specs else specs[max(specs)]:
        kind = schema_to_pyarrow(field.transform.result_type(sources[field.source_id].field_type))
        kind = pa.string() if pa.types.is_large_string(kind) else kind
        everywhere = all(field.field_id in place for place in places.values())
        if (
            everywhere
            and str(field.transform) != "void"
            and not isinstance(kind, pa.BaseExtensionType)
        ):
            values = [file.partition[places[file.spec_id][field.field_id]] for file in files]
            columns[field.name] = pa.array(values, kind)
    return pa.table(columns)


def _wanted(pattern: str, paths: list[str], partitions: pa.Table, filter_: str) -> list[str]:
    """The files, a row of `partitions` each, that a filter wants. Raises OptionError for one that
    cannot be used.
    """
    if not partitions.num_columns:
        raise OptionError(
            f"--input-filter: the files of {pattern} are not partitioned by a column; leave it out"
        )
    words = Words("--input-filter", "partition column", f"{pattern} is partitioned by")
    wanted = evaluated(checked(filter_, partitions.schema, words), partitions).to_pylist()
    return [path for path, is_wanted in zip(paths, wanted, strict=True) if is_wanted]


def _path(uri: str) -> str:
    """The path or URL by which a file is opened here."""
    return uri.removeprefix("file://").replace("s3a://", "s3://", 1)


def _check_names(pattern: str, table: Any, schema: Any, paths: list[str]) -> None:
    """Raise OptionError for a file that has another column under the name of one, or one under
    another name.

    `schema` is that of the table's snapshot. Files are opened only where the table ever had a
    column under two names, or two under one.
    """
    now = {field.name: field.field_id for field in schema.fields}
    ever = {
        (field.name, field.field_id) for schema in table.metadata.schemas for field in schema.fields
    }
    moved = {name for name, number in ever if now.get(name, number) != number}
    moved |= {
        name
        for name, number in now.items()
        if any(n == number and other != name for other, n in ever)
    }
    for path in paths if moved else ():
        with storage.storage_of(path).open(path) as raw, pq.ParquetFile(raw) as parquet:
            fields = list(parquet.schema_arrow)
        found = {
            field.name: int(field.metadata[FIELD_ID])
            for field in fields
            if FIELD_ID in (field.metadata or {})
        }
        for name in sorted(moved):
            if found.get(name, now[name]) != now[name] or (
                name not in found and now[name] in found.values()
            ):
                raise OptionError(
                    f"--input {pattern}: the column {name} of the table is another one in {path};"
                    " rewrite the table's data files (rewrite_data_files)"
                )
