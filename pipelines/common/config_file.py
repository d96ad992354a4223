"""The options of a command from a TOML file, as command-line arguments.

Keys are the names of flags. Keys at the top and in the command's own table count; the tables of
other commands are ignored.
"""

import argparse
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sentence_beam.pipelines.cli import COMMANDS
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.values import nearest


def arguments(parser: argparse.ArgumentParser, path: str, given: Sequence[str]) -> list[str]:
    """Return the arguments that a file adds to the `given` ones, which win.

    Raises OptionError for a file that cannot be read, unknown keys, and values that no option
    takes.
    """
    flags = {text.split("=")[0] for text in given}
    named = [action for action in parser._actions if flags & _names(parser, action)]
    done = [
        *named,
        *(other for one in parser._mutually_exclusive_groups for other in _excluded(one, named)),
    ]
    found: list[str] = []
    for key, value in options_of(path, parser.prog.split()[-1]).items():
        where = f"--config {path}: {key}"
        action = _action(parser, key, where)
        if action is None:
            flag = f"--{key.replace('-', '_')}"
            if flag not in flags:
                found += _of_beam(where, flag, value)
        elif action not in done:
            found += _of_action(where, action, value)
    return found


def options_of(path: str, command: str) -> dict[str, Any]:
    """The options of a command in a file, by key."""
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
            raise OptionError(f"--config {path}: [{name}] is no command{_meant(name, COMMANDS)}")
    plain = {key: value for key, value in content.items() if key not in tables}
    return {
        key.replace("_", "-"): value for key, value in {**plain, **tables.get(command, {})}.items()
    }


def _action(parser: argparse.ArgumentParser, key: str, where: str) -> argparse.Action | None:
    """The option that a key names; None for one of Beam's."""
    known = {name.lstrip("-"): action for name, action in parser._option_string_actions.items()}
    known |= {action.dest: action for action in parser._actions if not action.option_strings}
    if key in known and key not in ("help", "help-beam", "config"):
        return known[key]
    from sentence_beam.pipelines.common.beam_parser import (
        beam_parser,  # importing Beam takes two seconds
    )

    if f"--{key.replace('-', '_')}" in beam_parser()._option_string_actions:
        return None
    raise OptionError(f"{where} is no option of {parser.prog.split()[-1]}{_meant(key, known)}")


def _of_action(where: str, action: argparse.Action, value: Any) -> list[str]:
    """The arguments that give an option its value."""
    if not action.option_strings:
        return [_text(where, value)]
    flag = action.option_strings[-1]
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise OptionError(f"{where} is true or false, not {value!r}")
        if isinstance(action, argparse.BooleanOptionalAction):
            yes, no = action.option_strings[:2]
            if value:
                return [yes]
            return [no]
        if value:
            return [flag]
        return []
    if isinstance(value, list) and not isinstance(action, argparse._AppendAction):
        value = ",".join(_text(where, one) for one in value)
    return _written(where, flag, value)


def _of_beam(where: str, flag: str, value: Any) -> list[str]:
    """The arguments of one of Beam's flags, some of which take no value."""
    if isinstance(value, bool):
        if value:
            return [flag]
        return []
    return _written(where, flag, value)


def _written(where: str, flag: str, value: Any) -> list[str]:
    """The arguments of a flag that takes a value, one for each item of a list."""
    items = [value]
    if isinstance(value, list):
        items = value
    if len(flag) == 2:
        return [part for item in items for part in (flag, _text(where, item))]
    return [f"{flag}={_text(where, item)}" for item in items]


def _text(where: str, value: Any) -> str:
    if isinstance(value, Mapping | list | bool) or not isinstance(value, str | int | float):
        raise OptionError(
            f"{where}: {value!r} is no value of an option; give a text, a number, true or false"
        )
    return str(value)


def _names(parser: argparse.ArgumentParser, action: argparse.Action) -> set[str]:
    """The names of an option, those of earlier versions too."""
    return {name for name, one in parser._option_string_actions.items() if one is action}


def _excluded(
    group: argparse._MutuallyExclusiveGroup, named: Sequence[argparse.Action]
) -> list[argparse.Action]:
    if any(action in named for action in group._group_actions):
        return group._group_actions
    return []


def _meant(word: str, known: Iterable[str]) -> str:
    near = nearest(word, known)
    if near:
        return f"; did you mean {near}?"
    return ""
