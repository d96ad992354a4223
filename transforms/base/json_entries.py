"""Parts of JSON files as frozen dataclasses, checked against the types of their fields.

An int is a count, a float any finite number; `Annotated` names a reader of its own. Fields with a
default may be missing.
"""

import math
import re
import types
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from datetime import datetime
from functools import cache, partial
from typing import Annotated, Any, NoReturn, Self, Union, get_args, get_origin, get_type_hints

# takes a value and the field's name, returns the checked value, raises ValueError
Reader = Callable[[Any, str], Any]

MOST = 1 << 53  # every reader of JSON has whole numbers up to this exactly
BESIDE = {"beside": True}  # metadata of a field that is not in the JSON
SPARSE = {"sparse": True}  # metadata of a field that is omitted if it has its default


class WrongFieldError(ValueError):
    """A field with a wrong value; `name` is the field of the outermost object."""

    def __init__(self, where: str, wanted: str):
        super().__init__(f"{where} is not {wanted}")
        self.name = re.split(r"[.[]", where, maxsplit=1)[0]
        self.wanted = wanted


def fail(where: str, wanted: str) -> NoReturn:
    """Raise WrongFieldError: the value at `where` is not what is `wanted`."""
    raise WrongFieldError(where, wanted)


def _make_reader(kind: type, wanted: str) -> Reader:
    def read(value: Any, where: str) -> Any:
        if not isinstance(value, kind):
            fail(where, wanted)
        return value

    return read


text = _make_reader(str, "a string")
flag = _make_reader(bool, "true or false")
record = _make_reader(dict, "an object")


def count(value: Any, where: str, most: int = MOST) -> int:
    """Read a whole number from 0 to `most`."""
    if type(value) is not int or not 0 <= value <= most:
        fail(where, "a count" if most == MOST else f"a count of at most {most}")
    return value


def positive(value: Any, where: str) -> int:
    """Read a whole number from 1 to 2^53."""
    if type(value) is not int or not 1 <= value <= MOST:
        fail(where, "a whole number from 1")
    return value


def number(value: Any, where: str) -> float:
    """Read a finite number of at most 2^53 in magnitude."""
    if type(value) not in (int, float) or not -MOST <= value <= MOST:
        fail(where, "a number")
    return value


def time(value: Any, where: str) -> str:
    """Read a time in ISO 8601."""
    try:
        datetime.fromisoformat(text(value, where))
    except ValueError:
        fail(where, "a time")
    return value


def finite(value: Any, where: str) -> float:
    """Read a number that is neither infinite nor NaN, however large."""
    if type(value) not in (int, float) or not math.isfinite(value):
        fail(where, "a number")
    return value


def matching(pattern: str, wanted: str) -> Reader:
    """Return a reader of texts that match a pattern as a whole."""
    compiled = re.compile(pattern)

    def read(value: Any, where: str) -> str:
        if not isinstance(value, str) or compiled.fullmatch(value) is None:
            fail(where, wanted)
        return value

    return read


hex_digest = matching("[0-9a-f]+", "a digest in hex")  # which may be part of paths


def one_of(*values: str) -> Reader:
    """Return a reader of a few words."""

    def read(value: Any, where: str) -> Any:
        if value not in values:
            fail(where, f"one of {', '.join(values)}")
        return value

    return read


def _read_list(make: Callable[[Any], Any], read: Reader, value: Any, where: str) -> Any:
    if not isinstance(value, list):
        fail(where, "a list")
    return make(read(item, f"{where}[{place}]") for place, item in enumerate(value))


def _read_optional(read: Reader, value: Any, where: str) -> Any:
    return None if value is None else read(value, where)


def _read_values(read: Reader, value: Any, where: str) -> dict[str, Any]:
    return {name: read(item, f"{where}.{name}") for name, item in record(value, where).items()}


def read_dataclass(kind: Any, value: Any, where: str = "") -> Any:
    """Read an object as a dataclass that is no entry, by its own `from_json` if it has one.

    Raises ValueError naming, below `where`, a field that is missing or of another type.
    """
    values = _read_fields(kind, value, where)
    return kind.from_json(value) if hasattr(kind, "from_json") else kind(**values)


def _read_fields(kind: type, value: Any, where: str) -> dict[str, Any]:
    """Read the fields of a dataclass that an object has.

    Raises ValueError naming a field that is missing and has no default.
    """
    record(value, where)
    values = {}
    prefix = f"{where}." if where else ""
    for name, (read, default) in _find_readers(kind).items():
        if name in value:
            values[name] = read(value[name], prefix + name)
        elif default is MISSING:
            raise ValueError(f"{prefix}{name} is missing")
    return values


@cache
def _find_readers(kind: Any) -> dict[str, tuple[Reader, Any]]:
    """Return the reader of each field of a dataclass, and its default (MISSING: it has none)."""
    hints = get_type_hints(kind, include_extras=True)
    readers = {}
    for item in fields(kind):
        if item.metadata.get("beside"):
            continue
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        readers[item.name] = (_find_reader(hints[item.name]), default)
    return readers


@cache
def _find_sparse(kind: Any) -> frozenset[str]:
    """Return the fields of a dataclass that the JSON omits if they have their defaults."""
    return frozenset(item.name for item in fields(kind) if item.metadata.get("sparse"))


def _find_reader(hint: Any) -> Reader:
    """Return the reader of values of a type."""
    kind = get_origin(hint)
    arguments = get_args(hint)
    if kind is Annotated:
        return arguments[1]
    if kind in (Union, types.UnionType):  # with None
        return partial(_read_optional, _find_reader(arguments[0]))
    # a few values of different types, which only this program writes
    if kind is tuple and arguments[-1] is not Ellipsis:
        return lambda value, where: tuple(value)
    if kind in (list, tuple):
        return partial(_read_list, kind, _find_reader(arguments[0]))
    if kind is dict and arguments[1] is not Any:
        return partial(_read_values, _find_reader(arguments[1]))
    if isinstance(hint, type) and issubclass(hint, JsonEntry):
        return hint.from_json
    if is_dataclass(hint):
        return partial(read_dataclass, hint)
    return {str: text, bool: flag, int: count, float: number}.get(hint, record)


@dataclass(frozen=True, slots=True)
class JsonEntry:
    """A part of a JSON file."""

    @classmethod
    def from_json(cls, value: Any, where: str = "", **beside: Any) -> Self:
        """Read an entry from JSON; `beside` are the fields that are not in the JSON.

        Raises ValueError naming, below `where`, a field that is missing, unknown or of another
        type.
        """
        values = _read_fields(cls, value, where)
        unknown = min(value.keys() - values.keys(), default=None)
        if unknown is not None:
            prefix = f"{where}." if where else ""
            raise ValueError(f"{prefix}{unknown} is no field that this version knows")
        return cls(**values, **beside)

    def to_json(self) -> dict[str, Any]:
        """Return the entry as JSON."""
        kind: Any = type(self)
        sparse = _find_sparse(kind)
        return {
            name: _as_json(getattr(self, name))
            for name, (_, default) in _find_readers(kind).items()
            if name not in sparse or getattr(self, name) != default
        }


def _as_json(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return value
