"""Pairing rows of two tables by the values that they share; items in groups of bounded size."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Item = TypeVar("Item")


def pair_rows(a: pa.Table, b: pa.Table, by: str, first: str) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of rows with the same value in the column `by`: row numbers in `a` and in `b`.

    Each row is in one pair at most, and there are as many pairs as possible; rows that also have
    the same value in the column `first` are paired first. Otherwise rows are paired in their order.
    """
    values = _encode(a.column(by), b.column(by))
    others = _encode(a.column(first), b.column(first))
    both = [value << 32 | other for value, other in zip(values, others, strict=True)]
    alike = _pair_up(*both)
    left = [
        np.delete(np.arange(len(codes)), done) for codes, done in zip(values, alike, strict=True)
    ]
    rest = _pair_up(values[0][left[0]], values[1][left[1]])
    one, two = (
        np.concatenate([done, some[more]])
        for done, some, more in zip(alike, left, rest, strict=True)
    )
    return one, two


def _encode(a: pa.ChunkedArray, b: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of two columns as small integers, equal for equal values."""
    together = pa.chunked_array([*a.chunks, *b.chunks], a.type)
    codes = pc.dictionary_encode(together).unify_dictionaries().combine_chunks()
    numbers = codes.indices.to_numpy().astype(np.int64)
    return numbers[: len(a)], numbers[len(a) :]


def _pair_up(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return places of equal integers in two arrays, the first with the first, and so on."""
    order_a = np.argsort(a, kind="stable")
    order_b = np.argsort(b, kind="stable")
    a = a[order_a]
    b = b[order_b]
    occurrence = np.arange(len(a)) - np.searchsorted(a, a, "left")
    place = np.searchsorted(b, a, "left") + occurrence
    there = place < len(b)
    there[there] = b[place[there]] == a[there]
    return order_a[there], order_b[place[there]]


def group_by_size(
    items: Iterable[Item], size: Callable[[Item], int], most: int
) -> list[list[Item]]:
    """Return the items in order, in lists of size `most` at most, or of one item."""
    groups: list[list[Item]] = []
    room = 0
    for item in items:
        if not groups or size(item) > room:
            groups.append([])
            room = most
        groups[-1].append(item)
        room -= size(item)
    return groups
