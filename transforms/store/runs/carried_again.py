"""Carried units of a plan on record, as an earlier attempt of the run handed them out."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.store.known_files import has_ranges
from sentence_beam.transforms.store.ledger import span_name
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.manifest_parts import read_parts, starts_of
from sentence_beam.transforms.store.records import UnitRecord, carried
from sentence_beam.transforms.store.runs.carried_ranges import CarriedRange, cut_ranges
from sentence_beam.transforms.store.runs.carry import under
from sentence_beam.transforms.store.runs.plan_work import CarriedSpan


@dataclass
class _WantedUnits:
    """The units to carry over.

    `counts` has the number of spans of each unchanged file, by relative path; all units of these
    files are meant. `names` are those of other spans, `renamed` the new files by the old path.
    """

    counts: Counter[str] = field(default_factory=Counter)
    names: set[str] = field(default_factory=set)
    renamed: dict[str, InputFile] = field(default_factory=dict)

    def add(self, span: CarriedSpan, by_files: bool) -> None:
        """Add the units of a span; `by_files`: those of unchanged files are told by their file."""
        if span.was is not None:
            self.renamed[span.was] = span.file
        elif by_files and span.name.startswith(f"{span.file.key}-"):
            self.counts[span.file.relative] += 1
        else:
            self.names.add(span.name)

    def has(self, name: str, file: str) -> bool:
        """Return whether a unit is wanted that is not of an unchanged file."""
        return span_name(name) in self.names or file in self.renamed

    def of(self, unit: UnitRecord) -> UnitRecord:
        """Return a wanted unit, under the new name of its file."""
        if span_name(unit.unit) in self.names:
            return carried(unit)
        return carried(under(self.renamed[unit.file], unit))


def carried_again(
    spans: Iterable[CarriedSpan], last: Manifest
) -> Iterator[UnitRecord | CarriedRange]:
    """Yield the units of carried spans: those of unchanged files by ranges, others one by one.

    A manifest in parts is read part by part, so that its units are never all in memory.
    """
    by_files = has_ranges(last)
    wanted = _WantedUnits()
    for span in spans:
        wanted.add(span, by_files)
    if not by_files:
        units = (unit for unit in last.units if wanted.has(unit.unit, unit.file))
        yield from map(wanted.of, units)
        return
    others: set[str] = set()
    for part in read_parts(last.root, last.parts):
        # as JSON: a record takes ten times as long to make, and few are wanted
        alone = [unit for unit in part.shards if unit.get("file") not in wanted.counts]
        others.update(str(unit["file"]) for unit in alone if unit.get("file"))
        found = (unit for unit in alone if wanted.has(str(unit.get("unit")), unit.get("file", "")))
        yield from map(wanted.of, last.records(found))
    yield from cut_ranges(wanted.counts, others, starts=starts_of(last.parts))
