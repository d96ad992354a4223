"""The files of a snapshot in a range of keys, from those parts of its manifest that have them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sentence_beam.transforms.corpus.files import key_of
from sentence_beam.transforms.corpus.groups import bits_of
from sentence_beam.transforms.store.entries import InputEntry, PartEntry
from sentence_beam.transforms.store.key_range import AFTER, KeyRange
from sentence_beam.transforms.store.manifest import Manifest, with_units
from sentence_beam.transforms.store.manifest_parts import may_have, read_parts
from sentence_beam.transforms.store.records import UnitRecord, by_file


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
        units += last.records(_units_of_files(part.shards, keys))
    return KnownFiles(files, by_file(sorted(units, key=lambda unit: unit.unit)))


def _units_of_files(units: Iterable[dict[str, Any]], keys: KeyRange) -> list[dict[str, Any]]:
    """Return those units, as JSON, that single files with these keys have."""
    low = keys.low
    high = keys.high or AFTER
    # compared here, since a part has thousands of units for a few of one range
    return [unit for unit in units if low <= str(unit.get("unit")) < high and unit.get("file")]


def with_files(last: Manifest, paths: Collection[str]) -> Manifest:
    """Return a snapshot with these files alone, their units, and the units of groups.

    Parts of its manifest that have none of them are not read.
    """
    keys = np.sort(np.array([key_of(path) for path in paths], "U16"))
    parts = [part for part in last.parts if _has_group(part) or _may_have_one(part, keys)]
    units: list[UnitRecord] = []
    files: list[InputEntry] = []
    for part in read_parts(last.root, parts):
        files += [file for file in part.files if file.path in paths]
        units += last.records(
            unit for unit in part.shards if not unit.get("file") or unit["file"] in paths
        )
    return with_units(last, units, sorted(files, key=lambda file: file.path))


def with_files_like(last: Manifest, paths: Collection[str], checksums: Collection[str]) -> Manifest:
    """Return a snapshot as `with_files`, with all files of these names or checksums.

    A manifest in one file, or by an earlier version, is returned as it is.
    """
    if not has_ranges(last):
        return last
    like = {
        file.path
        for part in read_parts(last.root, last.parts)
        for file in part.files
        if file.path in paths or file.checksum in checksums
    }
    return with_files(last, like)


def _has_group(part: PartEntry) -> bool:
    return part.units > 0 and bits_of(part.first) is not None


def _may_have_one(part: PartEntry, keys: np.ndarray) -> bool:
    """Whether a part may have a file with one of these keys, sorted, or a unit of such a file."""
    bounds = []
    if part.files:
        bounds.append((part.first_file, part.last_file))
    if part.units:
        bounds.append((part.first.partition("-")[0], part.last.partition("-")[0]))
    return any(
        np.searchsorted(keys, first) < np.searchsorted(keys, last, side="right")
        for first, last in bounds
    )
