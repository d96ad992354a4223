"""FitCalibration: shards of a store -> a calibration of their pooled vectors."""

import apache_beam as beam

from transforms.beam.graph import MergeAll
from transforms.steps.fit.fit import FitJob, fit
from transforms.steps.fit.gather import Gathered, GatherJob, gather


class FitCalibration(beam.PTransform):
    """Numbered parts of a store's shards -> one FitResult; a success leaves the calibration in the
    job's output.
    """

    def __init__(self, job: FitJob):
        super().__init__()
        self._job = job

    def expand(self, parts: beam.PCollection) -> beam.PCollection:
        return parts | "Gather" >> Gather(self._job.gather) | "Fit" >> beam.Map(fit, self._job)


class Gather(beam.PTransform):
    """Numbered parts of a store's shards -> one Gathered of all of them.

    Moments are exact for any number of shards: what order and split change is rounding (about 1e-15
    relative).
    """

    def __init__(self, job: GatherJob):
        super().__init__()
        self._job = job

    def expand(self, parts: beam.PCollection) -> beam.PCollection:
        return (
            parts
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.Map(gather, self._job)
            | "Merge" >> beam.CombineGlobally(MergeAll(Gathered()))
        )
