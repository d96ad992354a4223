"""FitCalibration and FitTokenStatistics: a store's shards, or files, -> a fitted file."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from sentence_beam.transforms.beam.graph import MergeAll
from sentence_beam.transforms.corpus import Span
from sentence_beam.transforms.steps.fit.corpus_statistics import (
    Counted,
    CountJob,
    SpanCounter,
    plan_spans,
    write_statistics,
)
from sentence_beam.transforms.steps.fit.gathered_vectors import Gathered, GatherJob, gather
from sentence_beam.transforms.steps.fit.store_fit import FitJob, fit
from sentence_beam.transforms.store.records import Problem


class FitCalibration(beam.PTransform):
    """Numbered parts of a store's shards -> one FitResult.

    A success leaves the calibration in the job's output.
    """

    def __init__(self, job: FitJob):
        super().__init__()
        self._job = job

    def expand(self, parts: beam.PCollection) -> beam.PCollection:
        return parts | "Gather" >> Gather(self._job.gather) | "Fit" >> beam.Map(fit, self._job)


class Gather(beam.PTransform):
    """Numbered parts of a store's shards -> one Gathered of all of them.

    Moments are exact for any number of shards; order and split change only rounding (about 1e-15
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


class FitTokenStatistics(beam.PTransform):
    """Input files -> one FitResult.

    A success leaves the statistics in the job's output folder.
    """

    def __init__(self, job: CountJob):
        super().__init__()
        self._job = job

    def expand(self, files: beam.PCollection) -> Any:
        return (
            files
            | "SpreadFiles" >> beam.Reshuffle()
            | "PlanFile" >> beam.FlatMap(plan_spans, self._job.text_column)
            | "SpreadSpans" >> beam.Reshuffle()
            | "CountSpan" >> beam.ParDo(CountSpanFn(self._job))
            | "Add" >> beam.CombineGlobally(MergeAll(Counted()))
            | "Write" >> beam.Map(write_statistics, self._job)
        )


class CountSpanFn(beam.DoFn):
    """A span -> the statistics of each of its units."""

    def __init__(self, job: CountJob):
        self._job = job

    def setup(self) -> None:
        self._counter = SpanCounter(self._job)

    def process(self, span: Span | Problem) -> Iterator[Counted]:
        yield from self._counter.count(span)
