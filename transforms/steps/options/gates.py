"""Gates: limits of rejects, deletes and so on; a run beyond one commits nothing.

A value as tight as a gate's default, or tighter, is remembered and replaces the one before. A
looser one holds for its run alone: the next run has what the store remembered before.
"""

from dataclasses import replace
from typing import Any, NamedTuple

from sentence_beam.transforms.base.option import declared_in
from sentence_beam.transforms.steps.options.embed import MAX_DRIFT, MAX_UNKNOWN, EmbedOptions
from sentence_beam.transforms.steps.options.index import IndexOptions, RecalibrateOptions
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.gates import UsedGates

NAMES = tuple(name for name, declared in declared_in(EmbedOptions).items() if declared.gate)
OFF = 1.0
ANSWER_GATES = ("max_answer_change",)
DEFAULTS = {
    "max_rejects": RememberedOptions.max_rejects,
    "max_deletes": RememberedOptions.max_deletes,
    "max_unknown": MAX_UNKNOWN,
    **dict.fromkeys(ANSWER_GATES, OFF),
}


class Gates(NamedTuple):
    """The values of gates in a run, and those that the store remembers, by option.

    `remembered` has no value for a gate that keeps its default.
    """

    used: UsedGates
    remembered: dict[str, float]


def gates_of(options: EmbedOptions, before: RememberedOptions, dtype: str) -> Gates:
    """Return the gates of a run whose model computes in a dtype; `before` are the options of the
    last snapshot.
    """
    used: dict[str, float] = {}
    remembered: dict[str, float] = {}
    defaults = {**DEFAULTS, "max_drift": MAX_DRIFT[dtype]}
    for name in NAMES:
        default = defaults[name]
        given = getattr(options, name)
        value = _tightest_last(given, getattr(before, name), default)
        used[name] = value
        if given is not None:
            used[name] = given
        if value != default:
            remembered[name] = value
    if options.accept_answers:
        used |= dict.fromkeys(ANSWER_GATES, OFF)
    return Gates(UsedGates(**used), remembered)


def with_answer_gates(run: Run, options: IndexOptions | RecalibrateOptions) -> Run:
    """Return a run that reads no input with the gates of answers that are given, else remembered.

    The run's store remembers those that are given.
    """
    chosen: dict[str, float] = {}
    for name in ANSWER_GATES:
        value = _tightest_last(getattr(options, name), getattr(run.options, name), OFF)
        if value != OFF:
            chosen[name] = value
    used = {} if options.accept_answers else chosen
    remembered: dict[str, Any] = {name: chosen.get(name) for name in ANSWER_GATES}
    return replace(
        run, gates=replace(run.gates, **used), options=replace(run.options, **remembered)
    )


def _tightest_last(given: float | None, before: float | None, default: float) -> float:
    """Return the given value, else the one before, unless looser than the default; else that."""
    for value in (given, before):
        if value is not None and value <= default:
            return value
    return default
