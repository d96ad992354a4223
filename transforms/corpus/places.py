"""Places in a file of text where rows begin, at which it is cut for several workers."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from transforms.corpus.files import InputFile
from transforms.corpus.spans import Span


@dataclass(frozen=True)
class Place:
    """A row at which a part of a file begins: the part's number, and the row's byte and number.

    The part's number is a multiple of the cut, so an edit hardly moves it.
    """

    number: int
    offset: int
    row: int


@dataclass(frozen=True)
class Places:
    """The places in a file at which its parts begin, and the number of all rows."""

    begins: list[Place]
    rows: int


def first_places(starts: np.ndarray, rows: int, cut: int, before: list[Place]) -> Iterator[Place]:
    """Yield the first of these rows in each `cut` bytes of a file.

    The rows start at the bytes `starts` [n], ascending; the first one has the number `rows`.
    `before` has all places so far, at least one if there is a row.
    """
    if not len(starts):
        return
    parts = starts // cut
    last = before[-1].offset // cut
    firsts = np.flatnonzero(np.diff(parts, prepend=last))
    for first in firsts.tolist():
        if parts[first] > last:
            yield Place(int(parts[first]) * cut, int(starts[first]), rows + first)


def spans_between(file: InputFile, places: Places, unit_tokens: int) -> Iterator[Span]:
    """Yield the spans of a file that is cut at these places."""
    for place, after in zip_longest(places.begins, places.begins[1:]):
        stop = places.rows
        end = file.size
        if after is not None:
            stop = after.row
            end = after.offset
        rows = stop - place.row
        tokens = (end - place.offset) * unit_tokens // (file.cut or 1)
        yield Span(file, place.number, place.row, stop, (), rows, tokens, place.offset)
