"""The grammar of SPECs, and the messages about wrong ones.

    name
    name:item,item,...    an item is key=value, or a value alone for the key that needs no name

Each kind of SPEC (pooler, chunks, calibration) is a `Grammar`: its names, keys, values, defaults.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.values import find_nearest

Value = str | int | float
_NUMBER = r"[0-9]{1,15}"
_DECIMAL = r"[0-9]{1,15}(\.[0-9]+)?(e[+-]?[0-9]{1,2})?"


@dataclass(frozen=True)
class Option:
    """A key of a SPEC: its allowed words, its default, and whether numbers are allowed too.

    `number` allows whole numbers from `least`, `decimal` others that are smaller than `below`.
    `pattern` is a regular expression for free values, which help names `form`. A default of None
    means that the key is required, or open until the model is known.
    """

    words: tuple[str, ...]
    default: Value | None
    number: bool = False
    form: str = ""
    pattern: str = ""
    decimal: bool = False
    least: int = 0
    below: float | None = None

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

    @property
    def limits(self) -> str:
        """The limits of numbers, as messages end with them."""
        if self.least:
            return f" (N from {self.least})"
        if self.below is not None:
            return f" (X below {self.below:g})"
        return ""

    def parse(self, text: str) -> Value | None:
        """The value of a text, or None if it is not allowed."""
        if text in self.words or (self.pattern and re.fullmatch(self.pattern, text, re.DOTALL)):
            return text
        if self.number and re.fullmatch(_NUMBER, text):
            number = int(text)
            return number if number >= self.least else None
        if self.decimal and re.fullmatch(_DECIMAL, text):
            decimal = float(text)
            return decimal if self.below is None or decimal < self.below else None
        return None


@dataclass(frozen=True)
class Grammar:
    """The SPECs of one kind: `names`, each with its keys.

    `kind` begins every message. `positional` has, by name, the key that needs no `key=`. The value
    of the key `rest` is the remaining text with its commas. `joined` ends the list of names in
    messages.
    """

    kind: str
    names: Mapping[str, Mapping[str, Option]]
    positional: Mapping[str, str] = field(default_factory=dict)
    rest: str = ""
    joined: str = ""

    def read(self, text: str) -> tuple[str, dict[str, Value]]:
        """The name and the given values of a SPEC.

        Raises `OptionError`, in one line with the allowed names, keys or values.
        """
        name, colon, rest = text.partition(":")
        self.check_name(name)
        if not colon:
            return name, {}
        return name, self._read_values(text, name, rest)

    def read_items(self, text: str, name: str) -> dict[str, Value]:
        """The given values of a SPEC that has only items; raises as `read`."""
        return self._read_values(text, name, text)

    def _read_values(self, text: str, name: str, items: str) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for item in self._split_items(items):
            key, word = self._split_item(text, name, item)
            if key in values:
                raise OptionError(
                    f"{self.kind} {text!r}: {key!r} is given twice; say it once, others as"
                    " key=value"
                )
            values[key] = self.value(text, name, key, word)
        return values

    def write(self, name: str, values: Mapping[str, object]) -> str:
        """The canonical SPEC: the value without a key first, others in their order, no defaults."""
        keys = self.names[name]
        items: list[str] = []
        for key, value in values.items():
            if value == keys[key].default:
                continue
            if key == self.positional.get(name):
                items.insert(0, str(value))
            else:
                items.append(f"{key}={value}")
        return f"{name}:{','.join(items)}" if items else name

    def check_name(self, name: str) -> None:
        """Raise `OptionError` for an unknown name."""
        if name not in self.names:
            allowed = ", ".join(self.names)
            hint = _make_hint(name, self.names)
            raise OptionError(
                f"{self.kind} {name!r} is not known; allowed: {allowed}{self.joined}{hint}"
            )

    def value(self, text: str, name: str, key: str, word: str) -> Value:
        """The value of a key in the SPEC `text`. Raises `OptionError` if it is not allowed."""
        keys = self.names[name]
        if key not in keys:
            raise self._make_error(text, name, f"{key}={word}")
        option = keys[key]
        value = option.parse(word)
        if value is None:
            item = f"{key}={word}"
            if not item.isprintable():
                item = repr(item)
            raise OptionError(
                f"{self.kind} {text!r}: {item} is not allowed; say"
                f" {key}={option.allowed()}{option.limits}"
            )
        return value

    def check_complete(self, name: str, values: Mapping[str, object]) -> None:
        """Raise `OptionError` if a key has no value."""
        for key, option in self.names[name].items():
            if values[key] is None:
                form = f"{key}={option.allowed()}"
                if key == self.positional.get(name):
                    form = option.allowed()
                raise OptionError(f"{self.kind} {name!r} needs {form}; {self.allowed(name)}")

    def label(self, name: str, key: str) -> str:
        """A key as it begins an item: `count=`, or `[head=]` if it needs no name."""
        return f"[{key}=]" if key == self.positional.get(name) else f"{key}="

    def allowed(self, name: str) -> str:
        """The keys of a name with their values, as messages end with them."""
        options = self.names[name].items()
        keys = ", ".join(f"{self.label(name, key)}{option.allowed()}" for key, option in options)
        return f"allowed for {name}: {keys}" if keys else f"{name} takes no options"

    def _split_items(self, text: str) -> list[str]:
        head, rest = self.split_rest(text)
        items = head.split(",")
        items[-1] += rest
        return items

    def split_rest(self, text: str) -> tuple[str, str]:
        """The text before and from the key that takes the remaining text."""
        if not self.rest:
            return text, ""
        head, key, rest = text.partition(f"{self.rest}=")
        return head, key + rest

    def _split_item(self, text: str, name: str, item: str) -> tuple[str, str]:
        key, equals, word = item.partition("=")
        # A path without a key may have = in it.
        if equals and re.fullmatch("[a-z-]*", key):
            return key, word
        position = self.positional.get(name)
        if not item or position is None:
            raise self._make_error(text, name, item)
        return position, item

    def _make_error(self, text: str, name: str, item: str) -> OptionError:
        keys = self.names[name]
        say = "say key=value, " if keys else ""
        hint = _make_hint(item.partition("=")[0], keys)
        return OptionError(
            f"{self.kind} {text!r}: {item!r} is not known; {say}{self.allowed(name)}{hint}"
        )


def _make_hint(word: str, words: Iterable[str]) -> str:
    near = find_nearest(word, words)
    return f"; did you mean {near}?" if near else ""
