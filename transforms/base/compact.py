"""Pickle dataclasses compactly, for those of which a run has millions."""

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")


def pickle_by_values(kind: type[T]) -> type[T]:
    """Let a dataclass of two fields or more be pickled as its values, in their order.

    Slots save two thirds of the memory, but pickle takes three times as long for them by default.
    """
    values = attrgetter(*(item.name for item in fields(kind)))  # type: ignore[arg-type]

    def reduce(item: T) -> tuple[Callable[..., T], tuple[Any, ...]]:
        return kind, values(item)

    setattr(kind, "__reduce__", reduce)  # noqa: B010
    return kind
