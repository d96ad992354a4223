"""Verify: a snapshot -> the file with a line for each of its faults."""

from collections.abc import Iterator

import apache_beam as beam

from sentence_beam.transforms.beam.graph import MergeAll
from sentence_beam.transforms.steps.commit.verify_job import Verification, VerifyJob
from sentence_beam.transforms.store.verification import Check, Findings


class Verify(beam.PTransform):
    """An element -> None, once the file of the job is written.

    The parts of the check are shared among the workers.
    """

    def __init__(self, job: VerifyJob):
        super().__init__()
        self._job = job

    def expand(self, start: beam.PCollection) -> beam.PCollection:
        return (
            start
            | "Parts" >> beam.FlatMap(lambda _, job: Verification(job).checks(), self._job)
            | "Spread" >> beam.Reshuffle()
            | "Look" >> beam.ParDo(VerifyFn(self._job))
            | "Merge" >> beam.CombineGlobally(MergeAll(Findings()))
            | "Conclude"
            >> beam.Map(lambda findings, job: Verification(job).conclude(findings), self._job)
        )


class VerifyFn(beam.DoFn):
    """Parts of the check -> the findings of each."""

    def __init__(self, job: VerifyJob):
        self._job = job

    def setup(self) -> None:
        self._verification = Verification(self._job)

    def process(self, check: Check) -> Iterator[Findings]:
        yield Findings.from_finding(self._verification.finding(check))
