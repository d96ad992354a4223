"""Rewrite errors for Python programs, so that they name parameters in place of flags."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.base.option import aliases_in

Parameters = Mapping[str, bool]  # names of parameters; whether each is a switch
# A command line, which is kept; or a flag.
_FLAG = re.compile(
    r"`[^`]*`|sentence-beam [a-z]+[^;,)]*|\bargument -(?P<letter>[a-z])(?=:)|"
    r"(?P<label>\bargument )?(?<![\w/.-])--(?P<flag>[a-z][a-z0-9-]*)"
)


@contextlib.contextmanager
def python_names(parameters: Parameters) -> Iterator[None]:
    """Name parameters, not flags, in the errors that the body raises; `line` keeps the flags."""
    try:
        yield
    except SentenceBeamError as error:
        error.line = error.line or str(error)
        error.args = (named_in_python(str(error), parameters),)
        raise


def named_in_python(text: str, parameters: Parameters) -> str:
    """Return the message with these parameters in place of their flags; others, as Beam's, stay.

    >>> named_in_python("argument --max-tokens: 0 is not above zero", {"max_tokens": False})
    'max_tokens: 0 is not above zero'
    >>> named_in_python("without --append; see `sentence-beam plan --append`", {"append": True})
    'without append=True; see `sentence-beam plan --append`'
    """
    return _FLAG.sub(partial(_renamed, parameters=parameters), text)


def parameters_of(*options: type[Any]) -> Parameters:
    """Return the parameters of a function that takes the fields of these classes of options.

    An option whose flag has another name than its field is a parameter of both names.
    """
    parameters: dict[str, bool] = {}
    for kind in options:
        for field in fields(kind):
            parameters[field.name] = field.type in (bool, bool | None)
        for flag, name in aliases_in(kind).items():
            parameters.setdefault(flag, parameters[name])
    return parameters


def _renamed(match: re.Match[str], parameters: Parameters) -> str:
    flag_or_letter = match["flag"] or match["letter"]
    if flag_or_letter is None:
        return match[0]
    for flag, value in ((flag_or_letter, True), (flag_or_letter.removeprefix("no-"), False)):
        parameter = flag.replace("-", "_")
        for name in (parameter, f"{parameter}s"):  # a flag that is repeated is a list
            if name in parameters:
                is_subject = match.string[match.end() :].startswith(":")
                if is_subject or not parameters[name]:
                    return name
                return f"{name}={value}"
    return match[0]
