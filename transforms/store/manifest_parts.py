"""The parts of a manifest with very many units: files named by their sha256."""

import hashlib
import itertools
import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeVar

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.corpus.files import key_of
from sentence_beam.transforms.corpus.groups import bits_of
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import InputEntry, ManifestPart, PartEntry
from sentence_beam.transforms.store.key_range import AFTER, KeyRange
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.sealed_json import to_bytes

T = TypeVar("T")


UNITS_IN_A_PART = 2_000  # a megabyte, so that a worker finds one unit in a fiftieth of a second
PARTS_AT_ONCE = 8  # read or written, since storage may be far away
PARTS_HELD = 8  # in a process that looks for single units


def read_parts(root: str, parts: Iterable[PartEntry]) -> Iterator[ManifestPart]:
    """Yield the content of parts of a manifest, in their order.

    Raises SentenceBeamError for a part that is not as written.
    """
    wanted = list(parts)
    if len(wanted) == 1:  # starting a thread takes as long as reading some units
        yield read_part(root, wanted[0])
        return
    waiting = iter(wanted)
    # a pool of all parts would read on, however slowly they are used
    with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
        while some := list(itertools.islice(waiting, PARTS_AT_ONCE)):
            yield from pool.map(partial(read_part, root), some)


def read_part(root: str, part: PartEntry) -> ManifestPart:
    """Read a part. Raises SentenceBeamError if it is missing or its sha256 differs."""
    path = storage.join(root, part.path)
    found = storage.storage_of(path).read_versioned(path)
    if found is None:
        raise SentenceBeamError(f"{path} is missing, a part of the manifest; restore it")
    if hashlib.sha256(found[0]).hexdigest() != part.sha256:
        raise SentenceBeamError(
            f"{path} is not the part that the manifest names (sha256 differs); restore it"
        )
    with refuse_damage(f"{path} is no part of a manifest", "restore it"):
        return ManifestPart.from_json(json.loads(found[0]))


@lru_cache(PARTS_HELD)
def units_of_part(root: str, part: PartEntry) -> tuple[list[str], list[dict[str, Any]]]:
    """The names of a part's units, sorted, and their JSON."""
    units = sorted(read_part(root, part).shards, key=lambda unit: str(unit.get("unit")))
    return [str(unit.get("unit")) for unit in units], units


def units_named(listed: tuple[list[str], list[T]], name: str) -> list[T]:
    """Return the units with this name, or whose names continue it with `-` or `.`."""
    names, units = listed
    found = range(bisect_left(names, name), bisect_left(names, name + AFTER))
    return [
        units[place] for place in found if names[place][len(name) : len(name) + 1] in ("", "-", ".")
    ]


def write_parts(root: str, units: list[UnitRecord], files: list[InputEntry]) -> list[PartEntry]:
    """Write parts of a manifest with these units, in order of their names, and files.

    Returns no part if there are neither units nor files.
    """
    parts = list(_parts_of(units, sorted(files, key=lambda file: key_of(file.path))))
    with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
        return list(pool.map(partial(write_part, root), parts))


def _parts_of(units: list[UnitRecord], files: list[InputEntry]) -> Iterator[ManifestPart]:
    """Yield parts with these units, in order of their names, and files, in order of their keys.

    Groups of small files have parts of their own: their names lie among those of files, and the
    first and last name of a part should say what it has.
    """
    kinds = (
        list(found) for _, found in itertools.groupby(units, key=lambda unit: bits_of(unit.unit))
    )
    listed = [part for kind in kinds for part in _in_parts([unit.to_manifest() for unit in kind])]
    if any(_file_key(shards[0]) for shards in listed):
        yield from _with_files_beside(listed, files)
        return
    for shards, some in itertools.zip_longest(listed, _in_parts(files), fillvalue=()):
        yield ManifestPart(shards, some)


def _with_files_beside(
    listed: list[tuple[dict[str, Any], ...]], files: list[InputEntry]
) -> Iterator[ManifestPart]:
    """Yield parts with these units, and with the files from their first key to the next part's.

    So files and their own units are read at once. Further parts have the files that are too many.
    """
    keys = [key_of(file.path) for file in files]
    starts = [_file_key(shards[0]) for shards in listed]
    ends = [bisect_left(keys, start) for start in starts if start]
    slices = itertools.pairwise([0, *ends[1:], len(files)])
    for shards, start in zip(listed, starts, strict=True):
        beside: list[tuple[InputEntry, ...]] = []
        if start:
            beside = list(_in_parts(files[slice(*next(slices))]))
        yield ManifestPart(shards, *(beside[:1] or [()]))
        yield from (ManifestPart((), some) for some in beside[1:])


def _file_key(unit: dict[str, Any]) -> str:
    """Return the key of the file that has the unit alone, from its JSON; "" if none has."""
    if not unit.get("file"):
        return ""
    return str(unit["unit"]).partition("-")[0]


def starts_of(parts: Iterable[PartEntry]) -> list[str]:
    """Return the keys at which parts that have units of single files begin, sorted."""
    named = (part.first for part in parts if part.files is not None and part.units)
    return sorted({first.partition("-")[0] for first in named if bits_of(first) is None})


def _in_parts(items: list[T]) -> Iterator[tuple[T, ...]]:
    """Yield the items, in order, in tuples of about equal length."""
    count = -(-len(items) // UNITS_IN_A_PART)
    ends = []
    if count:
        ends = [len(items) * number // count for number in range(count + 1)]
    return (tuple(items[start:stop]) for start, stop in itertools.pairwise(ends))


def write_part(root: str, part: ManifestPart) -> PartEntry:
    """Write a part of a manifest, and return its entry."""
    data = to_bytes(part.to_json())
    sha256 = hashlib.sha256(data).hexdigest()
    storage.ensure(storage.join(root, layout.part(sha256)), data)
    entry = PartEntry(layout.part(sha256), sha256, len(part.shards), files=len(part.files))
    if part.shards:
        first, last = (part.shards[place]["unit"] for place in (0, -1))
        entry = replace(entry, first=first, last=last)
    if part.files:
        first, last = (key_of(part.files[place].path) for place in (0, -1))
        entry = replace(entry, first_file=first, last_file=last)
    return entry


def may_have(part: PartEntry, keys: KeyRange) -> bool:
    """Return whether a part may have units or files with these keys."""
    has_units = part.units > 0 and keys.meets(part.first, part.last)
    return has_units or (bool(part.files) and keys.meets(part.first_file, part.last_file))
