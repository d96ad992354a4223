"""Carried units of a plan on record, as an earlier attempt of the run handed them out."""

from collections import Counter
from collections.abc import Iterator, Sequence

from transforms.store.known_files import has_ranges
from transforms.store.ledger import span_name
from transforms.store.manifest import Manifest
from transforms.store.manifest_parts import read_parts, starts_of
from transforms.store.records import UnitRecord, carried
from transforms.store.runs.carried_ranges import CarriedRange, cut_ranges
from transforms.store.runs.carry import under
from transforms.store.runs.plan_work import CarriedSpan


def carried_again(
    spans: Sequence[CarriedSpan], last: Manifest
) -> Iterator[UnitRecord | CarriedRange]:
    """Yield the units of carried spans: those of unchanged files by ranges, others one by one.

    A manifest in parts is read part by part, so that its units are never all in memory.
    """
    named = {span.name for span in spans if span.was is None}
    same = {span.file.relative for span in spans if span.was is None}
    renamed = {span.was: span.file for span in spans if span.was is not None}
    if not has_ranges(last):
        same = set()
    counts: Counter[str] = Counter()
    others = set()
    for units in _units_by_parts(last):
        for unit in units:
            if unit.file and unit.file in same:
                counts[unit.file] += 1
                continue
            others.add(unit.file)
            if span_name(unit.unit) in named:
                yield carried(unit)
            elif unit.file in renamed:
                yield carried(under(renamed[unit.file], unit))
    yield from cut_ranges(counts, others - {""}, starts=starts_of(last.parts))


def _units_by_parts(last: Manifest) -> Iterator[list[UnitRecord]]:
    if not last.parts:
        yield last.units
    for part in read_parts(last.root, last.parts):
        yield last.records(part.shards)
