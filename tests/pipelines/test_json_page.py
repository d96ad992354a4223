"""The page about `--json` and what the commands print."""

from typing import Any

import pytest
from helpers import json_outputs
from helpers.json_shapes import described, differences

from sentence_beam.pipelines.cli import COMMANDS

COMMANDS_OF_PAGE, OBJECTS = described()
NOT_RUN = {"serve"}  # it ends by a signal


@pytest.fixture(scope="module")
def printed(
    tmp_path_factory: pytest.TempPathFactory, model: Any, _plain_beam: None
) -> dict[str, dict[str, Any]]:
    """What each command line printed."""
    return dict(json_outputs.outputs(tmp_path_factory.mktemp("json"), model))


def test_the_page_has_every_command() -> None:
    assert list(COMMANDS_OF_PAGE) == list(COMMANDS)


def test_every_command_is_run(printed: dict[str, dict[str, Any]]) -> None:
    assert {line.split()[0] for line in printed} == COMMANDS.keys() - NOT_RUN


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - NOT_RUN))
def test_a_command_prints_what_the_page_says(
    printed: dict[str, dict[str, Any]], command: str
) -> None:
    shape = COMMANDS_OF_PAGE[command]
    optional = set()
    for line, value in printed.items():
        if line.split()[0] != command:
            continue
        assert value.pop("command") == command
        assert list(differences(value, shape, OBJECTS)) == [], line
        optional |= value.keys()
    fields = shape if isinstance(shape, dict) else OBJECTS[shape]
    never = {name for name in fields if name.endswith("?") and name[:-1] not in optional}
    assert never <= RARE.get(command, set())


# fields that no call above prints
RARE = {
    "embed": {"restored?"},
    "index": {"like?", "restored?"},
    "recalibrate": {"like?", "restored?"},
    "rollback": {"like?"},
    "diff": {"output?"},
    "rejects": {"output?", "rows?"},
    "report": {"text?"},
    "verify": {"pieces?"},
    "watch": {"report?"},
}


@pytest.mark.parametrize(
    ("value", "shape", "fault"),
    [
        ({"a": "x"}, {"a": "int"}, ".a: 'x' is not int"),
        ({"a": True}, {"a": "int"}, ".a: True is not int"),
        ({"a": None}, {"a": "int"}, ".a: None is not int"),
        ({"a": 1}, {"a": "bool"}, ".a: 1 is not bool"),
        ({"a": [1, "x"]}, {"a": ["int"]}, ".a[1]: 'x' is not int"),
        ({"a": 1}, {"a": ["int"]}, ".a: 1 is no array"),
        ({"a": 1}, {"a": "hit"}, ".a: 1 is no object"),
        ({}, {"a": "int"}, ".a is missing"),
        ({"b": 1}, {"a?": "int"}, ".b is not on the page"),
        ({"b": 1}, {"*": "text"}, ".b: 1 is not text"),
    ],
)
def test_what_differs_is_named(value: Any, shape: Any, fault: str) -> None:
    assert list(differences(value, shape, {"hit": {"rank": "int"}})) == [fault]


@pytest.mark.parametrize("value", [{"a": 1}, {"a": 1.5, "b": None}, {"a": 0, "b": {"c": "x"}}])
def test_what_is_described_differs_nowhere(value: Any) -> None:
    assert list(differences(value, {"a": "float", "b?": {"*": "text"}}, {})) == []
