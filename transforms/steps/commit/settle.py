"""All units of a run, checked against its plan and summed."""

from transforms.base.errors import SentenceBeamError
from transforms.store.records import Problem
from transforms.store.runs.commit import Run, settle
from transforms.store.runs.settled import Settled, SettledStretch


def settled_or_problem(found: list[SettledStretch | Problem], run: Run) -> Settled | Problem:
    """What all stretches of a run and its problems come to."""
    stretches = [item for item in found if isinstance(item, SettledStretch)]
    problems = [item for item in found if isinstance(item, Problem)]
    try:
        return settle(run, stretches, problems)
    except SentenceBeamError as error:
        return Problem.of(error)
