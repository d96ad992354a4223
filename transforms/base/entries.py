"""Parts of JSON files as frozen dataclasses, whose fields' types are what is checked before any
value is used.

An int is a count, a float any finite number; `Annotated` names a reader of its own. Fields with a
default may be missing. What a class has no field for is kept, since later versions add some.
"""

import math
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from datetime import datetime
from functools import cache, partial
from typing import Annotated, Any, NoReturn, Self, Union, get_args, get_origin, get_type_hints

Reader = Callable[[Any, str], Any]  # of a value and the field's name: the value; raises ValueError

MOST = 1 << 53  # the whole numbers that every reader of JSON has exactly
_HEX = re.compile(r"[0-9a-f]+")
# Metadata of a field that is not in the JSON, and of one that is left out of it if it has its
# default.
BESIDE, SPARSE = {"beside": True}, {"sparse": True}


class WrongFieldError(ValueError):
    """A field that is not what is wanted; `name` is that of the outermost object's field."""

    def __init__(self, where: str, wanted: str):
        super().__init__(f"{where} is not {wanted}")
        self.name, self.wanted = re.split(r"[.[]", where, maxsplit=1)[0], wanted


def fail(where: str, wanted: str) -> NoReturn:
    """Raise WrongFieldError: a field is not what is wanted."""
    raise WrongFieldError(where, wanted)


def _of_type(kind: type, wanted: str) -> Reader:
    return lambda value, where: value if isinstance(value, kind) else fail(where, wanted)


text, flag, record = (
    _of_type(str, "a string"),
    _of_type(bool, "true or false"),
    _of_type(dict, "an object"),
)


def count(value: Any, where: str, most: int = MOST) -> int:
    """A whole number that is not negative."""
    if type(value) is not int or not 0 <= value <= most:
        fail(where, "a count" if most == MOST else f"a count of at most {most}")
    return value


def number(value: Any, where: str) -> float:
    """Any number that is finite."""
    if type(value) not in (int, float) or not -MOST <= value <= MOST:
        fail(where, "a number")
    return value


def time(value: Any, where: str) -> str:
    """A time in ISO 8601."""
    try:
        datetime.fromisoformat(text(value, where))
    except ValueError:
        fail(where, "a time")
    return value


def finite(value: Any, where: str) -> float:
    """Any number that is neither infinite nor NaN, however large."""
    if type(value) not in (int, float) or not math.isfinite(value):
        fail(where, "a number")
    return value


def matching(pattern: str, wanted: str) -> Reader:
    """A text that matches a pattern as a whole."""
    compiled = re.compile(pattern)
    return lambda value, where: (
        value if isinstance(value, str) and compiled.fullmatch(value) else fail(where, wanted)
    )


def hex_digest(value: Any, where: str) -> str:
    """A digest in hex, which may be part of paths."""
    return (
        value
        if isinstance(value, str) and _HEX.fullmatch(value)
        else fail(where, "a digest in hex")
    )


def one_of(*values: str) -> Reader:
    """One of some words."""
    return lambda value, where: (
        value if value in values else fail(where, f"one of {', '.join(values)}")
    )


def _each(make: Callable[[Any], Any], read: Reader, value: Any, where: str) -> Any:
    if not isinstance(value, list):
        fail(where, "a list")
    return make(read(item, f"{where}[{place}]") for place, item in enumerate(value))


def _maybe(read: Reader, value: Any, where: str) -> Any:
    return None if value is None else read(value, where)


def _values(read: Reader, value: Any, where: str) -> dict[str, Any]:
    return {name: read(item, f"{where}.{name}") for name, item in record(value, where).items()}


def dataclass_of(kind: Any, value: Any, where: str = "") -> Any:
    """An object as a dataclass that is no entry; one with a `from_json` of its own is made by that.

    Raises ValueError naming, below `where`, a field that is missing or of another type.
    """
    found = _fields_of(kind, value, where)
    return kind.from_json(value) if hasattr(kind, "from_json") else kind(**found)


def _fields_of(kind: type, value: Any, where: str) -> dict[str, Any]:
    """The fields of a dataclass that an object has, each read. Raises ValueError naming one that is
    missing.
    """
    record(value, where)
    found, prefix = {}, f"{where}." if where else ""
    for name, (read, default) in _readers(kind).items():
        if name in value:
            found[name] = read(value[name], prefix + name)
        elif default is MISSING:
            raise ValueError(f"{prefix}{name} is missing")
    return found


@cache
def _readers(kind: Any) -> dict[str, tuple[Reader, Any]]:
    """What reads each field of a dataclass, and its default (MISSING: it has none)."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        item.name: (
            _reader(hints[item.name]),
            item.default if item.default_factory is MISSING else item.default_factory(),
        )
        for item in fields(kind)
        if not item.metadata.get("beside")
    }


@cache
def _sparse(kind: Any) -> frozenset[str]:
    """The fields of a dataclass that are left out of the JSON if they have their defaults."""
    return frozenset(item.name for item in fields(kind) if item.metadata.get("sparse"))


def _reader(hint: Any) -> Reader:
    """What reads a value of a type."""
    kind, arguments = get_origin(hint), get_args(hint)
    if kind is Annotated:
        return arguments[1]
    if kind in (Union, types.UnionType):  # with None
        return partial(_maybe, _reader(arguments[0]))
    # a few values of different types, of this program alone
    if kind is tuple and arguments[-1] is not Ellipsis:
        return lambda value, where: tuple(value)
    if kind in (list, tuple):
        return partial(_each, kind, _reader(arguments[0]))
    if kind is dict and arguments[1] is not Any:
        return partial(_values, _reader(arguments[1]))
    if isinstance(hint, type) and issubclass(hint, JsonEntry):
        return hint.from_json
    if is_dataclass(hint):
        return partial(dataclass_of, hint)
    return {str: text, bool: flag, int: count, float: number}.get(hint, record)


@dataclass(frozen=True, slots=True)
class JsonEntry:
    """A part of a JSON file. `said` is the JSON that it was read from where that has other fields
    than the class.
    """

    said: Mapping[str, Any] | None = field(
        default=None, kw_only=True, repr=False, compare=False, metadata=BESIDE
    )

    @classmethod
    def from_json(cls, value: Any, where: str = "", **beside: Any) -> Self:
        """The entry that JSON describes, with fields that stand `beside` it.

        Raises ValueError naming, below `where`, a field that is missing or that no store has so.
        """
        kind: Any = cls
        found = _fields_of(cls, value, where)
        is_whole = len(found) == len(value) and _readers(kind).keys() - found.keys() <= _sparse(
            kind
        )
        said = None if is_whole else value
        return cls(**found, **beside, said=said)

    def to_json(self) -> dict[str, Any]:
        """The JSON of the entry; of one that was read, with its other fields, and without defaults
        that it lacked.
        """
        kind: Any = type(self)
        known, sparse, said = _readers(kind), _sparse(kind), self.said
        found = {name: item for name, item in (said or {}).items() if name not in known}
        for name, (_, default) in known.items():
            value = getattr(self, name)
            is_written = name not in sparse if said is None else name in said
            if is_written or value != default:
                found[name] = _plain(value)
        return found


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
