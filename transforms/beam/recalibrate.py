"""Recalibrate: written units -> the same rows under another calibration, without the model."""

from functools import partial

import apache_beam as beam

from sentence_beam.transforms.beam.quantize import Made, quantize_made
from sentence_beam.transforms.beam.rewrite import RewriteUnits
from sentence_beam.transforms.steps.fit.recalibration import RecalibrateJob, Recalibration


class Recalibrate(beam.PTransform):
    """Units of the last snapshot -> a UnitRecord for each, once it is stored.

    `problems` end the run.
    """

    def __init__(self, job: RecalibrateJob):
        super().__init__()
        self._job = job

    def expand(self, units: beam.PCollection) -> Made:
        run = self._job.run
        made = units | "Units" >> RewriteUnits(run, partial(Recalibration, self._job))
        return quantize_made(made, run)
