"""The commands as Python functions: keywords become options, and errors name keywords."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pipelines.common.progress import unheard
from pipelines.common.said import Said
from transforms.base.errors import OptionError
from transforms.base.logs import keep_root_logger
from transforms.base.option import aliases_in, is_required
from transforms.base.python_names import parameters_of, python_names
from transforms.base.values import nearest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Asked = TypeVar("Asked", bound="DataclassInstance")
Keywords = ParamSpec("Keywords")


@contextlib.contextmanager
def as_function(options: type["DataclassInstance"]) -> Iterator[None]:
    """Run the body as a function of a library that takes the fields of `options`.

    The program's logging stays as it is, and errors name fields in place of flags.
    """
    with keep_root_logger(), python_names(parameters_of(options)):
        yield


def function(
    name: str, kind: Callable[Keywords, Any], job: Callable[[Any], Said]
) -> Callable[Keywords, Any]:
    """Return a command as a function: it takes the fields of the class `kind` and prints nothing.

    The function returns the path if it is given an `output`, else what `--json` prints, without the
    command's name. Raises the errors with which the command ends.
    """
    return _named(name, kind, job)


def pipeline_function(
    name: str, kind: Callable[Keywords, Any], job: Callable[[Any, Any], Said]
) -> Callable[Keywords, Any]:
    """Return a command that runs a pipeline as a function, like `function`; its field `beam_flags`
    goes to Beam.
    """

    def run(asked: Any) -> Said:
        from pipelines.common.beam_flags import options_of_list  # importing Beam takes two seconds

        hints = (getattr(asked, hint, None) for hint in ("accelerator", "index_accelerator"))
        return job(asked, options_of_list(asked.beam_flags, *hints))

    return _named(name, kind, run)


def _named(name: str, kind: Any, job: Callable[[Any], Said]) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        with as_function(kind), unheard():
            asked = options_of(kind, name, keywords, arguments)
            said = job(asked)
        output = getattr(asked, "output", None)
        if output is None:
            return dict(said.values)
        return output

    call.__name__ = call.__qualname__ = name
    call.__doc__ = (
        f"Run `sentence-beam {name}`; keywords are the names of its flags, as in docs/reference.md."
    )
    signature = inspect.signature(kind).replace(return_annotation=dict[str, Any] | str)
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def options_of(
    kind: type[Asked], function: str, given: Mapping[str, Any], arguments: Sequence[Any] = ()
) -> Asked:
    """Return the options from keywords, or from `arguments` without a keyword.

    Raises TypeError for an unknown or missing keyword, as Python does, OptionError for a wrong
    value.
    """
    required = {item.name: is_required(item) for item in fields(kind)}
    given = {**_by_name(kind, function, arguments), **_without_aliases(kind, given)}
    for name in given:
        if name not in required:
            near = nearest(name, required)
            hint = ""
            if near:
                hint = f"; did you mean {near}?"
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")
    missing = next(
        (name for name, needed in required.items() if needed and name not in given), None
    )
    if missing is not None:
        raise TypeError(f"{function}() missing 1 required keyword-only argument: {missing!r}")
    return kind(**given)


def object_or_keywords(
    kind: type[Asked], function: str, given: "DataclassInstance | None", keywords: Mapping[str, Any]
) -> Asked:
    """Return the options of a class from an object that has some of its fields, or from keywords.

    Raises TypeError for an object together with keywords.
    """
    if given is None:
        return options_of(kind, function, keywords)
    if keywords:
        first = next(iter(keywords))
        raise TypeError(f"{function}() got {type(given).__name__} and {first!r}; give one of them")
    return kind(**{item.name: getattr(given, item.name) for item in fields(given)})


def signature_of(kind: type["DataclassInstance"], given: str) -> inspect.Signature:
    """Return the signature of a function that takes an object named `given`, or keywords."""
    first = inspect.Parameter(given, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
    parameters = [first]
    for parameter in inspect.signature(kind).parameters.values():
        parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    return inspect.Signature(parameters)


def without_none(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords that have a value."""
    return {name: value for name, value in given.items() if value is not None}


def _by_name(
    kind: type["DataclassInstance"], function: str, arguments: Sequence[Any]
) -> dict[str, Any]:
    """Return the arguments without a keyword by the names of their fields."""
    names = [item.name for item in fields(kind) if not item.kw_only]
    if len(arguments) > len(names):
        raise TypeError(
            f"{function}() takes {len(names)} positional arguments but {len(arguments)} were given"
        )
    return dict(zip(names, arguments, strict=False))


def _without_aliases(kind: type["DataclassInstance"], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords by the names of fields.

    Raises OptionError if one option is given by two of its names with different values.
    """
    names = aliases_in(kind)
    by_field: dict[str, Any] = {}
    for name, value in given.items():
        field = names.get(name, name)
        if by_field.get(field, value) != value:
            raise OptionError(f"{name} is another name of {field}, with another value; give one")
        by_field[field] = value
    return by_field
