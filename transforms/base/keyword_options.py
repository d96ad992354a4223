"""Keywords of Python functions as objects of option classes."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.option import aliases_in, is_required
from sentence_beam.transforms.base.values import find_nearest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Asked = TypeVar("Asked", bound="DataclassInstance")


def make_options(
    kind: type[Asked], function: str, keywords: Mapping[str, Any], arguments: Sequence[Any] = ()
) -> Asked:
    """Return the options from keywords, or from `arguments` without a keyword.

    Raises TypeError for an unknown or missing keyword, as Python does, OptionError for a wrong
    value.
    """
    required = {item.name: is_required(item) for item in fields(kind)}
    keywords = {**_name_arguments(kind, function, arguments), **replace_aliases(kind, keywords)}
    for name in keywords:
        if name not in required:
            near = find_nearest(name, required)
            hint = f"; did you mean {near}?" if near else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")
    missing = next(
        (name for name, needed in required.items() if needed and name not in keywords), None
    )
    if missing is not None:
        raise TypeError(f"{function}() missing 1 required keyword-only argument: {missing!r}")
    return kind(**keywords)


def _name_arguments(
    kind: type["DataclassInstance"], function: str, arguments: Sequence[Any]
) -> dict[str, Any]:
    """Return the arguments without a keyword by the names of their fields."""
    names = [item.name for item in fields(kind) if not item.kw_only]
    if len(arguments) > len(names):
        raise TypeError(
            f"{function}() takes {len(names)} positional arguments but {len(arguments)} were given"
        )
    return dict(zip(names, arguments, strict=False))


def replace_aliases(kind: type["DataclassInstance"], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords by the names of fields.

    Raises OptionError if one option is given by two of its names with different values.
    """
    names = aliases_in(kind)
    by_field: dict[str, Any] = {}
    for name, value in keywords.items():
        field = names.get(name, name)
        if by_field.get(field, value) != value:
            raise OptionError(f"{name} is another name of {field}, with another value; give one")
        by_field[field] = value
    return by_field
