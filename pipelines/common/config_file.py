"""The options of a command from a TOML file.

Keys are the names of flags. Keys at the top and in the command's own table count; the tables of
other commands are ignored.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sentence_beam.pipelines.cli import COMMANDS
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.keyword_options import replace_aliases
from sentence_beam.transforms.base.option import aliases_in, check_value, declared_in
from sentence_beam.transforms.base.values import find_nearest

OUTPUT = ("quiet", "json")  # options of every command that a file may have


@dataclass(frozen=True)
class FileOptions:
    """The options of a file: those of the command, those of its `output`, and flags of Beam's."""

    own: dict[str, Any] = field(default_factory=dict)
    output: dict[str, bool] = field(default_factory=dict)
    beam: list[str] = field(default_factory=list)


def read_options(path: str, command: str, kind: type) -> FileOptions:
    """Return the options that a file has for a command, by the fields of the class `kind`.

    Raises OptionError for a file that cannot be read, and for unknown keys.
    """
    names = {name: name for name in declared_in(kind)} | aliases_in(kind)
    options = FileOptions()
    own: dict[str, Any] = {}
    for key, value in _read(path, command).items():
        where = f"--config {path}: {key.replace('_', '-')}"
        name = key.replace("-", "_")
        if name in names:
            own[name] = value
        elif name in OUTPUT:
            options.output[name] = _check_switch(where, value)
        elif _is_of_beam(name):
            options.beam.extend(_to_arguments(where, f"--{name}", value))
        else:
            allowed = [option.replace("_", "-") for option in (*names, *OUTPUT)]
            raise OptionError(f"{where} is no option of {command}{_suggest(key, allowed)}")
    options.own.update(replace_aliases(kind, own))
    return options


def check_values(path: str, kind: type, values: Mapping[str, Any]) -> None:
    """Raise OptionError, which names the file, for a value that does not fit its option."""
    for name, value in values.items():
        try:
            check_value(kind, name, value)
        except OptionError as error:
            raise OptionError(f"--config {path}: {error.message}") from None


def _read(path: str, command: str) -> dict[str, Any]:
    """Return the values of a file for a command, by key."""
    try:
        with open(path, "rb") as f:
            content = tomllib.load(f)
    except (OSError, ValueError) as error:
        why: object = error.strerror if isinstance(error, OSError) else error
        raise OptionError(
            f"--config {path} cannot be read as TOML ({why}); check the file"
        ) from None
    tables = {key: value for key, value in content.items() if isinstance(value, dict)}
    for name in tables:
        if name not in COMMANDS:
            raise OptionError(f"--config {path}: [{name}] is no command{_suggest(name, COMMANDS)}")
    plain = {key: value for key, value in content.items() if key not in tables}
    return {**plain, **tables.get(command, {})}


def _is_of_beam(name: str) -> bool:
    from sentence_beam.pipelines.common import beam_parser  # importing Beam takes two seconds

    return f"--{name}" in beam_parser.list_flags()


def _check_switch(where: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise OptionError(f"{where} is true or false, not {value!r}")


def _to_arguments(where: str, flag: str, value: Any) -> list[str]:
    """Return the arguments of one of Beam's flags: one for each item of a list."""
    if isinstance(value, bool):
        return [flag] if value else []
    items = value if isinstance(value, list) else [value]
    return [f"{flag}={_to_text(where, item)}" for item in items]


def _to_text(where: str, value: Any) -> str:
    if isinstance(value, Mapping | list | bool) or not isinstance(value, str | int | float):
        raise OptionError(
            f"{where}: {value!r} is no value of an option; give a text, a number, true or false"
        )
    return str(value)


def _suggest(word: str, options: Iterable[str]) -> str:
    near = find_nearest(word, options)
    return f"; did you mean {near}?" if near else ""
