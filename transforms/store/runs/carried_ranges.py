"""Carried units on their way to Settle: as ranges of keys, whose units workers read and pack.

One process makes the plan. Packing the records of a million units there would take 40 s.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sentence_beam.transforms.corpus.files import key_of
from sentence_beam.transforms.store.key_range import ALL_KEYS, KeyRange
from sentence_beam.transforms.store.known_files import has_ranges, known_files
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.manifest_parts import starts_of
from sentence_beam.transforms.store.records import UnitRecord, by_file, carried

UNITS_IN_A_RANGE = 2_000


@dataclass(frozen=True)
class CarriedRange:
    """All units of the last snapshot's files with these keys, except the files `but`."""

    keys: KeyRange
    but: frozenset[str] = frozenset()


def by_ranges(
    units: Iterable[UnitRecord], last: Manifest | None
) -> Iterator[UnitRecord | CarriedRange]:
    """Yield units to carry over, those of a file that is as in the last snapshot by ranges.

    Units of other files and of groups come one by one, and so do all if the manifest is in one
    file, which each worker would read as a whole.
    """
    found = list(units)
    # without units the snapshot may be unreadable
    if not found or last is None or not has_ranges(last):
        yield from map(carried, found)
        return
    units_of = by_file(found)
    same = {path for path, known in last.units_by_file.items() if units_of.get(path) == known}
    yield from (carried(unit) for unit in found if unit.file not in same)
    yield from cut_ranges(
        {path: len(last.units_by_file[path]) for path in same},
        last.units_by_file.keys() - same,
        starts=starts_of(last.parts),
    )


def cut_ranges(
    units: Mapping[str, int],
    but: Collection[str],
    keys: KeyRange = ALL_KEYS,
    starts: Sequence[str] = (),
) -> Iterator[CarriedRange]:
    """Yield ranges within `keys` that have the units of some files and no others.

    `units` are the numbers of units of these files, by relative path; `but` are the snapshot's
    other files with these keys. `starts` are keys at which a range should begin, sorted: those of
    the manifest's parts, so that a part is read for one range.
    """
    low = keys.low
    others: list[str] = []
    count = 0
    before = 0
    for key, path in sorted((key_of(path), path) for path in (*units, *but)):
        begun = bisect_right(starts, key)
        least = UNITS_IN_A_RANGE
        if begun > before:
            least = UNITS_IN_A_RANGE // 2
        before = begun
        if count >= least and key > low:
            yield CarriedRange(KeyRange(low, key), frozenset(others))
            low = key
            others = []
            count = 0
        if path in units:
            count += units[path]
        else:
            others.append(path)
    if count:
        yield CarriedRange(KeyRange(low, keys.high), frozenset(others))


def units_of_range(found: CarriedRange, last: Manifest) -> Iterator[UnitRecord]:
    """Yield the units of a range. Raises SentenceBeamError for a damaged part of the manifest."""
    for path, units in known_files(last, found.keys).units_by_file.items():
        if path not in found.but:
            yield from map(carried, units)
