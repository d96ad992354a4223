"""The steps of `--partition content` that read input files: open, count rows, pack by bucket."""

from collections.abc import Iterator
from dataclasses import astuple
from typing import Any

from apache_beam.pvalue import TaggedOutput

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.beam.graph import PROBLEMS, JobFn
from sentence_beam.transforms.corpus import Span
from sentence_beam.transforms.corpus.blocks import PackedRows
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.steps.plan import content_plan
from sentence_beam.transforms.steps.plan.content_plan import Key, Passing, ToCount, ToRead
from sentence_beam.transforms.steps.plan.elements import FilesToOpen, PlannedFiles, pack_table
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.lease import kept_alive


class OpenFilesFn(JobFn):
    """Files -> the same with the footers of unopened ones; other elements pass."""

    def process(self, files: FilesToOpen | Passing) -> Iterator[PlannedFiles | Passing]:
        if not isinstance(files, FilesToOpen):
            yield files
            return
        try:
            self._renew()
            with kept_alive(self._job.root, self._job.run.id):  # storage may be slow
                opened = content_plan.open_files(files.table, self._job)
            yield PlannedFiles(pack_table(opened))
        except SentenceBeamError as error:
            yield Problem.from_error(error)


class CountFn(JobFn):
    """A span -> the span with its rows counted; other elements pass."""

    def process(
        self, item: PlannedFiles | ToCount | Passing
    ) -> Iterator[PlannedFiles | Span | Passing]:
        if not isinstance(item, ToCount):
            yield item
            return
        try:
            self._renew()
            # a span may be a large compressed file
            with kept_alive(self._job.root, self._job.run.id):
                counted = content_plan.count_rows(item, self._job)
            yield counted
        except SentenceBeamError as error:
            yield Problem.from_error(error)


class ReadRowsFn(JobFn):
    """Spans -> (group of buckets, PackedRows) for all their rows.

    Every group of the run gets an empty block.
    """

    def process(self, work: ToRead) -> Iterator[Any]:
        """Yield packed rows by group, and an empty block for each group of the run."""
        key = astuple(work.buckets)
        if work.first:
            yield from make_empty_blocks(work.buckets)
        try:
            blocks = content_plan.read_rows(work, self._job, self._renew)
            yield from (((*key, group), block) for group, block in blocks)
        except SentenceBeamError as error:
            yield TaggedOutput(PROBLEMS, Problem.from_error(error))


def make_empty_blocks(buckets: Buckets) -> Iterator[tuple[Key, PackedRows]]:
    """Yield an empty block for each group of buckets: a bucket without rows is a unit too."""
    key = astuple(buckets)
    yield from (((*key, group), PackedRows((), b"")) for group in range(buckets.groups))
