"""The page that describes what `--json` prints, and values held against it."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from helpers.pages import ROOT, Page

TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "any": (object,),
}
OTHERS = "*"


def described() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the shapes of the page: by command, and by name."""
    blocks = [
        block for block in Page(Path(ROOT / "docs/json.md")).blocks if block.language == "json"
    ]
    commands, objects = (json.loads(block.text) for block in blocks)
    return commands, objects


def differences(value: Any, shape: Any, objects: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Yield a line for each place in which a value has another shape."""
    if isinstance(shape, str) and shape in objects:
        shape = objects[shape]
    if isinstance(shape, str):
        if not has_type(value, shape):
            yield f"{at}: {value!r} is not {shape}"
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{at}: {value!r} is no array"
            return
        for place, item in enumerate(value):
            yield from differences(item, shape[0], objects, f"{at}[{place}]")
    elif value is not None or not at:
        yield from _of_fields(value, shape, objects, at)


def has_type(value: Any, word: str) -> bool:
    """Whether a value has a type of the page."""
    if value is None:
        return word.endswith("?") or word == "any"
    word = word.removesuffix("?")
    if isinstance(value, bool) and word != "any":
        return word == "bool"
    return isinstance(value, TYPES[word])


def _of_fields(
    value: Any, shape: Mapping[str, Any], objects: Mapping[str, Any], at: str
) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{at}: {value!r} is no object"
        return
    fields = {name.removesuffix("?"): name for name in shape if name != OTHERS}
    for name in value.keys() - fields.keys():
        if OTHERS not in shape:
            yield f"{at}.{name} is not on the page"
        else:
            yield from differences(value[name], shape[OTHERS], objects, f"{at}.{name}")
    for name, written in fields.items():
        if name in value:
            yield from differences(value[name], shape[written], objects, f"{at}.{name}")
        elif not written.endswith("?"):
            yield f"{at}.{name} is missing"
