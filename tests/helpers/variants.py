"""Variants of a test: some in every run, the others where there is time for them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def variants(
    names: str | tuple[str, ...],
    values: Iterable[Any],
    kept: tuple[int, ...],
    ids: Sequence[str] | Callable[[Any], str] | None = None,
) -> pytest.MarkDecorator:
    """Parametrize a test; values that are not at the places `kept`, counted from 0, are slow."""
    found = list(values)
    assert max(kept) < len(found)
    slow = [_slow(value, isinstance(names, tuple)) for value in found]
    chosen = [value if n in kept else slow[n] for n, value in enumerate(found)]
    return pytest.mark.parametrize(names, chosen, ids=ids)


def _slow(value: Any, several: bool) -> Any:
    if several:
        return pytest.param(*value, marks=pytest.mark.slow)
    return pytest.param(value, marks=pytest.mark.slow)
