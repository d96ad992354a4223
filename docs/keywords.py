"""Writes transforms/steps/options/keywords.py from the classes of options: run
`python docs/keywords.py`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from inspect import formatannotation
from pathlib import Path
from typing import Any

from sentence_beam.transforms.base.option import aliases_in, declared_in
from sentence_beam.transforms.steps.options.embed import EmbedOptions
from sentence_beam.transforms.steps.options.joins import NeighboursOptions
from sentence_beam.transforms.steps.options.rows_options import REFUSED

MODULE = Path(__file__).parents[1] / "transforms/steps/options/keywords.py"
HEAD = '''"""The options of commands as keywords of Python functions, for type checkers and editors.

A class here has the fields of a class of `options`; a name of a file may be a `pathlib.Path`, and
several names a list. Written by docs/keywords.py from these classes; `make docs` writes it again.
"""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from sentence_beam.transforms.base.values import StrPath
'''
ROWS = '''

class RowsKeywords(EmbedKeywords, total=False):
    """The keywords of `embed` for rows in memory."""

    batch: str | None
'''
PATHS = ("DIR", "FILE", "GLOB", "MODEL", "PATH", "PATH|none", "STORE")  # metavars of names of files


def module() -> str:
    """Return the text of the module."""
    neighbours = keywords(NeighboursOptions, "store", "output", "k")
    write = [*keywords(EmbedOptions, "store", "partition", *REFUSED)]
    embed = keywords(EmbedOptions, "input")
    more = [line for line in embed if line not in write]
    beside = "of `WriteStore`, beside store and fields"
    write_class = typed_dict("WriteKeywords", "TypedDict", beside, write)
    embed_class = typed_dict("EmbedKeywords", "WriteKeywords", "of `embed` and `plan`", more)
    beside = "of `neighbours`, beside those that it needs"
    neighbours_class = typed_dict("NeighboursKeywords", "TypedDict", beside, neighbours)
    return f"{HEAD}{write_class}{embed_class}{ROWS}{neighbours_class}"


def typed_dict(name: str, base: str, keywords_of: str, lines: Iterable[str]) -> str:
    """Return a class of keywords."""
    head = f'class {name}({base}, total=False):\n    """The keywords {keywords_of}."""\n\n'
    return "\n\n" + head + "".join(f"    {line}\n" for line in lines)


def keywords(kind: type, *others: str) -> Iterator[str]:
    """Yield a line for each option of a class without `others`, and before it for its aliases."""
    aliases = aliases_in(kind)
    for item in fields(kind):
        if item.name in others:
            continue
        metavar = declared_in(kind)[item.name].metavar
        annotation = type_of(item.name, item.type, metavar in PATHS)
        for name in (*(alias for alias, field in aliases.items() if field == item.name), item.name):
            yield f"{name}: {annotation}"


def type_of(name: str, field_type: Any, is_path: bool) -> str:
    """Return the type of a keyword, which may be wider than the field's."""
    text = formatannotation(field_type)
    if name == "keep_columns":
        return text.replace("tuple[str, ...]", "Sequence[str] | Mapping[str, str]")
    if is_path:
        text = text.replace("tuple[str, ...]", "StrPath | Sequence[StrPath]")
        return "StrPath" if text == "str" else text.replace("str |", "StrPath |")
    return text.replace("tuple[str, ...]", "Sequence[str]")


if __name__ == "__main__":
    MODULE.write_text(module(), encoding="utf8")
