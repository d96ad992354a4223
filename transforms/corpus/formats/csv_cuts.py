"""Line ends at which a CSV file without quotes is cut, for several workers.

The file is read once. The rows are counted, because positions and made ids have their numbers.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import BinaryIO, NamedTuple

import numpy as np

from sentence_beam.transforms.corpus.files import InputFile, open_unchanged
from sentence_beam.transforms.corpus.formats.dialect import Dialect
from sentence_beam.transforms.corpus.formats.encoding import BOM
from sentence_beam.transforms.corpus.formats.text_lines import MOST_BYTES
from sentence_beam.transforms.corpus.spans import Span

AT_ONCE = 1 << 20  # bytes
LF, CR, QUOTE = b'\n\r"'


class _Place(NamedTuple):
    """The first row in a part of a file: its byte and its number."""

    offset: int
    row: int


def cut_at_lines(
    file: InputFile, dialect: Dialect, cut: int, unit_tokens: int
) -> list[Span] | None:
    """Return the spans of about `cut` bytes of a file; None if not every line end ends a row.

    Raises InputChangedError if the file changed.
    """
    if not _can_be_cut(dialect):
        return None
    places: list[_Place] = []
    rows = 0
    with open_unchanged(file) as raw:
        for starts in _find_row_starts(raw, dialect):
            if starts is None:
                return None
            places += _find_first_places(starts, rows, cut, places)
            rows += len(starts)
    return list(_make_spans(file, places, rows, cut, unit_tokens))


def _can_be_cut(dialect: Dialect) -> bool:
    is_utf8 = dialect.encoding.startswith("utf-8")
    return is_utf8 and dialect.line_end == "\n" and bool(dialect.header) and not dialect.escape


def _find_row_starts(raw: BinaryIO, dialect: Dialect) -> Iterator[np.ndarray | None]:
    """Yield the bytes at which the rows below the header start, some of them at a time, int64 [n].

    Empty rows are left out as `read_csv` does. Yields None for a quote, and a line that is too
    long.
    """
    above = dialect.skip + dialect.has_header
    offset = 0
    rest = raw.read(len(BOM))
    if rest == BOM:
        offset = len(BOM)
        rest = b""
    while block := raw.read(AT_ONCE):
        data = rest + block
        if (dialect.quoting and QUOTE in block) or len(data) > MOST_BYTES:
            yield None
            return
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == LF)
        rest = data
        if len(ends):
            starts = np.concatenate([[0], ends[:-1] + 1])
            yield _drop_empty(data, starts[above:], ends[above:], dialect) + offset
            above = max(0, above - len(ends))
            after = int(ends[-1]) + 1
            rest = data[after:]
            offset += after
    if rest and not above:
        yield _drop_empty(rest, np.zeros(1, np.int64), np.array([len(rest)]), dialect) + offset


def _drop_empty(data: bytes, starts: np.ndarray, ends: np.ndarray, dialect: Dialect) -> np.ndarray:
    """Return the starts of rows, without empty ones unless the file has one column."""
    if len(dialect.header) <= 1 or not len(starts):
        return starts
    first = np.frombuffer(data, np.uint8)[starts]
    is_empty = starts == ends
    for place in np.flatnonzero((first == CR) & ~is_empty).tolist():
        is_empty[place] = not data[starts[place] : ends[place]].strip(b"\r")
    return starts[~is_empty]


def _find_first_places(
    starts: np.ndarray, rows: int, cut: int, before: list[_Place]
) -> Iterator[_Place]:
    """Yield the first of these rows in each `cut` bytes of a file.

    The rows start at the bytes `starts` [n], the first one has the number `rows`. `before` has all
    places so far.
    """
    parts = starts // cut
    last = before[-1].offset // cut if before else -1
    for first in np.flatnonzero(np.diff(parts, prepend=last)).tolist():
        yield _Place(int(starts[first]), rows + first)


def _make_spans(
    file: InputFile, places: list[_Place], rows: int, cut: int, unit_tokens: int
) -> Iterator[Span]:
    """Yield the spans of a file that begin at these places.

    A span's number is a multiple of the cut, so an edit hardly moves it; that of the first is 0.
    """
    for (start, row), (end, stop) in pairwise([*places, _Place(file.size, rows)]):
        number = start // cut * cut if row else 0
        tokens = (end - start) * unit_tokens // cut
        yield Span(file, number, row, stop, (), stop - row, tokens, start)
