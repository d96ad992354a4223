"""SPECs of calibrations: `name:item,item,...`, and the one sum of two, `standardize+remove-top`. No
torch, no numpy.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from transforms.base.errors import OptionError
from transforms.space.spec_options import Option, Value, without_added_defaults

_VARIANCE = Option(("population", "sample"), "population")

# What may be said of each calibration, defaults from the papers; see the functions that fit them.
CALIBRATIONS: dict[str, dict[str, Option]] = {
    "standardize": {"variance": _VARIANCE},
    "remove-top": {
        "top": Option(("auto",), "auto", number=True),
        "centred": Option(("yes", "no"), "yes"),
    },
    "standardize+remove-top": {
        "variance": _VARIANCE,
        "top": Option(("auto",), "auto", number=True),
    },
    "whitening": {
        "width": Option(("all",), "all", number=True),
        "covariance": Option(("sample", "population"), "sample"),
        "floor": Option(("auto",), "auto", decimal=True),
        "ridge": Option((), 0.0, decimal=True),
        "shrinkage": Option((), 0.0, decimal=True),
        "short": Option(("reduce", "pad"), "reduce"),
    },
    "flow": {
        "levels": Option((), 2, number=True),
        "depth": Option((), 3, number=True),
        "width": Option((), 32, number=True),
        "lr": Option((), 0.001, decimal=True),
        "epochs": Option((), 1.0, decimal=True),
        "variant": Option(("reference", "paper"), "reference"),
        "seed": Option((), 1234, number=True, added=True),
    },
}
# The key that an item without `key=` is the value of.
POSITIONAL = {"remove-top": "top", "whitening": "width"}
_ABOVE_ZERO = frozenset(("width", "levels", "depth"))
_BELOW_ONE = frozenset(("floor", "shrinkage"))
# Mu & Viswanath, arXiv:1702.01417, section 2: about C / 100 of C components
_COMPONENTS_A_DIRECTION = 100


_WORDS = frozenset(("all", "auto"))


@dataclass(frozen=True)
class CalibrationSpec:
    """A calibration's name and every parameter it has, defaults filled in."""

    name: str
    parameters: Mapping[str, Value] = field(default_factory=dict)

    def __str__(self) -> str:
        """The canonical SPEC: keys in one order, defaults left out (a number of directions or
        components stays).
        """
        return "+".join(self._part(name) for name in self.name.split("+"))

    def fitted_to(self, width: int) -> "CalibrationSpec":
        """The same for vectors of so many components: one of each hundred is the direction to
        remove, one at least.
        """
        if self.parameters.get("top") != "auto":
            return self
        return CalibrationSpec(
            self.name,
            {
                **self.parameters,
                "top": min(max(1, round(width / _COMPONENTS_A_DIRECTION)), width - 1),
            },
        )

    def to_json(self) -> dict[str, Value]:
        """The parameters by key, the defaults of those that were added later left out."""
        return without_added_defaults(CALIBRATIONS[self.name], self.parameters)

    def _part(self, name: str) -> str:
        schema, position = CALIBRATIONS[self.name], POSITIONAL.get(name)
        items = (
            [str(self.parameters[position])]
            if position and self.parameters[position] not in _WORDS
            else []
        )
        keys = [key for key in CALIBRATIONS[name] if key in schema and key != position]
        items += [
            f"{key}={self.parameters[key]}"
            for key in keys
            if self.parameters[key] != schema[key].default
        ]
        return f"{name}:{','.join(items)}" if items else name


def parse_calibration(text: str) -> CalibrationSpec:
    """The calibration meant by a SPEC; `OptionError` (one line, with what is allowed) where there
    is none.
    """
    parts = [part.partition(":")[::2] for part in re.split(r"\+(?=[a-z])", text)]
    name = "+".join(part for part, _ in parts)
    if name not in CALIBRATIONS:
        raise OptionError(f"calibration {text!r} is not known; allowed: {', '.join(CALIBRATIONS)}")
    given: dict[str, Value] = {}
    for part, rest in parts:
        for item in rest.split(",") if rest else []:
            key, word = _key_and_word(text, name, part, item)
            if key in given:
                raise OptionError(f"calibration {text!r}: {key!r} is given twice; say it once")
            given[key] = _value(text, name, key, word)
    defaults = {
        key: option.default
        for key, option in CALIBRATIONS[name].items()
        if option.default is not None
    }
    return CalibrationSpec(name, {**defaults, **given})


def _key_and_word(text: str, name: str, part: str, item: str) -> tuple[str, str]:
    key, equals, word = item.partition("=")
    key, word = (key, word) if equals else (POSITIONAL.get(part, ""), item)
    if key not in CALIBRATIONS[name] or key not in CALIBRATIONS[part]:
        raise OptionError(f"calibration {text!r}: {item!r} is not known; {_allowed(name)}")
    return key, word


def _value(text: str, name: str, key: str, word: str) -> Value:
    value = CALIBRATIONS[name][key].parse(word)
    too_much = key in _BELOW_ONE and isinstance(value, float) and value >= 1
    if value is None or too_much or (key in _ABOVE_ZERO and value == 0):
        raise OptionError(f"calibration {text!r}: {key}={word} is not allowed; {_allowed(name)}")
    return value


def _allowed(name: str) -> str:
    keys = ", ".join(f"{key}={option.allowed()}" for key, option in CALIBRATIONS[name].items())
    return f"allowed for {name}: {keys}"
