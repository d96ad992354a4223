"""Renamed files: their units are carried over from the last snapshot under the new name."""

from dataclasses import replace

from sentence_beam.transforms.corpus import Columns, InputFile
from sentence_beam.transforms.corpus.formats.registry import compression_of
from sentence_beam.transforms.corpus.path_values import some_values
from sentence_beam.transforms.store.entries import InputEntry
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.carried import CarriedShards
from sentence_beam.transforms.store.runs.plan import PlannedFile

Units = list[UnitRecord]


def carry_renamed(
    planned: list[PlannedFile], manifest: Manifest, shards: CarriedShards, columns: Columns
) -> list[PlannedFile]:
    """Return the plan with the units of renamed files carried over.

    Only for rows whose ids are not made from their file's name. The units of a file go to one file;
    a copy of it is read, since no two units may share a shard. A file whose path has another value
    in one of the `columns` is read too.
    """
    names = columns.path_names
    taken = {item.file.relative for item in planned if item.carried}
    found = list(planned)
    free: dict[tuple[object, ...], list[tuple[InputEntry, Units]]] = {}
    for file in manifest.files:
        known = manifest.units_by_file.get(file.path, [])
        if known and file.path not in taken and all(map(shards, known)):
            free.setdefault(rows_of_entry(file, names), []).append((file, known))
    for place, item in enumerate(planned):
        if item.spans:
            found[place] = _renamed(item, free, shards, names)
    return found


def content_of(path: str, file_format: str, size: int, checksum: str) -> tuple[object, ...]:
    """Return marks that are equal for two files with the same bytes and format.

    The name tells how a text file is compressed.
    """
    return file_format, compression_of(path, file_format), size, checksum


def rows_of_entry(entry: InputEntry, names: list[str]) -> tuple[object, ...]:
    """Return marks that are equal for two files with the same rows in the named columns.

    The path may have some of these columns.
    """
    content = content_of(entry.path, entry.format, entry.size, entry.checksum)
    return (*content, some_values(entry.source, names))


def rows_of_file(file: InputFile, names: list[str]) -> tuple[object, ...]:
    """Return the marks of `rows_of_entry` for a file of this run."""
    content = content_of(file.relative, file.format, file.size, file.checksum)
    return (*content, some_values(file.path, names))


def _renamed(
    item: PlannedFile,
    free: dict[tuple[object, ...], list[tuple[InputEntry, Units]]],
    shards: CarriedShards,
    names: list[str],
) -> PlannedFile:
    file = item.file
    known = free.get(rows_of_file(file, names))
    if not known:
        return item
    entry, units = known.pop(0)
    carried = tuple(under(file, shards.current(unit)) for unit in units)
    checked = item.checked.merge(shards.check(units))
    file = replace(file, cut=entry.cut)
    return replace(item, file=file, spans=(), carried=carried, checked=checked, was=entry.path)


def under(file: InputFile, unit: UnitRecord) -> UnitRecord:
    """Return the unit under the name that it has in this file; its shard keeps its own."""
    return replace(unit, unit=file.key + unit.unit[len(file.key) :], file=file.relative)


def of_files_read(planned: list[PlannedFile]) -> list[PlannedFile]:
    """Return the carried files with a shard that is named after a file which this run reads.

    The run could write over that shard, so these files are read too, and their rows move to shards
    of their own.
    """
    read = {item.file.key for item in planned if item.spans}
    return [
        item
        for item in planned
        if any(_named_after(unit) in read - {item.file.key} for unit in item.carried)
    ]


def is_named_after(unit: UnitRecord, file: InputFile) -> bool:
    """Return whether a unit has no shard, or one that is named after this file."""
    return _named_after(unit) in ("", file.key)


def _named_after(unit: UnitRecord) -> str:
    """Return the key of the file that a unit's shard is named after."""
    return (unit.path or "").rpartition("/")[2].partition("-")[0]
