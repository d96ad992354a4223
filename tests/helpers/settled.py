"""Units of a run settled in one process, as the steps of a graph do it, and committed."""

from collections.abc import Iterable
from typing import Any

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.steps.commit.commit_run import settle_run
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs import run_end as finish_run
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.made_units import assign_stretch, pack
from sentence_beam.transforms.store.runs.run_facts import RunFact
from sentence_beam.transforms.store.runs.run_result import Result


def packed(units: Iterable[UnitRecord]) -> list[tuple[int, bytes]]:
    """The units by stretches of their names, each packed."""
    found: dict[int, list[Any]] = {}
    for stretch, values in map(assign_stretch, units):
        found.setdefault(stretch, []).append(values)
    return [(stretch, pack(values)) for stretch, values in found.items()]


def settled(run: Run, units: Iterable[UnitRecord], problems: Iterable[Problem] = ()) -> RunFact:
    """All units and problems of a run together."""
    made: list[tuple[int, bytes] | Problem]
    try:
        made = [*packed(units)]
    except SentenceBeamError as error:
        made = [Problem.from_error(error)]
    return settle_run([*made, *problems], run)


def finish(
    run: Run, units: Iterable[UnitRecord], problems: Iterable[Problem] = (), **known: Any
) -> Result:
    """The run committed, or put on record as failed."""
    fact = settled(run, units, problems)
    found = fact.settled or fact.problem
    assert found is not None
    return finish_run.finish(run, found, **known)
