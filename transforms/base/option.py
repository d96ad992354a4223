"""Options as fields of dataclasses: a field says everything about its option, once.

Parsers, the keys of TOML files, the checks of values, the reference and what a run takes from its
store follow from the declarations of these fields.
"""

import enum
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from types import UnionType
from typing import Any, Literal, TypeVar, dataclass_transform, get_args, get_origin

from transforms.base.errors import OptionError
from transforms.base.values import Kind, as_text, one_of, read_one

KEY = "option"  # in the metadata of a field
Options = TypeVar("Options")


class Remembered(enum.Enum):
    """What a store does with an option that the next run does not give."""

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
    is a word. `flag` is given if it is not the field's name; `aliases` are flags that --help does
    not show. With `positional` the option is an argument without a flag. `several`: "repeat", a
    flag for each value; "list", a flag may have many values. With `once` a repeated flag has to
    have the same value. An `advanced` option is shown by --help-all, not by --help. A `gate` ends a
    run that exceeds its value.
    """

    help: str
    kind: Kind | None = None
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    group: str | None = None
    exclusive: Exclusive | None = None
    flag: str = ""
    aliases: tuple[str, ...] = ()
    positional: bool = False
    several: Literal["repeat", "list"] | None = None
    once: bool = False
    advanced: bool = False
    remembered: Remembered | None = None
    gate: bool = False

    @property
    def check(self) -> Kind | None:
        """The function that checks and converts the text of one value, if any text is not good
        enough.
        """
        return one_of(*self.choices) if self.choices else self.kind


def option(
    declared: Declared | str, *, default: Any = MISSING, kw_only: bool = True, **more: Any
) -> Any:
    """Return a field with a declaration: a help text with other attributes of Declared, or one that
    these change.

    >>> @options
    ... class Opened:
    ...     store: str = option(Declared("folder of the store", metavar="STORE"))
    ...     k: int = option("rows", kind=int, flag="-k", default=10)
    >>> Opened(store="s", k="3")
    Opened(store='s', k=3)
    """
    made = Declared(declared, **more) if isinstance(declared, str) else replace(declared, **more)
    found: Any = field(default=default, kw_only=kw_only, metadata={KEY: made})
    return found


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(option, field))
def options(cls: type[Options]) -> type[Options]:
    """Make a class a frozen dataclass whose values are read and checked, by `read`, when it is
    made.
    """
    if not hasattr(cls, "__post_init__"):
        cls.__post_init__ = read  # type: ignore[attr-defined]
    return dataclass(frozen=True, kw_only=True)(cls)


def declared_in(kind: type) -> dict[str, Declared]:
    """The declarations of a class by the names of their fields."""
    return {item.name: item.metadata[KEY] for item in fields(kind) if KEY in item.metadata}


def flag_of(name: str, declared: Declared) -> str:
    """The flag of a field, or the word for an argument without a flag."""
    if declared.positional:
        return declared.metavar or name
    return declared.flag or "--" + name.replace("_", "-")


def aliases_in(kind: type) -> dict[str, str]:
    """The names of fields by the names of their flags that differ from these."""
    return {
        flag.lstrip("-").replace("-", "_"): name
        for name, declared in declared_in(kind).items()
        for flag in (flag_of(name, declared), *declared.aliases)
        if not declared.positional and flag.lstrip("-").replace("-", "_") != name
    }


def narrowed(kind: type[Options], given: Any, **changes: Any) -> Options:
    """Return the options of a class from those of a class that has more, with changes."""
    items: Any = fields(kind)  # type: ignore[arg-type]
    return kind(**{**{item.name: getattr(given, item.name) for item in items}, **changes})


def is_required(item: "Field[Any]") -> bool:
    """Whether a field has no default."""
    return item.default is MISSING and item.default_factory is MISSING


def is_given(given: Any, name: str) -> bool:
    """Whether an option differs from its default."""
    (item,) = (item for item in fields(given) if item.name == name)
    return is_required(item) or getattr(given, name) != item.default


def read(given: Any) -> None:
    """Bring the values of a class of options into the types of its fields, and check them.

    A path becomes text, a text a tuple of one if several are allowed, None the default, and a
    number or a text what the option's kind makes of it: `"256k"` is 256000. Raises OptionError for
    a value that does not fit, and for options that exclude one another.
    """
    for item in fields(given):
        declared = item.metadata.get(KEY)
        value = getattr(given, item.name)
        if value is None and not is_required(item):
            value = item.default
        elif declared is not None and (is_required(item) or value != item.default):
            value = _read(value, item, declared)
        object.__setattr__(given, item.name, value)
    _check_exclusive(given)


def _read(value: Any, item: "Field[Any]", declared: Declared) -> Any:
    try:
        return _reader(item.type, declared)(value, declared.check, _types(item.type))
    except OptionError as error:
        raise OptionError(f"argument {flag_of(item.name, declared)}: {error}") from None


def _reader(kind: Any, declared: Declared) -> Callable[..., Any]:
    if declared.several:
        return _read_several
    return _read_list if any(get_origin(each) is tuple for each in _types(kind)) else read_one


def _types(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _read_list(value: Any, kind: Kind | None, types: tuple[Any, ...]) -> Any:
    """Read a list that its kind makes of one text, such as A,B,C."""
    text = value if isinstance(value, str) else ",".join(_texts(value))
    return kind(text) if kind is not None else tuple(text.split(","))


def _read_several(value: Any, kind: Kind | None, types: tuple[Any, ...]) -> tuple[Any, ...]:
    """Read the values of an option that may have several."""
    texts = _texts(value)
    return tuple(kind(text) for text in texts) if kind is not None else texts


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str | os.PathLike):
        return (as_text(value),)
    if not isinstance(value, Iterable):
        raise OptionError(f"{value!r} is no list")
    return tuple(as_text(item) if isinstance(item, os.PathLike) else str(item) for item in value)


def _check_exclusive(given: Any) -> None:
    """Raise OptionError for two options of one set, and for none of a required one."""
    for exclusive, flags in _exclusive_in(type(given)).items():
        named = [flag for name, flag in flags.items() if is_given(given, name)]
        if exclusive.required and len(named) != 1:
            and_no_other = "and not both" if len(flags) == 2 else "and one alone"
            raise OptionError(
                f"one of the arguments {' '.join(flags.values())} is required, {and_no_other}"
            )
        if len(named) > 1:
            raise OptionError(f"argument {named[1]}: not allowed with argument {named[0]}")


def _exclusive_in(kind: type) -> Mapping[Exclusive, dict[str, str]]:
    """The sets of a class, each with the flags of its options by their names."""
    found: dict[Exclusive, dict[str, str]] = {}
    for name, declared in declared_in(kind).items():
        if declared.exclusive is not None:
            found.setdefault(declared.exclusive, {})[name] = flag_of(name, declared)
    return found
