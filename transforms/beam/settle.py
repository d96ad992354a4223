"""Settle: written units -> all of a snapshot's units, checked, by 64 keys."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import apache_beam as beam
from apache_beam.typehints import typehints

from sentence_beam.transforms.beam.graph import Merge, Together, keeping_lease
from sentence_beam.transforms.steps.commit.commit_run import settle_run
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.facts import RunFact
from sentence_beam.transforms.store.runs.lease import kept_alive
from sentence_beam.transforms.store.runs.record_bytes import pack
from sentence_beam.transforms.store.runs.settled import Settler
from sentence_beam.transforms.store.runs.stretches import STRETCHES, stretch_of

PROBLEMS_KEY = STRETCHES
Numbered = typehints.Tuple[int, bytes]


class Settle(beam.PTransform):
    """Units and problems of a run -> one RunFact: all units, settled, or a problem.

    `BuildIndex` and `Commit` take it. Units are checked by stretches of their names, which are 64
    keys; one key sums.
    """

    def __init__(self, run: Run):
        super().__init__()
        self._run = run

    def expand(self, known: Any) -> beam.PCollection:
        packed = [
            found | f"Pack{place}" >> beam.Map(packed_by_stretch).with_output_types(Numbered)
            for place, found in enumerate(known)
        ]
        # A stretch without a single unit is checked too, and grouping nothing gives nothing.
        numbers = [(number, b"") for number in range(STRETCHES)]
        pipeline = known[0].pipeline
        every = pipeline | "Stretches" >> beam.Create(numbers).with_output_types(Numbered)
        settled = (
            (*packed, every)
            | "Units" >> Merge()
            | "Group" >> beam.GroupByKey()
            | "Check" >> beam.ParDo(SettleFn(self._run))
            | "Together" >> Together()
            | "Sum" >> beam.Map(keeping_lease, self._run.key, settle_run, self._run)
        )
        settled.element_type = RunFact
        return settled


class SettleFn(beam.DoFn):
    """(stretch, its units packed) -> the stretch, settled.

    Problems, which have a key of their own, pass.
    """

    def __init__(self, run: Run):
        self._run = run

    def setup(self) -> None:
        self._settler = Settler(self._run.root, self._run.id)

    def process(self, grouped: tuple[int, Iterable[bytes]]) -> Iterator[RunFact]:
        number, packed = grouped
        if number == PROBLEMS_KEY:
            yield from (RunFact(problem=Problem(**json.loads(data))) for data in packed)
        else:
            with kept_alive(self._run.root, self._run.id):
                settled = self._settler.settle(number, filter(None, packed))
            yield RunFact(stretch=settled)


def packed_by_stretch(found: UnitRecord | Problem) -> tuple[int, bytes]:
    """Return (stretch, packed) of a unit; problems have a key of their own.

    So they need no exchange of their own.
    """
    if isinstance(found, Problem):
        return PROBLEMS_KEY, json.dumps(asdict(found)).encode()
    return stretch_of(found.unit), pack(found)
