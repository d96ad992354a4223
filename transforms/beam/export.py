"""Export: the rows of a snapshot as files or tables, each of some shards, written by workers."""

import apache_beam as beam

from transforms.beam.graph import Together
from transforms.steps.joins.export_parts import ExportJob, conclude, parts_of, write_part


class ExportParts(beam.PTransform):
    """An element -> None, once the files of the job and `vectors.json` are written."""

    def __init__(self, job: ExportJob):
        super().__init__()
        self._job = job

    def expand(self, start: beam.PCollection) -> beam.PCollection:
        job = self._job
        return (
            start
            | "Parts" >> beam.FlatMap(lambda _, job: parts_of(job), job)
            | "Spread" >> beam.Reshuffle()
            | "Write" >> beam.Map(write_part, job)
            | "Together" >> Together()
            | "Conclude" >> beam.Map(conclude, job)
        )
