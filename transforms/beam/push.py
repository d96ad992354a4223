"""Push: the rows that a database lacks, written by workers, each some parts."""

import apache_beam as beam

from transforms.beam.graph import Together
from transforms.push.parts import PushJob, conclude, write_part


class PushParts(beam.PTransform):
    """An element -> None, once all parts of the job are written and its result is."""

    def __init__(self, job: PushJob):
        super().__init__()
        self._job = job

    def expand(self, start: beam.PCollection) -> beam.PCollection:
        job = self._job
        return (
            start
            | "Parts" >> beam.FlatMap(lambda _, parts: range(parts), job.parts)
            | "Spread" >> beam.Reshuffle()
            | "Write" >> beam.Map(write_part, job)
            | "Together" >> Together()
            | "Conclude" >> beam.Map(conclude, job)
        )
