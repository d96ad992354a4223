"""Quantize: units of floats -> the same units in whole numbers, between fitted bounds."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, TaggedOutput

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.beam.graph import PROBLEMS, Merge, MergeAll, flat_map, keep_lease
from sentence_beam.transforms.steps.embed.quantized_units import (
    Measured,
    keep,
    measure,
    quantize_unit,
)
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.lease import Renewal


class Made(NamedTuple):
    """Units to commit, and problems, which end the run.

    `ranges` has one RunFact if the run fits ranges and has rows; for every other run it is None.
    """

    units: beam.PCollection
    problems: beam.PCollection
    ranges: beam.PCollection | None = None


def quantize_made(made: Any, run: Run) -> Made:
    """Return `made.units` and `made.problems`, quantized if the run fits ranges."""
    if not run.fits_ranges:
        return Made(made.units, made.problems)
    return (made.units, made.problems) | "Quantize" >> Quantize(run)


class Quantize(beam.PTransform):
    """(units of floats, problems so far) -> `Made`; writes nothing if there is a problem."""

    def __init__(self, run: Run):
        super().__init__()
        self._run = run

    def expand(self, written: Any) -> Any:
        units, problems = written
        measured = (
            units
            | "SpreadRanges" >> beam.Reshuffle()
            | "Measure" >> beam.Map(keep_lease, self._run.key, measure, self._run.root)
            | "Merge" >> beam.CombineGlobally(MergeAll(Measured()))
        )
        fitted = measured | "Keep" >> flat_map(
            keep_lease,
            self._run.key,
            keep,
            self._run,
            outputs={Problem: PROBLEMS},
            main="ranges",
        )
        made = (
            units
            | "SpreadUnits" >> beam.Reshuffle()
            | "Write"
            >> beam.ParDo(
                QuantizeFn(self._run), AsSingleton(measured), AsIter(problems)
            ).with_outputs(PROBLEMS, main="units")
        )
        everything = (problems, fitted[PROBLEMS], made[PROBLEMS]) | "Problems" >> Merge()
        return Made(made.units, everything, fitted.ranges)


class QuantizeFn(beam.DoFn):
    """A unit of floats -> the same unit between the ranges, with its counts."""

    def __init__(self, run: Run):
        self._run = run

    def setup(self) -> None:
        self._renew = Renewal(self._run.root, self._run.id, self._run.leased)

    def process(
        self, unit: UnitRecord, measured: Measured, problems: Iterable[Problem]
    ) -> Iterator[Any]:
        """Yield the unit with its stored vectors; nothing if the job has a problem."""
        if measured.problem is not None or any(True for _ in problems):
            return
        try:
            if unit.path:
                unit = quantize_unit(unit, self._run, measured.ranges)
            yield unit
            self._renew()
        except SentenceBeamError as error:
            yield TaggedOutput(PROBLEMS, Problem.from_error(error))
