"""An option of a SPEC: its allowed values and its default."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

Value = str | int | float
_DECIMAL = r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]{1,2})?"


@dataclass(frozen=True)
class Option:
    """A key of a SPEC: its allowed words, its default, and whether numbers are allowed too.

    `number` allows whole numbers, `decimal` others. `pattern` is a regular expression for free
    values, which help names `form`. A default of None means that the key is required. `added`:
    earlier versions did not have the key, so its default is in no hash.
    """

    words: tuple[str, ...]
    default: Value | None
    number: bool = False
    form: str = ""
    pattern: str = ""
    decimal: bool = False
    added: bool = False

    def allowed(self) -> str:
        """The allowed values, as help and error messages write them."""
        words = list(self.words)
        if self.number:
            words.append("N")
        if self.decimal:
            words.append("X")
        if self.form:
            words.append(self.form)
        return "|".join(words)

    def parse(self, text: str) -> Value | None:
        """The value of a text, or None if it is not allowed."""
        if text in self.words or (self.pattern and re.fullmatch(self.pattern, text, re.DOTALL)):
            return text
        if self.number and text.isascii() and text.isdigit():
            return int(text)
        if self.decimal and re.fullmatch(_DECIMAL, text):
            return float(text)
        return None


def without_added_defaults(
    schema: Mapping[str, Option], given: Mapping[str, Value]
) -> dict[str, Value]:
    """The values as an earlier version had them.

    Defaults of keys that it did not have are left out.
    """
    values = {}
    for key, value in given.items():
        option = schema[key]
        if not option.added or value != option.default:
            values[key] = value
    return values
