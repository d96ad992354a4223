"""The storage of this machine in the place of another one: its calls are met, replaced, noted or
refused, or every path is of a storage made for a test.
"""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from sentence_beam.transforms import storage
from sentence_beam.transforms.storage.base import Storage
from sentence_beam.transforms.storage.local import LocalStorage


def meet(patch: pytest.MonkeyPatch, name: str, act: Callable[..., object]) -> None:
    """Call `act(path, ...)` before each call of a method of the local storage."""
    call: Callable[..., Any] = getattr(LocalStorage, name)

    def met(self: LocalStorage, *given: Any) -> Any:
        act(*given)
        return call(self, *given)

    patch.setattr(LocalStorage, name, met)


def replace_call(patch: pytest.MonkeyPatch, name: str, act: Callable[..., object]) -> None:
    """Let calls of a method of the local storage be `act(call, ...)`, which may make the call."""
    call: Callable[..., Any] = getattr(LocalStorage, name)
    patch.setattr(
        LocalStorage, name, lambda self, *given: act(functools.partial(call, self), *given)
    )


def note(patch: pytest.MonkeyPatch, *names: str) -> list[tuple[str, str]]:
    """Return a list to which each call of these methods adds its name and its path."""
    noted: list[tuple[str, str]] = []
    for name in names:
        meet(patch, name, lambda path, *_, name=name: noted.append((name, path)))
    return noted


def refuse(patch: pytest.MonkeyPatch, name: str, error: OSError, path: str | None = None) -> None:
    """Raise an error at each call of a method, or at those for one path."""

    def act(given: str, *_: Any) -> None:
        if path in (None, given):
            raise error

    meet(patch, name, act)


def replace_storage(patch: pytest.MonkeyPatch, place: Storage) -> None:
    """Let every path be of this storage."""
    patch.setattr(storage, "storage_of", lambda path: place)
