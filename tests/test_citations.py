"""Errors cite options; they never spell a flag, which a Python program does not know."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from test_command_options import KINDS

import sentence_beam
from sentence_beam.transforms.base.errors import cite, name_flags
from sentence_beam.transforms.base.option import declared_in, flag_of

PACKAGE = Path(sentence_beam.__file__).parent
FILES = sorted(
    path for part in ("transforms", "pipelines") for path in (PACKAGE / part).rglob("*.py")
)
FLAGS = {
    flag_of(name, declared)
    for kind in KINDS.values()
    for name, declared in declared_in(kind).items()
    if not declared.positional
}
COMMAND = re.compile(r"`[^`]*`|sentence-beam [a-z]+[^;,)]*")
FLAG = re.compile(r"(?<![\w/.-])--[a-z][a-z-]*")


def list_calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of a file, each with the last word of the function's name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func).rpartition(".")[2], node


def list_texts(call: ast.Call) -> Iterator[str]:
    """Yield the literal texts of a call's arguments, with {} for values."""
    for argument in call.args:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            yield argument.value
        if isinstance(argument, ast.JoinedStr):
            parts = [
                part.value if isinstance(part, ast.Constant) else "{}" for part in argument.values
            ]
            yield "".join(map(str, parts))


def test_every_citation_is_of_a_declared_option() -> None:
    cited = {
        argument.value
        for path in FILES
        for name, call in list_calls(path)
        if name in ("cite", "cite_argument")
        for argument in call.args
        if isinstance(argument, ast.Constant)
    }
    assert len(cited) > 80
    unsigned = {name_flags(cite(keyword.partition("=")[0])) for keyword in cited}
    assert unsigned <= FLAGS


def test_no_error_spells_a_flag() -> None:
    spelt = [
        (path.name, text)
        for path in FILES
        for name, call in list_calls(path)
        if name.endswith("Error")
        for text in list_texts(call)
        if FLAGS & set(FLAG.findall(COMMAND.sub("", text)))
    ]
    assert spelt == []
