"""SPECs of calibrations, and one sum, `standardize+remove-top`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sentence_beam.transforms.space.spec_options import Grammar, Option, Value

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
        "width": Option(("all",), "all", number=True, least=1),
        "covariance": Option(("sample", "population"), "sample"),
        "floor": Option(("auto",), "auto", decimal=True, below=1),
        "ridge": Option((), 0.0, decimal=True),
        "shrinkage": Option((), 0.0, decimal=True, below=1),
        "short": Option(("reduce", "pad"), "reduce"),
    },
    "flow": {
        "levels": Option((), 2, number=True, least=1),
        "depth": Option((), 3, number=True, least=1),
        "width": Option((), 32, number=True, least=1),
        "lr": Option((), 0.001, decimal=True),
        "epochs": Option((), 1.0, decimal=True),
        "variant": Option(("reference", "paper"), "reference"),
        "seed": Option((), 1234, number=True),
    },
}
# The key of an item without `key=`.
POSITIONAL = {"remove-top": "top", "whitening": "width"}
GRAMMAR = Grammar("calibration", CALIBRATIONS, POSITIONAL)
# Mu & Viswanath, arXiv:1702.01417, section 2: about C / 100 of C components
_COMPONENTS_A_DIRECTION = 100


@dataclass(frozen=True)
class CalibrationSpec:
    """A calibration's name and all its parameters, defaults included."""

    name: str
    parameters: Mapping[str, Value] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the canonical SPEC: keys in one order, without defaults."""
        parts = []
        for part in self.name.split("+"):
            values = {key: self.parameters[key] for key in _list_keys(self.name, part)}
            parts.append(GRAMMAR.write(part, values))
        return "+".join(parts)

    def fit_to(self, width: int) -> "CalibrationSpec":
        """Return the SPEC for vectors of so many components.

        `top=auto` becomes one direction for each hundred components, at least one.
        """
        if self.parameters.get("top") != "auto":
            return self
        top = min(max(1, round(width / _COMPONENTS_A_DIRECTION)), width - 1)
        return CalibrationSpec(self.name, {**self.parameters, "top": top})

    def to_json(self) -> dict[str, Value]:
        """Return the parameters by key."""
        return dict(self.parameters)


def parse_calibration(text: str) -> CalibrationSpec:
    """Parse the SPEC of a calibration; raise `OptionError` that lists the allowed ones."""
    parts = re.split(r"\+(?=[a-z])", text)
    name = "+".join(part.partition(":")[0] for part in parts)
    GRAMMAR.check_name(name)
    of_parts = replace(GRAMMAR, names={part: _list_keys(name, part) for part in name.split("+")})
    options = CALIBRATIONS[name].items()
    values = {key: option.default for key, option in options if option.default is not None}
    for part in parts:
        values |= of_parts.read(part.removesuffix(":"))[1]
    return CalibrationSpec(name, values)


def _list_keys(name: str, part: str) -> dict[str, Option]:
    """Return the keys that a calibration takes in one of its parts."""
    schema = CALIBRATIONS[name]
    return {key: schema[key] for key in CALIBRATIONS[part] if key in schema}
