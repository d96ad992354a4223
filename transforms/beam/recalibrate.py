"""Recalibrate: written units -> the same rows under another calibration, without the model."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.beam.graph import PROBLEMS
from sentence_beam.transforms.beam.quantize import quantized
from sentence_beam.transforms.steps.fit.recalibrate import RecalibrateJob, Recalibration
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.lease import Renewal


class Recalibrate(beam.PTransform):
    """Units of the last snapshot -> a UnitRecord for each, once it is stored.

    `problems` end the run.
    """

    def __init__(self, job: RecalibrateJob):
        super().__init__()
        self._job = job

    def expand(self, units: beam.PCollection) -> Any:
        made = (
            units
            | "Spread" >> beam.Reshuffle()
            | "RecalibrateUnits"
            >> beam.ParDo(RecalibrateFn(self._job)).with_outputs(PROBLEMS, main="units")
        )
        return quantized(made, self._job.run)


class RecalibrateFn(beam.DoFn):
    """A unit -> the same unit with other final vectors."""

    def __init__(self, job: RecalibrateJob):
        self._job = job

    def setup(self) -> None:
        self._recalibration = Recalibration(self._job)
        self._renew = Renewal(self._job.run.root, self._job.run.id, self._job.run.leased)

    def process(self, unit: UnitRecord) -> Iterator[Any]:
        try:
            yield self._recalibration.recalibrate(unit)
            self._renew()
        except SentenceBeamError as error:
            yield TaggedOutput(PROBLEMS, Problem.of(error))
