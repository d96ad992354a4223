"""FitCalibration: shards of a store -> a calibration of their pooled vectors."""

from collections.abc import Iterable

import apache_beam as beam

from transforms.steps.fit import FitJob, fit
from transforms.steps.gather import Gathered, GatherJob, gather


class FitCalibration(beam.PTransform):
    """Numbered parts of a store's shards -> one FitResult; a success leaves the calibration in the job's output."""

    def __init__(self, job: FitJob):
        super().__init__()
        self._job = job

    def expand(self, parts: beam.PCollection) -> beam.PCollection:
        return parts | "Gather" >> Gather(self._job.gather) | "Fit" >> beam.Map(fit, self._job)


class Gather(beam.PTransform):
    """Numbered parts of a store's shards -> one Gathered of all of them.

    Moments are exact for any number of shards: what order and split change is rounding (about 1e-15 relative).
    """

    def __init__(self, job: GatherJob):
        super().__init__()
        self._job = job

    def expand(self, parts: beam.PCollection) -> beam.PCollection:
        return (
            parts
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.Map(gather, self._job)
            | "Merge" >> beam.CombineGlobally(MergeGatheredFn())
        )


class MergeGatheredFn(beam.CombineFn):
    """Merges what was gathered of parts, in any order."""

    def create_accumulator(self) -> Gathered:
        """Nothing gathered yet: no moments, no samples, no problem."""
        return Gathered()

    def add_input(self, total: Gathered, part: Gathered) -> Gathered:
        """The total and a part together."""
        return total.merge(part)

    def merge_accumulators(self, accumulators: Iterable[Gathered]) -> Gathered:
        """What all accumulators hold together."""
        total = Gathered()
        for part in accumulators:
            total = total.merge(part)
        return total

    def extract_output(self, total: Gathered) -> Gathered:
        """The total as it is."""
        return total
