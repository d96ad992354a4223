"""Places in a CSV file where rows begin, found without parsing it, so that several workers read it.

The file is read once, at about 250 MB/s. A line end is the end of a row unless it is
inside quotes: after an odd number of quotes in its row. That holds if each odd quote opens a value
and each even one closes it. In other files no place is found, and one worker reads them.
"""

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from transforms.corpus.csv_rows import Dialect, dialect_of
from transforms.corpus.encoding import BOM
from transforms.corpus.files import InputFile, open_unchanged
from transforms.corpus.lines import MOST_BYTES
from transforms.corpus.places import Place, Places, first_places

AT_ONCE = 1 << 20  # bytes
LF, CR, QUOTE = b'\n\r"'


def find_csv_places(file: InputFile, cut: int) -> Places | None:
    """Find the first row in each `cut` bytes of a file; None if rows cannot be told apart.

    Raises InputChangedError if the file changed.
    """
    dialect = dialect_of(file)
    if not _can_be_cut(dialect):
        return None
    begins: list[Place] = []
    rows = 0
    with open_unchanged(file) as raw:
        try:
            for starts in _row_starts(raw, dialect):
                if not begins and len(starts):
                    begins.append(Place(0, int(starts[0]), 0))
                begins += first_places(starts, rows, cut, begins)
                rows += len(starts)
        except _UnclearRowsError:
            return None
    return Places(begins, rows)


class _UnclearRowsError(Exception):
    """Rows cannot be told apart by counting quotes, or are too long."""


def _can_be_cut(dialect: Dialect) -> bool:
    is_utf8 = dialect.encoding.startswith("utf-8")
    is_byte = len(dialect.delimiter.encode()) == 1
    return is_utf8 and is_byte and dialect.line_end == "\n" and bool(dialect.header)


def _row_starts(raw: BinaryIO, dialect: Dialect) -> Iterator[np.ndarray]:
    """Yield the bytes at which the rows below the header start, some of them at a time, int64 [n].

    Empty rows are left out as `read_csv` does. Raises _UnclearRowsError.
    """
    offset = 0
    rest = raw.read(len(BOM))
    if rest == BOM:
        offset = len(BOM)
        rest = b""
    is_header = True
    while block := raw.read(max(AT_ONCE, len(rest))):
        data = rest + block
        ends = _row_ends(data, dialect)
        if not len(ends):
            if len(data) > MOST_BYTES:
                raise _UnclearRowsError
            rest = data
            continue
        starts = np.concatenate([[0], ends[:-1] + 1])
        if not is_header:
            yield _filled(data, starts, ends, dialect) + offset
        else:
            yield _filled(data, starts[1:], ends[1:], dialect) + offset
        is_header = False
        after = int(ends[-1]) + 1
        rest = data[after:]
        offset += after
    if rest and not is_header:
        yield _filled(rest, *_last_row(rest, dialect), dialect) + offset


def _row_ends(data: bytes, dialect: Dialect) -> np.ndarray:
    """The places of the line ends in text, which begins a row, that end rows."""
    values = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(values == LF)
    if not dialect.quoting or QUOTE not in data or not len(ends):
        return ends
    quotes = np.flatnonzero(values == QUOTE)
    ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    if len(ends):
        _check_quotes(values, quotes[quotes < ends[-1]], dialect)
    return ends


def _check_quotes(values: np.ndarray, quotes: np.ndarray, dialect: Dialect) -> None:
    """Raise _UnclearRowsError unless quotes open and close values in turn.

    A doubled quote closes a value and opens it again. A byte follows the last quote.
    """
    delimiter = dialect.delimiter.encode()[0]
    opening = quotes[0::2]
    opening = opening[opening > 0]
    before = values[opening - 1]
    after = values[quotes[1::2] + 1]
    if not np.isin(before, [delimiter, LF, QUOTE]).all():
        raise _UnclearRowsError
    if not np.isin(after, [delimiter, LF, CR, QUOTE]).all():
        raise _UnclearRowsError
    returns = quotes[1::2][after == CR]
    if len(returns) and (returns[-1] + 2 >= len(values) or (values[returns + 2] != LF).any()):
        raise _UnclearRowsError  # a carriage return alone does not end the line


def _last_row(rest: bytes, dialect: Dialect) -> tuple[np.ndarray, np.ndarray]:
    """The start and end of a last row without a line end, as arrays."""
    if dialect.quoting and QUOTE in rest:
        ends = _row_ends(rest + b"\n", dialect)
        if not len(ends) or ends[-1] != len(rest):
            raise _UnclearRowsError
    return np.zeros(1, np.int64), np.array([len(rest)])


def _filled(data: bytes, starts: np.ndarray, ends: np.ndarray, dialect: Dialect) -> np.ndarray:
    """The starts of rows, without empty ones unless the file has one column."""
    if len(dialect.header) <= 1 or not len(starts):
        return starts
    first = np.frombuffer(data, np.uint8)[starts]
    is_empty = starts == ends
    for place in np.flatnonzero((first == CR) & ~is_empty).tolist():
        is_empty[place] = not data[starts[place] : ends[place]].strip(b"\r")
    return starts[~is_empty]
