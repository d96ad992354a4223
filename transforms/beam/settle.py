"""Settle: written units -> the tables of the coming snapshot, checked."""

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PBegin
from apache_beam.typehints import typehints

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.beam.graph import Merge, Together, keep_lease
from sentence_beam.transforms.steps.commit.commit_run import settle_run
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.made_units import assign_stretch, pack
from sentence_beam.transforms.store.runs.run_facts import RunFact
from sentence_beam.transforms.store.tables.names import STRETCHES

PROBLEMS_KEY = STRETCHES
Numbered = typehints.Tuple[int, typehints.Any]


class Settle(beam.PTransform):
    """Units and problems of a run -> one RunFact: the coming snapshot's tables, or a problem.

    `BuildIndex` and `Commit` take it. A run that makes no unit applies it to its pipeline. Units
    travel by stretches of their names, 64 keys, because an engine hands over all values of a key
    as one message.
    """

    def __init__(self, run: Run):
        super().__init__()
        self._run = run

    def expand(self, collections: Any) -> beam.PCollection:
        is_begin = isinstance(collections, PBegin)
        parts = () if is_begin else collections
        pipeline = collections.pipeline if is_begin else collections[0].pipeline
        # a run may make no unit, and grouping nothing gives nothing
        begun = pipeline | "Begin" >> beam.Create([None])
        grouped_units = [
            some | f"ByStretch{place}" >> beam.Map(_key_by_stretch).with_output_types(Numbered)
            for place, some in enumerate((*parts, begun))
        ]
        settled = (
            tuple(grouped_units)
            | "Units" >> Merge()
            | "Group" >> beam.GroupByKey()
            | "Pack" >> beam.FlatMap(keep_lease, self._run.key, _pack_units)
            | "Together" >> Together()
            | "Settle" >> beam.Map(keep_lease, self._run.key, settle_run, self._run)
        )
        settled.element_type = RunFact
        return settled


def _key_by_stretch(item: UnitRecord | Problem | None) -> tuple[int, Any]:
    """Return (stretch, values) of a unit; problems have a key of their own."""
    return assign_stretch(item) if isinstance(item, UnitRecord) else (PROBLEMS_KEY, item)


def _pack_units(grouped: tuple[int, Iterable[Any]]) -> Iterator[tuple[int, bytes] | Problem | None]:
    """Yield (stretch, its units packed), or the problems of a run."""
    number, values = grouped
    if number == PROBLEMS_KEY:
        yield from filter(None, values)
        yield None
        return
    try:
        yield number, pack(values)
    except SentenceBeamError as error:
        yield Problem.from_error(error)
