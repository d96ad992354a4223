"""The data files of a table of Iceberg, without loading its rows."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, cite, first_line
from sentence_beam.transforms.corpus.lake_parts import (
    ICEBERG,
    LakePart,
    filter_paths,
    find_local_path,
    list_latest,
)

METADATA = ".metadata.json"
FIELD_ID = b"PARQUET:field_id"


def open_iceberg(pattern: str, version: int | None) -> Any:
    """Open an Iceberg table. Raises OptionError if it does not have the version."""
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
        raise _make_error(pattern, error) from error
    _check_snapshot(pattern, table, version)
    return table


def _make_error(pattern: str, error: Exception) -> OptionError:
    return OptionError(
        f"{cite('input')} {pattern}: no Iceberg table can be read there ({first_line(error)});"
        f" write {ICEBERG}CATALOG.NAMESPACE.TABLE with a catalog of .pyiceberg.yaml, or"
        f" {ICEBERG}PATH{METADATA}"
    )


def list_iceberg_files(pattern: str, part: LakePart) -> tuple[str, list[str]]:
    """Return the folder and the data files of an Iceberg table."""
    table = open_iceberg(pattern, part.version)
    snapshot_id = part.version
    current = table.current_snapshot()
    if current is not None and current.snapshot_id == part.version:
        snapshot_id = None  # a scan of the current snapshot has the table's current columns
    scan = table.scan(snapshot_id=snapshot_id)
    try:
        tasks = list(scan.plan_files())
    except (OSError, ValueError, NotImplementedError) as error:
        # planning fails for equality deletes
        _check_equality_deletes(pattern, table, scan.snapshot())
        raise _make_error(pattern, error) from error
    if part.filter is not None:
        partitions = _read_partitions(table, [task.file for task in tasks])
        paths = [find_local_path(task.file.file_path) for task in tasks]
        filtered = set(filter_paths(pattern, paths, partitions, part.filter))
        tasks = [task for task in tasks if find_local_path(task.file.file_path) in filtered]
    _check_deletes(pattern, tasks)
    paths = [find_local_path(task.file.file_path) for task in tasks]
    _check_names(pattern, table, scan.projection(), paths)
    return find_local_path(table.location()).rstrip("/"), paths


def _check_deletes(pattern: str, tasks: list[Any]) -> None:
    """Raise OptionError if rows are deleted by position, in deletion vectors or delete files."""
    for task in tasks:
        for file in task.delete_files:
            kind = "positional deletes"
            if file.file_format.value == "PUFFIN":
                kind = "deletion vectors"
            raise _make_deletes_error(pattern, f"{kind} ({find_local_path(file.file_path)})")


def _check_equality_deletes(pattern: str, table: Any, snapshot: Any) -> None:
    """Raise OptionError if a snapshot of Iceberg deletes rows by their values."""
    from pyiceberg.manifest import DataFileContent, ManifestContent

    for manifest in snapshot.manifests(table.io):
        if manifest.content != ManifestContent.DELETES:
            continue
        for entry in manifest.fetch_manifest_entry(table.io):
            if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
                raise _make_deletes_error(
                    pattern, f"equality deletes ({find_local_path(entry.data_file.file_path)})"
                )


def _make_deletes_error(pattern: str, by: str) -> OptionError:
    return OptionError(
        f"{cite('input')} {pattern}: rows are deleted by {by}, which are not read; rewrite the"
        " table's data files (CALL system.rewrite_data_files with the option delete-file-threshold"
        " 1)"
    )


def _check_snapshot(pattern: str, table: Any, version: int | None) -> None:
    """Raise OptionError if an Iceberg table does not have a snapshot."""
    if version is None or table.snapshot_by_id(version) is not None:
        return
    snapshots = sorted(table.snapshots(), key=lambda snapshot: snapshot.timestamp_ms)
    described = []
    for snapshot in snapshots:
        moment = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
        described.append(f"{snapshot.snapshot_id} ({moment:%Y-%m-%d %H:%M} UTC)")
    raise OptionError(
        f"{cite('input_version')} {version}: {pattern} has no such snapshot;"
        f" {list_latest(described)}"
    )


def _read_partitions(table: Any, files: list[Any]) -> pa.Table:
    """Return the partition of each data file, with a column for each field that all files have."""
    from pyiceberg.schema import index_by_id

    sources = {}
    for schema in table.metadata.schemas:
        sources.update(index_by_id(schema))
    specs = {file.spec_id: table.specs()[file.spec_id].fields for file in files}
    places = {}
    for number, spec_fields in specs.items():
        places[number] = {field.field_id: place for place, field in enumerate(spec_fields)}
    fields = specs[max(specs)] if specs else table.spec().fields
    columns = {}
    for field in fields:
        kind = _read_partition_type(field, sources[field.source_id])
        everywhere = all(field.field_id in place for place in places.values())
        if everywhere and kind is not None:
            values = [file.partition[places[file.spec_id][field.field_id]] for file in files]
            columns[field.name] = pa.array(values, kind)
    return pa.table(columns)


def _read_partition_type(field: Any, source: Any) -> pa.DataType | None:
    """Return the Arrow type of a partition field; None if a filter cannot compare its values."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    kind = schema_to_pyarrow(field.transform.result_type(source.field_type))
    if str(field.transform) == "void" or isinstance(kind, pa.BaseExtensionType):
        return None
    return pa.string() if pa.types.is_large_string(kind) else kind


def _check_names(pattern: str, table: Any, schema: Any, paths: list[str]) -> None:
    """Raise OptionError if a file has a column under another name than the table's snapshot.

    `schema` is the snapshot's. Files are opened only if the table ever renamed a column, or gave a
    name to another one.
    """
    ids = {field.name: field.field_id for field in schema.fields}
    moved = sorted(_find_moved_names(table, ids))
    if not moved:
        return
    for path in paths:
        ids_in_file = _read_column_ids(path)
        for name in moved:
            is_other = ids_in_file.get(name, ids[name]) != ids[name]
            is_renamed = name not in ids_in_file and ids[name] in ids_in_file.values()
            if is_other or is_renamed:
                raise OptionError(
                    f"{cite('input')} {pattern}: the column {name} of the table is another one in"
                    f" {path}; rewrite the table's data files (rewrite_data_files)"
                )


def _find_moved_names(table: Any, ids: dict[str, int]) -> set[str]:
    """Return the names of columns, with these ids now, that ever had another id or another name."""
    moved = set()
    for schema in table.metadata.schemas:
        for field in schema.fields:
            if ids.get(field.name, field.field_id) != field.field_id:
                moved.add(field.name)
            for name, number in ids.items():
                if number == field.field_id and name != field.name:
                    moved.add(name)
    return moved


def _read_column_ids(path: str) -> dict[str, int]:
    """Return the Iceberg ids of a Parquet file's columns by name."""
    with storage.storage_of(path).open(path) as raw, pq.ParquetFile(raw) as parquet:
        fields = list(parquet.schema_arrow)
    return {
        field.name: int(field.metadata[FIELD_ID])
        for field in fields
        if FIELD_ID in (field.metadata or {})
    }
