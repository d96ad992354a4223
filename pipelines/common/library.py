"""The commands as Python functions: keywords become options."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.progress import muting
from sentence_beam.transforms.base.keyword_options import make_options
from sentence_beam.transforms.base.logs import keep_root_logger

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Asked = TypeVar("Asked", bound="DataclassInstance")
Keywords = ParamSpec("Keywords")


def function(
    name: str, kind: Callable[Keywords, Any], job: Callable[[Any], CommandOutput]
) -> Callable[Keywords, Any]:
    """Return a command as a function: it takes the fields of the class `kind` and prints nothing.

    The function returns the path if it is given an `output`, else what `--json` prints, without the
    command's name. Raises the errors with which the command ends.
    """
    return _named(name, kind, job)


def pipeline_function(
    name: str, kind: Callable[Keywords, Any], job: Callable[[Any, Any], CommandOutput]
) -> Callable[Keywords, Any]:
    """Return a command that runs a pipeline as a function, like `function`; its field `beam_flags`
    goes to Beam.
    """

    def run(options: Any) -> CommandOutput:
        from sentence_beam.pipelines.common.beam_flags import (
            parse_list,  # importing Beam takes two seconds
        )

        accelerator = getattr(options, "accelerator", None)
        embeds = hasattr(options, "device")
        return job(options, parse_list(options.beam_flags, accelerator, embeds))

    return _named(name, kind, run)


def _named(name: str, kind: Any, job: Callable[[Any], CommandOutput]) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        with keep_root_logger(), muting():
            options = make_options(kind, name, keywords, arguments)
            output = job(options)
        path = getattr(options, "output", None)
        if path is None:
            return dict(output.values)
        return path

    call.__name__ = call.__qualname__ = name
    call.__doc__ = (
        f"Run `sentence-beam {name}`; keywords are the names of its flags, as in docs/reference.md."
    )
    signature = inspect.signature(kind).replace(return_annotation=dict[str, Any] | str)
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def object_or_keywords(
    kind: type[Asked],
    function: str,
    options: "DataclassInstance | None",
    keywords: Mapping[str, Any],
) -> Asked:
    """Return the options of a class from an object that has some of its fields, or from keywords.

    Raises TypeError for an object together with keywords.
    """
    if options is None:
        return make_options(kind, function, keywords)
    if keywords:
        first = next(iter(keywords))
        kind_given = type(options).__name__
        raise TypeError(f"{function}() got {kind_given} and {first!r}; give one of them")
    return kind(**{item.name: getattr(options, item.name) for item in fields(options)})


def signature_of(kind: type["DataclassInstance"], first_name: str) -> inspect.Signature:
    """Return the signature of a function that takes an object named `first_name`, or keywords."""
    first = inspect.Parameter(first_name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
    parameters = [first]
    for parameter in inspect.signature(kind).parameters.values():
        parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    return inspect.Signature(parameters)


def without_none(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords that have a value."""
    return {name: value for name, value in keywords.items() if value is not None}
