"""What an option comes to that is `auto`, or not given: rules in their order, which
docs/reference.md shows as a table.

The first rule that holds decides.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from transforms.base.errors import OptionError
from transforms.corpus.spans import UNIT_TOKENS
from transforms.space import FLOAT32_ONLY, native_dtype
from transforms.space.st_modules import METRICS, StModules

UNIT_TOKENS_ACCELERATOR = 1_048_576


@dataclass(frozen=True)
class Case:
    """What the rules look at: an option's value as it was `given`, and as the store has it, each
    None without one.

    `family` and `modules` are the model's, `local` says that this process does the work, `indexed`
    that the run builds an index.
    """

    given: Any = None
    remembered: Any = None
    family: str = ""
    modules: StModules = StModules()  # noqa: RUF009 (it is frozen)
    accelerator: bool = False
    device: str = "auto"
    local: bool = True
    indexed: bool = False


@dataclass(frozen=True)
class Rule:
    """One rule: in words when it holds and what it gives, and the same as functions of the case."""

    when: str
    gives: str
    holds: Callable[[Case], bool]
    value: Callable[[Case], Any]


def decide(option: str, case: Case) -> Any:
    """The value of an option. Raises `OptionError` if it has to be given."""
    return next(rule.value(case) for rule in RULES[option] if rule.holds(case))


def _no_dtype(_: Case) -> Any:
    raise OptionError(
        "--dtype auto cannot know the workers' processors; say --dtype float32 or bfloat16"
    )


def _is_named(case: Case) -> bool:
    return case.given not in (None, "auto")


def _is_given(case: Case) -> bool:
    return case.given is not None


def _is_remembered(case: Case) -> bool:
    return case.remembered is not None


def _always(_: Case) -> bool:
    return True


def _given(case: Case) -> Any:
    return case.given


def _remembered(case: Case) -> Any:
    return case.remembered


_NAMED = Rule("it is named", "what is named", _is_named, _given)
_GIVEN = Rule("it is given", "what is given", _is_given, _given)
_STORE = Rule("the store has one", "the store's", _is_remembered, _remembered)
RULES: Mapping[str, tuple[Rule, ...]] = {
    "--dtype": (
        _NAMED,
        _STORE,
        Rule(
            "the model is of a family that computes in float32 alone"
            f" ({', '.join(sorted(FLOAT32_ONLY))})",
            "float32",
            lambda case: case.family in FLOAT32_ONLY,
            lambda _: "float32",
        ),
        Rule(
            "`--accelerator` is given",
            "bfloat16",
            lambda case: case.accelerator,
            lambda _: "bfloat16",
        ),
        Rule(
            "other machines do the work",
            "exit status 2: it has to be named",
            lambda case: not case.local,
            _no_dtype,
        ),
        Rule(
            "else",
            "bfloat16 where this machine's device multiplies it in hardware, else float32",
            _always,
            lambda case: native_dtype(case.device),
        ),
    ),
    "--metric": (
        _NAMED,
        Rule(
            "it is not given, and the store has one",
            "the store's",
            lambda case: case.given is None and case.remembered is not None,
            _remembered,
        ),
        Rule(
            "the model says nothing, or what an index can have (`similarity_fn_name`), or an index"
            " is built",
            "the model's; cosine where it says nothing; exit status 2 for one that no index has",
            lambda case: case.indexed or case.modules.similarity in (None, *METRICS),
            lambda case: case.modules.metric,
        ),
        Rule("else", "cosine", _always, lambda _: "cosine"),
    ),
    "--partition": (_GIVEN, _STORE, Rule("else", "file", _always, lambda _: "file")),
    "--unit-tokens": (
        _GIVEN,
        _STORE,
        Rule(
            "`--accelerator` is given, or `--device cuda`",
            f"{UNIT_TOKENS_ACCELERATOR:,}",
            lambda case: case.accelerator or case.device.startswith("cuda"),
            lambda _: UNIT_TOKENS_ACCELERATOR,
        ),
        Rule("else", f"{UNIT_TOKENS:,}", _always, lambda _: UNIT_TOKENS),
    ),
}
