"""The commands as Python functions: keywords become options, and whatever goes wrong names keywords."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, TypeVar

from transforms.logs import keep_root_logger
from transforms.python_names import parameters_of, python_names
from transforms.values import nearest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Asked = TypeVar("Asked", bound="DataclassInstance")


@contextlib.contextmanager
def as_function(options: type["DataclassInstance"]) -> Iterator[None]:
    """Run the body as a function of a library that takes the fields of `options`.

    The program's logging stays as it is, and errors name fields in place of flags.
    """
    with keep_root_logger(), python_names(parameters_of(options)):
        yield


def options_of(kind: type[Asked], function: str, given: Mapping[str, Any]) -> Asked:
    """The options that a function was given as keywords.

    Raises TypeError for a keyword that is unknown or missing, as Python does, OptionError for a value that does not
    work.
    """
    required = {field.name: field.default is MISSING for field in fields(kind)}
    for name in given:
        if name not in required:
            near = nearest(name, required)
            hint = f"; did you mean {near}?" if near else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")
    missing = next((name for name, is_required in required.items() if is_required and name not in given), None)
    if missing is not None:
        raise TypeError(f"{function}() missing 1 required keyword-only argument: {missing!r}")
    return kind(**given)
