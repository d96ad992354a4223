"""SPECs of calibrations: `name:item,item,...`, and one sum, `standardize+remove-top`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from transforms.base.errors import OptionError
from transforms.space.spec_options import Option, Value, without_added_defaults

_VARIANCE = Option(("population", "sample"), "population")

# The parameters of each calibration, with the papers' defaults; see the functions that fit them.
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
# The key of an item without `key=`.
POSITIONAL = {"remove-top": "top", "whitening": "width"}
_ABOVE_ZERO = frozenset(("width", "levels", "depth"))
_BELOW_ONE = frozenset(("floor", "shrinkage"))
# Mu & Viswanath, arXiv:1702.01417, section 2: about C / 100 of C components
_COMPONENTS_A_DIRECTION = 100
_WORDS = frozenset(("all", "auto"))


@dataclass(frozen=True)
class CalibrationSpec:
    """A calibration's name and all its parameters, defaults included."""

    name: str
    parameters: Mapping[str, Value] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the canonical SPEC: keys in one order, without defaults.

        A number of directions or components is never omitted.
        """
        return "+".join(self._part(name) for name in self.name.split("+"))

    def fitted_to(self, width: int) -> "CalibrationSpec":
        """Return the SPEC for vectors of so many components.

        `top=auto` becomes one direction for each hundred components, at least one.
        """
        if self.parameters.get("top") != "auto":
            return self
        top = min(max(1, round(width / _COMPONENTS_A_DIRECTION)), width - 1)
        return CalibrationSpec(self.name, {**self.parameters, "top": top})

    def to_json(self) -> dict[str, Value]:
        """Return the parameters by key, without the defaults of those that were added later."""
        return without_added_defaults(CALIBRATIONS[self.name], self.parameters)

    def _part(self, name: str) -> str:
        schema = CALIBRATIONS[self.name]
        position = POSITIONAL.get(name)
        items = []
        if position and self.parameters[position] not in _WORDS:
            items.append(str(self.parameters[position]))
        for key in CALIBRATIONS[name]:
            is_known = key in schema and key != position
            if is_known and self.parameters[key] != schema[key].default:
                items.append(f"{key}={self.parameters[key]}")
        if not items:
            return name
        return f"{name}:{','.join(items)}"


def parse_calibration(text: str) -> CalibrationSpec:
    """Parse the SPEC of a calibration; raise `OptionError` that lists the allowed ones."""
    parts = [part.partition(":")[::2] for part in re.split(r"\+(?=[a-z])", text)]
    name = "+".join(part for part, _ in parts)
    if name not in CALIBRATIONS:
        raise OptionError(f"calibration {text!r} is not known; allowed: {', '.join(CALIBRATIONS)}")
    given: dict[str, Value] = {}
    for part, rest in parts:
        if not rest:
            continue
        for item in rest.split(","):
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
    if not equals:
        key = POSITIONAL.get(part, "")
        word = item
    if key not in CALIBRATIONS[name] or key not in CALIBRATIONS[part]:
        raise OptionError(f"calibration {text!r}: {item!r} is not known; {_allowed(name)}")
    return key, word


def _value(text: str, name: str, key: str, word: str) -> Value:
    value = CALIBRATIONS[name][key].parse(word)
    is_too_large = key in _BELOW_ONE and isinstance(value, float) and value >= 1
    is_too_small = key in _ABOVE_ZERO and value == 0
    if value is None or is_too_large or is_too_small:
        raise OptionError(f"calibration {text!r}: {key}={word} is not allowed; {_allowed(name)}")
    return value


def _allowed(name: str) -> str:
    keys = ", ".join(f"{key}={option.allowed()}" for key, option in CALIBRATIONS[name].items())
    return f"allowed for {name}: {keys}"
