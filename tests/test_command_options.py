"""The commands and the classes that declare their options: flags, keys of TOML files and Python's functions."""

import argparse
import inspect
from dataclasses import fields
from typing import Any

import pytest

import sentence_beam as sb
from pipelines.cli import parser_of
from pipelines.options import every_command
from transforms.option import declared_in, flag_of
from transforms.steps.options.joins import ClusterOptions, DedupOptions

KINDS: dict[str, type[Any]] = {
    "dedup": DedupOptions,
    "cluster": ClusterOptions,
}
EVERY = {action.dest for action in every_command()._actions}


def actions_of(command: str) -> dict[str, argparse.Action]:
    """The actions of a command's own options, by the names of their values."""
    return {action.dest: action for action in parser_of(command)._actions if action.dest not in {"help", *EVERY}}


@pytest.mark.parametrize("command", KINDS)
def test_the_flags_of_a_command_are_the_declared_fields(command: str) -> None:
    actions, declared = actions_of(command), declared_in(KINDS[command])
    assert list(actions) == list(declared)
    defaults = {item.name: item.default for item in fields(KINDS[command])}
    for name, action in actions.items():
        assert (action.option_strings or [action.metavar])[0] == flag_of(name, declared[name])
        assert action.help == declared[name].help
        if not action.required and action.default is not None:
            assert action.default == defaults[name]


@pytest.mark.parametrize("command", KINDS)
def test_python_has_the_command_with_its_keywords(command: str) -> None:
    keywords = set(inspect.signature(getattr(sb, command)).parameters)
    assert keywords >= set(declared_in(KINDS[command]))
