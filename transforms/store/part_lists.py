"""Units and files of the parts of a manifest; snapshots may share those of parts that both have."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sentence_beam.transforms.store import manifest_parts
from sentence_beam.transforms.store.entries import InputEntry, PartEntry
from sentence_beam.transforms.store.manifest_parts import PARTS_AT_ONCE
from sentence_beam.transforms.store.records import UnitRecord

Lists = tuple[list[UnitRecord], tuple[InputEntry, ...]]
Records = Callable[[Iterable[dict[str, Any]]], list[UnitRecord]]


def read_lists(
    root: str, parts: Sequence[PartEntry], records: Records, known: Mapping[str, Lists]
) -> dict[str, Lists]:
    """Return the units and files of each part, by its sha256; `known` parts are not read.

    Raises SentenceBeamError for a part that is not as written.
    """

    def lists_of(entry: PartEntry) -> Lists:
        if entry.sha256 in known:
            return known[entry.sha256]
        part = manifest_parts.read_part(root, entry)
        return records(part.shards), part.files

    with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
        found = pool.map(lists_of, parts)
        return {part.sha256: lists for part, lists in zip(parts, found, strict=True)}


def in_order(lists: Iterable[Lists]) -> tuple[list[UnitRecord], list[InputEntry]]:
    """Return all units by name, and all files by path."""
    every = list(lists)
    units = [unit for of_part, _ in every for unit in of_part]
    files = [file for _, named in every for file in named]
    return sorted(units, key=lambda unit: unit.unit), sorted(files, key=lambda file: file.path)
