"""Options as fields of dataclasses: a field declares everything about its option, once.

Parsers, the keys of TOML files, the checks of values, the reference and the options that a store
remembers follow from these declarations.
"""

import enum
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from types import UnionType
from typing import Any, Literal, TypeVar, dataclass_transform, get_args, get_origin

from sentence_beam.transforms.base.errors import OptionError, cite, cite_argument, cite_as
from sentence_beam.transforms.base.values import Kind, as_text, one_of, read_one

KEY = "option"  # in the metadata of a field
Options = TypeVar("Options")


class Remembered(enum.Enum):
    """The rule by which a store remembers an option that the next run does not give."""

    CONTENT = "the next run takes it from the store; if it changes, unchanged files are read again"
    RUN = "the next run takes it from the store; carried units are the same whatever it is"


@dataclass(frozen=True)
class Exclusive:
    """A set of options of which one at most is given, or exactly one if the set is `required`."""

    name: str
    required: bool = False


@dataclass(frozen=True)
class Declared:
    """Everything about an option except its type and default, which the field has.

    `kind` checks and converts the text of one value; `choices` are the words that are allowed if it
    is a word. `flag` is given if it is not the field's name. With `positional` the option is an
    argument without a flag. `several`: "repeat", a flag for each value; "list", a flag may have
    many values. With `bare` the option takes the arguments without a flag too. With `once` a
    repeated flag has to have the same value. An `advanced` option is shown by --help-all, not by
    --help. A `gate` ends a run that exceeds its value. `fallback` returns the value of an option
    that is not given.
    """

    help: str
    kind: Kind | None = None
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    group: str | None = None
    exclusive: Exclusive | None = None
    flag: str = ""
    positional: bool = False
    several: Literal["repeat", "list"] | None = None
    bare: bool = False
    once: bool = False
    advanced: bool = False
    remembered: Remembered | None = None
    gate: bool = False
    fallback: Callable[[], Any] | None = None

    @property
    def check(self) -> Kind | None:
        """Function that checks and converts the text of one value; None if every text will do."""
        return one_of(*self.choices) if self.choices else self.kind


UNDECLARED = Declared("")  # a field that only programs give


def option(
    declared: Declared | str, *, default: Any = MISSING, kw_only: bool = True, **more: Any
) -> Any:
    """Return a field with a declaration: a help text or a Declared, with `more` of its attributes.

    >>> @options
    ... class Opened:
    ...     store: str = option(Declared("folder of the store", metavar="STORE"))
    ...     k: int = option("rows", kind=int, flag="-k", default=10)
    >>> Opened(store="s", k="3")
    Opened(store='s', k=3)
    """
    if isinstance(declared, str):
        declaration = Declared(declared, **more)
    else:
        declaration = replace(declared, **more)
    item: Any = field(default=default, kw_only=kw_only, metadata={KEY: declaration})
    return item


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(option, field))
def options(cls: type[Options]) -> type[Options]:
    """Make a class a frozen dataclass whose values `read` checks when it is made."""
    if not hasattr(cls, "__post_init__"):
        cls.__post_init__ = read  # type: ignore[attr-defined]
    return dataclass(frozen=True, kw_only=True)(cls)


def declared_in(kind: type) -> dict[str, Declared]:
    """Return the declarations of a class by the names of their fields."""
    return {item.name: item.metadata[KEY] for item in fields(kind) if KEY in item.metadata}


def flag_of(name: str, declared: Declared) -> str:
    """Return the flag of a field, or the word for an argument without a flag."""
    if declared.positional:
        return declared.metavar or name
    return declared.flag or "--" + name.replace("_", "-")


def aliases_in(kind: type) -> dict[str, str]:
    """Return the names of fields by the names of their flags that differ from these."""
    flags = {
        flag_of(name, declared).lstrip("-").replace("-", "_"): name
        for name, declared in declared_in(kind).items()
        if not declared.positional
    }
    return {flag: name for flag, name in flags.items() if flag != name}


