"""Neighbours: blocks of queries -> files with the nearest rows of a store."""

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import TaggedOutput

from sentence_beam.transforms.beam.graph import PROBLEMS, Merge, MergeAll, set_types
from sentence_beam.transforms.corpus import Span
from sentence_beam.transforms.steps.joins.compared_rows import Group
from sentence_beam.transforms.steps.joins.nearest_rows import (
    BlockRecord,
    Comparison,
    NeighbourSearch,
    NeighboursJob,
    StoredBlock,
)
from sentence_beam.transforms.steps.joins.neighbours_result import Ended, conclude
from sentence_beam.transforms.store.records import Problem

DONE = "done"


class Neighbours(beam.PTransform):
    """Blocks of stored rows, and spans of files -> a BlockRecord for each block's file.

    A Problem takes the place of a block that fails. Groups of a store's rows are shared among the
    workers, and a block is put together when its file is written.
    """

    def __init__(self, job: NeighboursJob):
        super().__init__()
        self._job = job

    def expand(self, sources: beam.PCollection) -> beam.PCollection:
        prepared = (
            sources
            | "SpreadQueries" >> beam.Reshuffle()
            | "Prepare"
            >> beam.ParDo(PrepareFn(self._job)).with_outputs(DONE, PROBLEMS, main="groups")
        )
        set_types(prepared, done=BlockRecord, problems=Problem)
        compared = (
            prepared.groups
            | "SpreadGroups" >> beam.Reshuffle()
            | "Compare" >> beam.ParDo(CompareFn(self._job)).with_outputs(PROBLEMS, main="compared")
        )
        set_types(compared, problems=Problem)
        finished = (
            compared.compared
            | "Blocks" >> beam.GroupByKey()
            | "Finish" >> beam.ParDo(FinishFn(self._job))
        )
        everything = (prepared[DONE], prepared[PROBLEMS], compared[PROBLEMS], finished)
        return everything | "Records" >> Merge()


class NeighboursFn(beam.DoFn):
    """A step of the job, with the store opened once."""

    def __init__(self, job: NeighboursJob):
        self._job = job

    def setup(self) -> None:
        self._steps = NeighbourSearch(self._job)


class PrepareFn(NeighboursFn):
    """A source of queries -> (comparison, group) for each group of rows to compare with."""

    def process(self, source: StoredBlock | Span) -> Iterator[Any]:
        for block in self._steps.prepare(source):
            if block.problem is not None:
                yield TaggedOutput(PROBLEMS, block.problem)
            elif block.record is not None:
                yield TaggedOutput(DONE, block.record)
            elif block.comparison is not None:
                yield from ((block.comparison, group) for group in block.comparison.groups)


class CompareFn(NeighboursFn):
    """(comparison, group) -> the block's name and both, once the candidates are in a file."""

    def process(self, work: tuple[Comparison, Group]) -> Iterator[Any]:
        problem = self._steps.compare(*work)
        if problem is not None:
            yield TaggedOutput(PROBLEMS, problem)
        else:
            yield work[0].block, work


class FinishFn(NeighboursFn):
    """All of a block -> the BlockRecord of its file; nothing if a group had a Problem.

    A Problem of this step travels with the records: `Ended.from_made` tells them apart.
    """

    def process(
        self, grouped: tuple[str, Iterable[tuple[Comparison, Group]]]
    ) -> Iterator[BlockRecord | Problem]:
        works = list(grouped[1])
        comparison = works[0][0]
        if {group for _, group in works} == set(comparison.groups):
            yield self._steps.finish(comparison)


class Conclude(beam.PTransform):
    """BlockRecords and Problems of a job -> how it ended, as its result file has it."""

    def __init__(self, output: str, run: str):
        super().__init__()
        self._where = output, run

    def expand(self, records: beam.PCollection) -> beam.PCollection:
        return (
            records
            | "Each" >> beam.Map(Ended.from_made)
            | "All" >> beam.CombineGlobally(MergeAll(Ended()))
            | "Write" >> beam.Map(conclude, *self._where)
        )
