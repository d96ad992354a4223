"""Gates: what a run has, and what a store remembers of it."""

from typing import Any

import pytest
from helpers.few_words import mind_unknown_words

from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.steps.options.gate_options import (
    DEFAULTS,
    MAX_DRIFT,
    NAMES,
    choose_gates,
)
from sentence_beam.transforms.store.entries import RememberedOptions


@pytest.fixture(autouse=True)
def _as_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    mind_unknown_words(monkeypatch)


def one(
    name: str, given: float | None, before: float | None, dtype: str = "float32"
) -> tuple[Any, Any]:
    """The value that a run has of one gate, and the one that the next run has if it is given
    none.
    """
    remembered: dict[str, Any] = {} if before is None else {name: before}
    options = RememberedOptions(**remembered)
    asked = EmbedOptions(input=("a",), store="s", **{name: given})  # type: ignore[arg-type]
    gates = choose_gates(asked, options, dtype)
    kept = RememberedOptions(**gates.remembered)  # type: ignore[arg-type]
    later = choose_gates(EmbedOptions(input=("a",), store="s"), kept, dtype)
    return getattr(gates.used, name), getattr(later.used, name)


@pytest.mark.parametrize("name", NAMES)
def test_a_tighter_value_replaces_the_one_before_and_a_looser_one_is_for_one_run(name: str) -> None:
    default = {**DEFAULTS, "max_drift": MAX_DRIFT["float32"]}[name]
    tight, tighter, loose = default / 2, default / 4, default * 1.5
    assert one(name, None, None) == (default, default)
    assert one(name, tight, None) == (tight, tight)
    assert one(name, None, tight) == (tight, tight)
    assert one(name, tighter, tight) == (tighter, tighter)
    assert one(name, tight, tighter) == (tight, tight)
    assert one(name, 0.0, tight) == (0.0, 0.0)
    if name == "max_answer_change":  # off by default, which is as loose as can be
        assert one(name, default, tight) == (default, tight)
        return
    assert one(name, default, tight) == (default, default)
    assert one(name, loose, tight) == (loose, tight)
    assert one(name, loose, None) == (loose, default)


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_looser_value_that_an_earlier_version_remembered_counts_no_more(name: str) -> None:
    assert one(name, None, 1.0) == (DEFAULTS[name], DEFAULTS[name])


def test_the_default_of_the_drift_is_that_of_the_dtype() -> None:
    """A store that only ever had the default has that of its next dtype."""
    remembered = choose_gates(
        EmbedOptions(input=("a",), store="s"), RememberedOptions(), "float32"
    ).remembered
    assert "max_drift" not in remembered
    assert one("max_drift", None, None, "bfloat16") == (1e-3, 1e-3)
    assert one("max_drift", None, 1e-5, "bfloat16") == (1e-5, 1e-5)
    assert one("max_drift", None, 1e-5, "float32") == (1e-7, 1e-7)
