"""Gates: limits of rejects, deletes and so on; a run beyond one commits nothing.

A value as tight as a gate's default, or tighter, is remembered and replaces the one before. A
looser one, and 1, hold for their run alone: the next run has what the store remembered before.
"""

from dataclasses import replace
from typing import NamedTuple

from sentence_beam.transforms.base.option import declared_in
from sentence_beam.transforms.steps.options.embed import MAX_DRIFT, MAX_UNKNOWN, EmbedOptions
from sentence_beam.transforms.steps.options.index_options import IndexOptions, RecalibrateOptions
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.gates import UsedGates

NAMES = tuple(name for name, declared in declared_in(EmbedOptions).items() if declared.gate)
OFF = 1.0
DEFAULTS = {
    "max_rejects": RememberedOptions.max_rejects,
    "max_deletes": RememberedOptions.max_deletes,
    "max_unknown": MAX_UNKNOWN,
    "max_answer_change": OFF,
}


class Gates(NamedTuple):
    """The values of gates in a run, and those that the store remembers, by option.

    `remembered` has no value for a gate that keeps its default.
    """

    used: UsedGates
    remembered: dict[str, float]


def choose_gates(options: EmbedOptions, before: RememberedOptions, dtype: str) -> Gates:
    """Return the gates of a run whose model computes in a dtype; `before` are the options of the
    last snapshot.
    """
    used: dict[str, float] = {}
    remembered: dict[str, float] = {}
    defaults = {**DEFAULTS, "max_drift": MAX_DRIFT[dtype]}
    for name in NAMES:
        default = defaults[name]
        requested = getattr(options, name)
        value = _choose_tightest(requested, getattr(before, name), default)
        used[name] = value if requested is None else requested
        if value != default:
            remembered[name] = value
    return Gates(UsedGates(**used), remembered)


def set_answer_gate(run: Run, options: IndexOptions | RecalibrateOptions) -> Run:
    """Return a run that reads no input with the gate of answers that is given, else remembered.

    The run's store remembers a given one, unless it is 1.
    """
    requested = options.max_answer_change
    kept = _choose_tightest(requested, run.options.max_answer_change, OFF)
    used = kept if requested is None else requested
    remembered = kept if kept < OFF else None
    return replace(
        run,
        gates=replace(run.gates, max_answer_change=used),
        options=replace(run.options, max_answer_change=remembered),
    )


def _choose_tightest(requested: float | None, before: float | None, default: float) -> float:
    """Return the given value, else the one before; else the default.

    Values that are looser than the default, and 1, do not count.
    """
    for value in (requested, before):
        if value is not None and value <= default and value < OFF:
            return value
    return default
