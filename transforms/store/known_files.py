"""The files of a snapshot in a range of keys, from those parts of its manifest that have them."""

from dataclasses import dataclass
from typing import Any

from transforms.store.entries import InputEntry
from transforms.store.key_range import KeyRange
from transforms.store.manifest import Manifest
from transforms.store.manifest_parts import may_have, read_parts
from transforms.store.records import UnitRecord, by_file


@dataclass(frozen=True)
class KnownFiles:
    """Some files of a snapshot, and the units of their own, by relative path."""

    files_by_path: dict[str, InputEntry]
    units_by_file: dict[str, list[UnitRecord]]


def has_ranges(last: Manifest) -> bool:
    """Return whether a manifest is in parts that say which files they have."""
    return bool(last.parts) and all(part.files is not None for part in last.parts)


def known_files(last: Manifest, keys: KeyRange) -> KnownFiles:
    """Return the files of a snapshot with these keys; other parts of its manifest are not read.

    A manifest in one file, or by an earlier version, is read as a whole. Raises SentenceBeamError
    for an entry that is no unit's record, and for a missing or damaged part.
    """
    if keys.is_all or not has_ranges(last):
        return KnownFiles(last.files_by_path, last.units_by_file)
    files: dict[str, InputEntry] = {}
    units: list[UnitRecord] = []
    for part in read_parts(last.root, [part for part in last.parts if may_have(part, keys)]):
        files |= {file.path: file for file in part.files if keys.has_file(file.path)}
        units += last.records(unit for unit in part.shards if _is_of_file(unit, keys))
    return KnownFiles(files, by_file(sorted(units, key=lambda unit: unit.unit)))


def _is_of_file(unit: dict[str, Any], keys: KeyRange) -> bool:
    """Return whether the JSON of a unit is that of a single file's, with one of these keys."""
    return bool(unit.get("file")) and keys.has(str(unit.get("unit")))
