"""RewriteUnits: units of the last snapshot -> the same units, written again without the model."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.beam.graph import PROBLEMS
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.lease import Renewal


class UnitWriter(Protocol):
    """Writes units of the last snapshot again."""

    def write(self, unit: UnitRecord) -> UnitRecord:
        """Write a unit and return its record. Raises SentenceBeamError if that is impossible."""


class RewriteUnits(beam.PTransform):
    """Units of the last snapshot -> a UnitRecord for each, once it is stored.

    `begin` makes the writer, in each worker. `problems` end the run.
    """

    def __init__(self, run: Run, begin: Callable[[], UnitWriter]):
        super().__init__()
        self._step = RewriteUnitsFn(run, begin)

    def expand(self, units: beam.PCollection) -> Any:
        return (
            units
            | "Spread" >> beam.Reshuffle()
            | "Write" >> beam.ParDo(self._step).with_outputs(PROBLEMS, main="units")
        )


class RewriteUnitsFn(beam.DoFn):
    """A unit -> the same unit, written again."""

    def __init__(self, run: Run, begin: Callable[[], UnitWriter]):
        self._run = run
        self._begin = begin

    def setup(self) -> None:
        self._writer = self._begin()
        self._renew = Renewal(self._run.root, self._run.id, self._run.leased)

    def process(self, unit: UnitRecord) -> Iterator[Any]:
        try:
            yield self._writer.write(unit)
            self._renew()
        except SentenceBeamError as error:
            yield TaggedOutput(PROBLEMS, Problem.from_error(error))
