"""FitTokenStatistics: files of a corpus -> spans -> counts -> one file of statistics."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from transforms.beam.graph import MergeAll
from transforms.corpus import Span
from transforms.steps.fit.token_statistics import (
    Counted,
    CountJob,
    SpanCounter,
    plan_spans,
    write_statistics,
)
from transforms.store.records import Problem


class FitTokenStatistics(beam.PTransform):
    """Input files -> one FitResult; the statistics are in the job's output folder if it is a
    success.
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
