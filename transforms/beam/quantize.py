"""Quantize: units of floats -> the same units in whole numbers, between bounds fitted on all of them.

Ranges travel, vectors do not: every shard is read once for its ranges, and once more to be written anew.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, TaggedOutput

from transforms import storage
from transforms.arrow import as_matrix
from transforms.beam.job import PROBLEMS, Merge
from transforms.errors import SentenceBeamError
from transforms.space import Space
from transforms.store.commit import Run
from transforms.store.lease import Renewal
from transforms.store.precision import Ranges, keep_ranges
from transforms.store.records import Problem, UnitRecord
from transforms.store.reuse import stored_vectors
from transforms.store.shards import read_shard
from transforms.store.units import UnitCounts, UnitStore, read_written


@dataclass(frozen=True)
class Measured:
    """Ranges of some shards (None: of no row), or why they are not known."""

    ranges: Ranges | None = None
    problem: Problem | None = None

    def merge(self, other: "Measured") -> "Measured":
        """Of both together; a problem stays."""
        if self.ranges is None or other.ranges is None:
            ranges = self.ranges or other.ranges
        else:
            ranges = self.ranges.merge(other.ranges)
        return Measured(ranges, self.problem or other.problem)


@dataclass(frozen=True)
class RangesRecord:
    """The manifest's `ranges` entry, on its way to the commit."""

    data: dict[str, Any]


class Made(NamedTuple):
    """Units as they are to be committed; problems, which end the run instead.

    `ranges` has the one RangesRecord of a run that fits ranges and has rows; it is None for every other run.
    """

    units: beam.PCollection
    problems: beam.PCollection
    ranges: beam.PCollection | None = None


def quantized(made: Any, run: Run) -> Made:
    """`made.units` and `made.problems`, quantised where ranges are to be fitted for that."""
    if not run.fits_ranges:
        return Made(made.units, made.problems)
    return (made.units, made.problems) | "Quantize" >> Quantize(run)


class Quantize(beam.PTransform):
    """(units of floats, problems so far) -> `Made`; where there is a problem, nothing is written."""

    def __init__(self, run: Run):
        super().__init__()
        self._run = run

    def expand(self, found: Any) -> Any:
        units, problems = found
        measured = (
            units
            | "SpreadRanges" >> beam.Reshuffle()
            | "Measure" >> beam.Map(measure, self._run.root)
            | "Merge" >> beam.CombineGlobally(merge)
        )
        fitted = measured | "Keep" >> beam.FlatMap(keep, self._run).with_outputs(PROBLEMS, main="ranges")
        made = (
            units
            | "SpreadUnits" >> beam.Reshuffle()
            | "Write"
            >> beam.ParDo(QuantizeFn(self._run), AsSingleton(measured), AsIter(problems)).with_outputs(
                PROBLEMS, main="units"
            )
        )
        everything = (problems, fitted[PROBLEMS], made[PROBLEMS]) | "Problems" >> Merge()
        return Made(made.units, everything, fitted.ranges)


def measure(unit: UnitRecord, root: str) -> Measured:
    """The ranges of a unit's vectors."""
    try:
        return Measured(_ranges(storage.join(root, unit.path)) if unit.path else None)
    except SentenceBeamError as error:
        return Measured(problem=Problem.of(error))


def _ranges(path: str) -> Ranges:
    parts = [Ranges.of(as_matrix(batch.column(0))) for batch in read_shard(path, ["embedding"])]
    total = parts[0]
    for part in parts[1:]:
        total = total.merge(part)
    return total


def merge(parts: Iterable[Measured]) -> Measured:
    """Of all together."""
    total = Measured()
    for part in parts:
        total = total.merge(part)
    return total


def keep(measured: Measured, run: Run) -> Iterator[Any]:
    """Write the ranges into the store, and what the manifest says of them."""
    if measured.problem is not None:
        yield TaggedOutput(PROBLEMS, measured.problem)
    elif measured.ranges is not None:
        yield RangesRecord(keep_ranges(run.root, measured.ranges, Space.from_json(run.space)))


class QuantizeFn(beam.DoFn):
    """A unit of floats -> the same unit between the ranges, with the counts of how its rows were made."""

    def __init__(self, run: Run):
        self._run = run

    def setup(self) -> None:
        self._space = Space.from_json(self._run.space)
        self._renew = Renewal(self._run.root, self._run.id)

    def process(self, unit: UnitRecord, measured: Measured, problems: Iterable[Problem]) -> Iterator[Any]:
        if measured.problem is not None or any(True for _ in problems):
            return
        try:
            yield self._quantized(unit, measured.ranges) if unit.path else unit
            self._renew()
        except SentenceBeamError as error:
            yield TaggedOutput(PROBLEMS, Problem.of(error))

    def _quantized(self, unit: UnitRecord, ranges: Ranges | None) -> UnitRecord:
        store = UnitStore(self._run.root, self._space, ranges, self._run.id)
        prepared, rows = read_written(self._run.root, unit, store, self._run.generation)
        counts = UnitCounts.of(unit)
        made = store.finished(prepared)
        if made is None:
            floats = stored_vectors(rows, replace(self._space, precision="float32"), final=True)
            made = store.write(prepared, floats, [], counts)
        return replace(made, **vars(counts), run=unit.run)
