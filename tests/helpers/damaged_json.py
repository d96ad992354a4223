"""A JSON file with one of its values replaced, removed or put where it does not belong."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

Place = tuple[str | int, ...]
REMOVED = object()
ODD = (
    *(REMOVED, None, True, False, 0, 1, -1, 7, 12.5, 1e300, 2**70, "", "64", "mean", "x\ud800"),
    *([], [None], [1], ["mean"], {}, {"x": 1}, [[]], {"content": 1}),
)


def places(value: Any, before: Place = ()) -> Iterator[Place]:
    """Yield the place of each value below another; of a vocabulary or a long list only a few."""
    if isinstance(value, dict):
        inner: list[Any] = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    else:
        inner = []
    for name, item in inner[:40]:
        yield (*before, name)
        yield from places(item, (*before, name))


def with_value(value: Any, place: Place, odd: Any) -> Any:
    """Return the value with another one at a place."""
    changed = copy.deepcopy(value)
    inner = changed
    for name in place[:-1]:
        inner = inner[name]
    if odd is REMOVED:
        del inner[place[-1]]
    else:
        inner[place[-1]] = odd
    return changed


def damages(folder: Path, skipped: frozenset[str] = frozenset()) -> st.SearchStrategy:
    """Return a strategy of a folder's damages: a file, a place in it, and the value there."""
    found = [
        (path.relative_to(folder).as_posix(), place)
        for path in sorted(folder.rglob("*.json"))
        if path.name not in skipped
        for place in places(json.loads(path.read_text()))
    ]
    return st.tuples(st.sampled_from(found), st.sampled_from(ODD))


def damage(folder: Path, file: str, place: Place, odd: Any) -> None:
    """Put a value at a place of a JSON file of a folder."""
    path = folder / file
    path.write_text(json.dumps(with_value(json.loads(path.read_text()), place, odd)))