def narrowed(kind: type[Options], options: Any, **changes: Any) -> Options:
    """Return the options of a class from those of a class that has more, with changes."""
    items: Any = fields(kind)  # type: ignore[arg-type]
    return kind(**{**{item.name: getattr(options, item.name) for item in items}, **changes})


def is_required(item: "Field[Any]") -> bool:
    """Return whether a field has no default."""
    return item.default is MISSING and item.default_factory is MISSING


def is_given(options: Any, name: str) -> bool:
    """Return whether an option differs from its default."""
    (item,) = (item for item in fields(options) if item.name == name)
    return is_required(item) or getattr(options, name) != item.default


def read(options: Any) -> None:
    """Convert the values of a class of options or settings to the types of its fields, and check
    them.

    A path becomes text, a text a tuple of one if several are allowed, None the default. The
    option's kind converts a number or a text: `"256k"` becomes 256000. Raises OptionError for a
    value that does not fit, and for options that exclude one another.
    """
    for item in fields(options):
        declared = item.metadata.get(KEY, UNDECLARED)
        value = getattr(options, item.name)
        if value is None and not is_required(item):
            value = item.default if declared.fallback is None else declared.fallback()
        elif is_required(item) or value != item.default:
            value = _read(value, item, declared)
        object.__setattr__(options, item.name, value)
    _check_exclusive(options)


def check_value(kind: type, name: str, value: Any) -> None:
    """Raise OptionError, which names the flag, for a value that does not fit a field."""
    (item,) = (item for item in fields(kind) if item.name == name)
    _read(value, item, declared_in(kind)[name])


def _read(value: Any, item: "Field[Any]", declared: Declared) -> Any:
    try:
        return _reader(item.type, declared)(value, declared.check, _types(item.type))
    except OptionError as error:
        subject = cite_as(f"argument {flag_of(item.name, declared)}", item.name)
        raise OptionError(f"{subject}: {error.message}") from None


def _reader(kind: Any, declared: Declared) -> Callable[..., Any]:
    if declared.several:
        return _read_several
    if any(get_origin(each) is tuple for each in _types(kind)):
        return _read_list
    return read_one


def _types(kind: Any) -> tuple[Any, ...]:
    if isinstance(kind, UnionType):
        return get_args(kind)
    return (kind,)


def _read_list(value: Any, kind: Kind | None, types: tuple[Any, ...]) -> Any:
    """Read a list that its kind makes of one text, such as A,B,C."""
    text = ",".join(_texts(value))
    if kind is not None:
        return kind(text)
    return tuple(text.split(","))


def _read_several(value: Any, kind: Kind | None, types: tuple[Any, ...]) -> tuple[Any, ...]:
    """Read the values of an option that may have several."""
    texts = _texts(value)
    if kind is not None:
        return tuple(kind(text) for text in texts)
    return texts


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str | os.PathLike):
        return (as_text(value),)
    if not isinstance(value, Iterable):
        raise OptionError(f"{value!r} is no list")
    return tuple(map(_text, value))


def _text(value: Any) -> str:
    return as_text(value) if isinstance(value, os.PathLike) else str(value)


def _check_exclusive(options: Any) -> None:
    """Raise OptionError for two options of one set, and for none of a required one."""
    for exclusive, names in _exclusive_in(type(options)).items():
        given = [name for name in names if is_given(options, name)]
        if exclusive.required and len(given) != 1:
            only = "and not both" if len(names) == 2 else "and one alone"
            cited = " ".join(map(cite, names))
            raise OptionError(f"one of the arguments {cited} is required, {only}")
        if len(given) > 1:
            raise OptionError(
                f"{cite_argument(given[1])}: not allowed with {cite_argument(given[0])}"
            )


def _exclusive_in(kind: type) -> Mapping[Exclusive, list[str]]:
    """Return the sets of a class, each with the names of its options."""
    sets: dict[Exclusive, list[str]] = {}
    for name, declared in declared_in(kind).items():
        if declared.exclusive is not None:
            sets.setdefault(declared.exclusive, []).append(name)
    return sets
