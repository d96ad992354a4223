"""SPECs: the small language in which poolers are named on the command line.

name | name:item,item,...     item = positional argument or key=value; `template=` takes the rest of the text
a+b                           concatenation; `+` joins nowhere inside `template=`
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transforms.errors import OptionError

Value = str | int


@dataclass(frozen=True)
class Option:
    """One key of a pooler: its allowed words, whether a whole number is allowed too, and its default."""

    words: tuple[str, ...]
    default: Value
    number: bool = False

    def allowed(self) -> str:
        """The allowed values, as a person reads them."""
        return "|".join(self.words + (("N",) if self.number else ()))

    def parse(self, text: str) -> Value | None:
        """The value meant by `text`, or None where it is not allowed."""
        if text in self.words:
            return text
        return int(text) if self.number and text.isascii() and text.isdigit() else None


COUNT = Option(("all", "no-special", "drop-last-special", "no-prompt"), "all")
LAYER = Option(("last",), "last", number=True)

# What may be said of each pooler; `count` (which tokens are counted) goes with all but `auto`.
POOLERS: dict[str, dict[str, Option]] = {
    "auto": {},
    "mean": {"count": COUNT, "layer": LAYER},
    "cls": {"count": COUNT, "layer": LAYER},
    "cls-tanh": {"count": COUNT},
    "max": {"count": COUNT, "layer": LAYER},
    "mean-sqrt-len": {"count": COUNT, "layer": LAYER},
    "last-token": {"count": COUNT, "layer": LAYER},
    "weighted-mean": {"count": COUNT, "layer": LAYER, "rank": Option(("counted", "attended"), "counted")},
    "static": {"count": COUNT, "from": Option(("raw", "embeddings"), "raw")},
    "first-last": {"count": COUNT, "first": Option(("embeddings", "block1"), "embeddings")},
    "last2": {"count": COUNT},
}


@dataclass(frozen=True)
class PoolerPart:
    """One pooler of a concatenation, with every option it has, defaults filled in, sorted by key."""

    name: str
    options: tuple[tuple[str, Value], ...]

    def option(self, key: str) -> Value:
        """The value of one option; `KeyError` where this pooler has no such key."""
        return dict(self.options)[key]

    def to_json(self) -> dict[str, Value]:
        """`{"name": ..., key: value, ...}`."""
        return {"name": self.name, **dict(self.options)}

    def dim(self, hidden: int, embedding: int) -> int:
        """Width of this part's vector."""
        return embedding if self.name == "static" and self.option("from") == "raw" else hidden

    def __str__(self) -> str:
        schema = POOLERS[self.name]
        said = [f"{key}={value}" for key, value in self.options if value != schema[key].default]
        return ":".join([self.name, ",".join(said)]) if said else self.name


@dataclass(frozen=True)
class PoolerSpec:
    """A pooler, or several whose vectors are joined in this order."""

    parts: tuple[PoolerPart, ...]

    @property
    def is_auto(self) -> bool:
        """Whether the model's own modules decide."""
        return self.parts[0].name == "auto"

    def dim(self, hidden: int, embedding: int) -> int:
        """Width of the joined vector for a model with these widths of states and of embedding rows."""
        return sum(part.dim(hidden, embedding) for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """`{"parts": [...]}` with every parameter, defaults included."""
        return {"parts": [part.to_json() for part in self.parts]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "PoolerSpec":
        """The inverse of `to_json`; `OptionError` for names, keys or values that are not allowed."""
        return cls(tuple(_part_from_json(part) for part in value["parts"]))

    def __str__(self) -> str:
        return "+".join(str(part) for part in self.parts)


def parse_pooler(text: str) -> PoolerSpec:
    """The pooler meant by a SPEC; `OptionError` (one line, with what is allowed) where there is none."""
    parts = tuple(_parse_part(piece) for piece in _split_outside_template(text, "+"))
    if len(parts) > 1 and any(part.name == "auto" for part in parts):
        raise OptionError(f"pooler {text!r}: auto stands alone, it cannot be joined with others")
    return PoolerSpec(parts)


def make_part(name: str, **options: Value) -> PoolerPart:
    """A part with these options and the defaults of all others, all of them known to be allowed."""
    filled = {key: options.get(key, option.default) for key, option in POOLERS[name].items()}
    return PoolerPart(name, tuple(sorted(filled.items())))


def _split_outside_template(text: str, separator: str) -> list[str]:
    head, found, template = text.partition("template=")
    pieces = head.split(separator)
    pieces[-1] += found + template
    return pieces


def _parse_part(text: str) -> PoolerPart:
    name, colon, rest = text.partition(":")
    schema = _schema(name)
    given: dict[str, Value] = {}
    for item in _split_outside_template(rest, ",") if colon else []:
        key, equals, word = item.partition("=")
        if not equals:
            raise OptionError(f"pooler {text!r}: {item!r} is not key=value; {_keys_allowed(name)}")
        if key in given:
            raise OptionError(f"pooler {text!r}: {key!r} is given twice; say it once")
        given[key] = _value(name, schema, key, word)
    return make_part(name, **given)


def _schema(name: str) -> dict[str, Option]:
    if name not in POOLERS:
        raise OptionError(f"pooler {name!r} is not known; allowed: {', '.join(POOLERS)}, joined by +")
    return POOLERS[name]


def _keys_allowed(name: str) -> str:
    keys = ", ".join(f"{key}={option.allowed()}" for key, option in POOLERS[name].items())
    return f"allowed for {name}: {keys}" if keys else f"{name} takes no options"


def _value(name: str, schema: Mapping[str, Option], key: str, word: str) -> Value:
    if key not in schema:
        raise OptionError(f"pooler {name!r} has no option {key!r}; {_keys_allowed(name)}")
    value = schema[key].parse(word)
    if value is None:
        raise OptionError(f"pooler {name!r}: {key}={word!r} is not allowed; say {key}={schema[key].allowed()}")
    return value


def _part_from_json(value: Mapping[str, Any]) -> PoolerPart:
    name = str(value["name"])
    schema = _schema(name)
    given = {key: _value(name, schema, key, str(word)) for key, word in value.items() if key != "name"}
    return make_part(name, **given)
