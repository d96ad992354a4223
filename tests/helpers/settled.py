"""Units of a run settled in one process, as the steps of a graph do it, and committed."""

from collections.abc import Iterable
from typing import Any

from transforms.steps.commit.settle import settled_or_problem
from transforms.store.records import Problem, UnitRecord
from transforms.store.runs import commit
from transforms.store.runs.commit import Run
from transforms.store.runs.record_bytes import pack
from transforms.store.runs.result import Result
from transforms.store.runs.settled import Settled, SettledStretch, Settler
from transforms.store.runs.stretches import STRETCHES, stretch_of


def stretches(run: Run, units: Iterable[UnitRecord]) -> list[SettledStretch]:
    """The units by stretches of their names, each checked."""
    packed: list[list[bytes]] = [[] for _ in range(STRETCHES)]
    for unit in units:
        packed[stretch_of(unit.unit)].append(pack(unit))
    settler = Settler(run.root, run.id)
    return [settler.settle(number, found) for number, found in enumerate(packed)]


def settled(run: Run, units: Iterable[UnitRecord], problems: Iterable[Problem] = ()) -> Settled | Problem:
    """All units and problems of a run together."""
    return settled_or_problem([*stretches(run, units), *problems], run)


def finish(run: Run, units: Iterable[UnitRecord], problems: Iterable[Problem] = (), **known: Any) -> Result:
    """The run committed, or put on record as failed."""
    return commit.finish(run, settled(run, units, problems), **known)
