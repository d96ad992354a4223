"""The values of options as people write them, and what is said of one that cannot be."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from transforms.errors import OptionError

Kind = Callable[[str], Any]
SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
SIZES = {"k": 10**3, "m": 10**6, "g": 10**9}


def check(options: object, kinds: Mapping[str, Kind]) -> None:
    """Raise `OptionError` for the first field of `options` that is given (not None) and not of its kind."""
    for name, kind in kinds.items():
        value = getattr(options, name)
        try:
            if value is not None:
                kind(str(value))
        except OptionError as error:
            raise OptionError(f"argument --{name.replace('_', '-')}: {error}") from None


def size(text: str) -> int:
    """A count with an optional k, M or G: 256k, 1M."""
    match = re.fullmatch(r"(\d+)([kmgKMG]?)", text)
    if match is None or int(match[1]) == 0:
        raise OptionError(f"{text} is not a positive count (as in 50000, 256k or 1M)")
    return int(match[1]) * SIZES.get(match[2].lower(), 1)


def filled(text: str) -> str:
    """A value that is not blank, as that of an unset shell variable is."""
    if not text.strip():
        raise OptionError("is empty")
    return text


def duration(text: str) -> float:
    """A span of time in seconds: 7d, 12h, 30m, 45s."""
    match = re.fullmatch(r"(\d+)([dhms])", text)
    if match is None:
        raise OptionError(f"{text} is not a span of time (as in 7d, 12h or 30m)")
    return int(match[1]) * SECONDS[match[2]]


def positive(text: str) -> int:
    """A whole number above zero."""
    if not text.isdecimal() or int(text) == 0:
        raise OptionError(f"{text} is not a whole number above zero")
    return int(text)


def fraction(text: str) -> float:
    """A number from 0 to 1."""
    return _number(text, 1, "a number from 0 to 1")


def distance(text: str) -> float:
    """A cosine distance: a number from 0 to 2."""
    return _number(text, 2, "a cosine distance, a number from 0 to 2")


def price(text: str) -> float:
    """An amount of money, zero or more."""
    return _number(text, math.inf, "an amount of money (as in 1.20)")


def names(text: str) -> tuple[str, ...]:
    """The names in a comma-separated list; none for an empty text."""
    found = tuple(name for name in text.split(",") if name)
    if len(set(found)) != len(found):
        raise OptionError(f"{text} names a column twice")
    return found


def delimiter(text: str) -> str:
    """One character between values; `tab` or `\\t` is a tab."""
    found = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(found) != 1 or found in '"\r\n':
        raise OptionError(f"{text!a} is not one character to stand between values (as in ';' or tab)")
    return found


def device(text: str) -> str:
    """`auto`, `cpu`, `cuda`, or one GPU: `cuda:1`."""
    if re.fullmatch(r"auto|cpu|cuda(:\d+)?", text) is None:
        raise OptionError(f"invalid choice: {text!r} (choose from 'auto', 'cpu', 'cuda', 'cuda:N')")
    return text


def one_of(*choices: str) -> Kind:
    """The kind whose values are these words."""

    def chosen(text: str) -> str:
        if text not in choices:
            raise OptionError(f"invalid choice: {text!r} (choose from {', '.join(map(repr, choices))})")
        return text

    return chosen


def _number(text: str, most: float, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most or math.isinf(value):
        raise OptionError(f"{text} is not {what}")
    return value
