"""Units of a run settled in one process, as the steps of a graph do it, and committed."""

from collections.abc import Iterable
from typing import Any

from sentence_beam.transforms.steps.commit.commit_run import settle_run
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs import finish as finish_run
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.facts import RunFact
from sentence_beam.transforms.store.runs.record_bytes import pack
from sentence_beam.transforms.store.runs.result import Result
from sentence_beam.transforms.store.runs.settled import SettledStretch, Settler
from sentence_beam.transforms.store.runs.stretches import STRETCHES, stretch_of


def stretches(run: Run, units: Iterable[UnitRecord]) -> list[SettledStretch]:
    """The units by stretches of their names, each checked."""
    packed: list[list[bytes]] = [[] for _ in range(STRETCHES)]
    for unit in units:
        packed[stretch_of(unit.unit)].append(pack(unit))
    settler = Settler(run.root, run.id)
    return [settler.settle(number, found) for number, found in enumerate(packed)]


def settled(run: Run, units: Iterable[UnitRecord], problems: Iterable[Problem] = ()) -> RunFact:
    """All units and problems of a run together."""
    facts = [RunFact(stretch=stretch) for stretch in stretches(run, units)]
    return settle_run([*facts, *(RunFact(problem=problem) for problem in problems)], run)


def finish(
    run: Run, units: Iterable[UnitRecord], problems: Iterable[Problem] = (), **known: Any
) -> Result:
    """The run committed, or put on record as failed."""
    fact = settled(run, units, problems)
    found = fact.settled or fact.problem
    assert found is not None
    return finish_run.finish(run, found, **known)
