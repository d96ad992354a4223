"""CSV and TSV: the dialect, detected from the head of a file, its header and its rows.

The first row is the header. The delimiter is that of the options, else a tab for TSV, else the one
of comma, semicolon, tab and bar that is most frequent in the header. Quoted values may hold
delimiters, line ends and doubled quotes. Quotes are plain characters if the head of the file fits
only so. `encoding.py` decides the encoding. A row that is too long is replaced by a CutRow.
"""

import contextlib
import csv
import functools
import io
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from transforms.base.errors import SentenceBeamError
from transforms.corpus.encoding import encoding_of, errors_of
from transforms.corpus.files import InputFile, decompressed, open_unchanged
from transforms.corpus.lines import BEGINNING, MOST_BYTES, whole
from transforms.storage.base import BLOCK

DELIMITERS = ",;\t|"
HEAD = 1 << 18  # bytes from which a dialect is detected
MOST_CHARACTERS = MOST_BYTES  # of a row
PIECE = 1 << 20  # characters of a line that are read at once
ROWS = 8192
NEWLINES = ("\n", "\r")
LONE = re.compile(r"\r(?!\r*(?:\n|\Z))")  # several before LF end a line too
# Replaces a carriage return inside a line, at which csv would end the row.
RETURN = "\udc0d"
QUOTED = re.compile(r'"(?:[^"]|"")*"')
UNQUOTED = re.compile(r'[^"]*(?:""[^"]*)*')


class CutRow(list[str]):
    """Replacement of a row of more than MOST_CHARACTERS; its one value is the row's beginning."""


@dataclass(frozen=True)
class Dialect:
    """The format of a CSV file; `header` has the names of its columns, none for an empty file.

    Names are stripped, unless two would become equal; `trimmed` are the names before. Lines end at
    LF and CRLF if `line_end` is LF. If it is empty, the file has no LF, and lines end at carriage
    returns.
    """

    encoding: str
    delimiter: str
    quoting: bool
    header: tuple[str, ...] = ()
    trimmed: tuple[str, ...] = ()
    line_end: str = "\n"

    def place_of(self, name: str) -> int | None:
        """Return the place of a column, by its name with or without blanks; None if missing."""
        for known in (name, name.strip()):
            if known in self.header:
                return self.header.index(known)
        return None

    def rows(self, text: Any) -> Any:
        """Return a reader of the rows in lines of text; read it within `long_fields`."""
        if not self.quoting:
            return csv.reader(text, delimiter=self.delimiter, quoting=csv.QUOTE_NONE, strict=True)
        return csv.reader(text, delimiter=self.delimiter, strict=True)


class _FieldLimit:
    """The number of readers that need our field limit of csv, a global, and its value before."""

    lock = threading.Lock()
    readers = 0
    before = 0


@contextlib.contextmanager
def long_fields() -> Iterator[None]:
    """Let csv read fields as long as a row may be; restore its limit after the last reader."""
    with _FieldLimit.lock:
        if _FieldLimit.readers == 0:
            _FieldLimit.before = csv.field_size_limit(MOST_CHARACTERS + PIECE)
        _FieldLimit.readers += 1
    try:
        yield
    finally:
        with _FieldLimit.lock:
            _FieldLimit.readers -= 1
            if _FieldLimit.readers == 0:
                csv.field_size_limit(_FieldLimit.before)


def read_csv(
    file: InputFile, dialect: Dialect | None = None, offset: int = 0, rows: int | None = None
) -> Iterator[list[list[str]]]:
    """Yield blocks of rows below the header, read by a dialect (default: detected from the head).

    `offset` is the byte of the first row to read, 0 for all; `rows` is their number (None: all).
    Bytes that are not UTF-8 become lone surrogates. Empty lines are skipped, except in one-column
    files. Raises SentenceBeamError for a file that is cut short, corrupt or wrongly quoted.
    """
    dialect = dialect or dialect_of(file)
    with open_unchanged(file) as raw:
        encoding = dialect.encoding
        if offset:
            raw.seek(offset)
            encoding = "utf-8"  # the mark of utf-8-sig is at the start
        errors = errors_of(encoding)
        lines = io.TextIOWrapper(decompressed(file, raw), encoding, errors, newline="")
        with long_fields():
            read = _rows(file, dialect, lines, has_header=offset == 0)
            yield from whole(file, _blocks(islice(read, rows)))
        lines.detach()


def _rows(
    file: InputFile, dialect: Dialect, lines: io.TextIOWrapper, has_header: bool
) -> Iterator[list[str]]:
    lines.reconfigure(newline=dialect.line_end)
    bounded = _BoundedRows(lines, dialect)
    reader = dialect.rows(bounded)
    with _quotes_explained(file, reader):
        if has_header:
            next(reader, None)
            bounded.end()
        for values in reader:
            if bounded.has_returns:
                values = [value.replace(RETURN, "\r") for value in values]
            row = bounded.end() or values
            if row or len(dialect.header) <= 1:
                yield row or [""]


def _blocks(rows: Iterator[list[str]]) -> Iterator[list[list[str]]]:
    block: list[list[str]] = []
    size = 0
    for row in rows:
        block.append(row)
        size += sum(map(len, row))
        if len(block) == ROWS or size > BLOCK:
            yield block
            block = []
            size = 0
    if block:
        yield block


@contextlib.contextmanager
def _quotes_explained(file: InputFile, reader: Any) -> Iterator[None]:
    """Turn csv's error into one line that names the place and what mends it."""
    try:
        yield
    except csv.Error as error:
        raise SentenceBeamError(
            f"{file.path}, line {reader.line_num}: {error}; mend its quotes (a value with quotes"
            " stands in quotes, and has its own doubled) or leave it out of --input"
        ) from error


class _BoundedRows:
    """Lines for `csv.reader`, which holds a whole row in memory; a row that is too long is ended.

    The caller calls `end` after each row. Memory holds at most a row of MOST_CHARACTERS.
    """

    def __init__(self, text: io.TextIOWrapper, dialect: Dialect):
        self._dialect = dialect
        self._pieces = _pieces(text, bool(dialect.line_end))
        self.has_returns = False  # whether RETURN is in any row so far
        self._size = 0  # of the row so far
        self._cut: CutRow | None = None

    def end(self) -> CutRow | None:
        """Begin the next row; return the replacement of the last one if it was too long."""
        cut = self._cut
        self._cut = None
        self._size = 0
        return cut

    def __iter__(self) -> Iterator[str]:
        for piece in self._pieces:
            before = self._size
            self._size += len(piece)
            line = piece
            if len(piece) >= PIECE or self._size > MOST_CHARACTERS:
                line = self._long(piece, before > 0)
            self.has_returns = self.has_returns or RETURN in line
            yield line

    def _long(self, piece: str, within: bool) -> str:
        """Return the whole line that begins with a piece.

        If its row is too long, read the rest of the row and return a line that ends it. `within`:
        the line begins inside quotes.
        """
        pieces = [piece]
        while piece and self._size <= MOST_CHARACTERS and not piece.endswith(NEWLINES):
            piece = next(self._pieces, "")
            pieces.append(piece)
            self._size += len(piece)
        if self._size <= MOST_CHARACTERS:
            return "".join(pieces)
        self._cut = CutRow([pieces[0][:BEGINNING].replace(RETURN, "\r")])
        self._skip_row(pieces, within)
        return '"\n' if within else "cut\n"

    def _skip_row(self, pieces: list[str], within: bool) -> None:
        """Read to the end of the row whose line begins with these pieces."""
        quotes = Quotes(self._dialect, within)
        for piece in pieces:
            quotes.read(piece)
        while piece and not (quotes.are_closed and piece.endswith(NEWLINES)):
            piece = next(self._pieces, "")
            quotes.read(piece)
        if not quotes.are_closed:
            raise csv.Error("unexpected end of data")


def _pieces(text: io.TextIOBase, marks: bool) -> Iterator[str]:
    """Yield the lines of text, long ones in pieces of PIECE characters or one more.

    CRLF is never split. `marks` replaces carriage returns inside lines by RETURN.
    """
    piece = text.readline(PIECE)
    while piece:
        after = ""
        if piece.endswith("\r") and (len(piece) >= PIECE or piece == "\r"):
            after = text.read(1)
            if after == "\n":
                piece += after
                after = ""
        if marks and "\r" in piece:
            piece = LONE.sub(RETURN, piece)
            if after and piece.endswith("\r"):
                piece = piece[:-1] + RETURN
        yield piece
        if after == "\r":
            piece = after
        else:
            piece = after + text.readline(PIECE)


class Quotes:
    """Tracks, as text is read, whether the current place in CSV is inside quotes."""

    def __init__(self, dialect: Dialect, within: bool = False):
        self._quoting = dialect.quoting
        self._opening = f'{dialect.delimiter}"'
        self._state = "quoted" if within else "field"

    @property
    def are_closed(self) -> bool:
        """Whether a line that ends here ends its row."""
        return self._state != "quoted"

    def read(self, piece: str) -> None:
        """Read the next piece of the text."""
        at = 0
        while self._quoting and at < len(piece):
            if self._state == "quoted":
                at = UNQUOTED.match(piece, at).end()  # type: ignore[union-attr]
                if at < len(piece):
                    at += 1
                    self._state = "quote"
            elif self._state in ("quote", "field"):
                # after a quote, another one continues the value; at a field's start it opens one
                self._state = "quoted" if piece[at] == '"' else "plain"
                at += self._state == "quoted"
            else:
                at = self._read_plain(piece, at)

    def _read_plain(self, piece: str, at: int) -> int:
        """Read a value without quotes, up to the next quoted value; return the place after it."""
        opening = piece.find(self._opening, at)
        if opening >= 0:
            self._state = "quoted"
            return opening + 2
        if piece.endswith((self._opening[0], *NEWLINES)):
            self._state = "field"
        else:
            self._state = "plain"
        return len(piece)


@functools.lru_cache(16)
def dialect_of(file: InputFile) -> Dialect:
    """Detect the dialect of a file. Raises SentenceBeamError if it is cut short or corrupt."""
    text, encoding, is_whole = _text_of_head(file)
    quoted = Dialect(encoding, _delimiter_of(file, text), True, line_end=_line_end(text))
    plain = replace(quoted, quoting=False)
    if not _fits(quoted, text, is_whole) and _fits(plain, text, is_whole):
        return _with_header(plain, text)
    return _with_header(quoted, text)


def unquoted(file: InputFile) -> Dialect:
    """Return the dialect of a file whose quotes are plain characters; raises as `dialect_of`."""
    text, encoding, _ = _text_of_head(file)
    dialect = Dialect(encoding, _delimiter_of(file, text), False, line_end=_line_end(text))
    return _with_header(dialect, text)


def _with_header(dialect: Dialect, text: str) -> Dialect:
    try:
        with long_fields():
            first = next(dialect.rows(_lines_of(text, dialect)), ())
            header = tuple(name.replace(RETURN, "\r") for name in first)
    except csv.Error:
        header = ()
    names = tuple(name.strip() for name in header)
    if len(set(names)) < len(set(header)):
        return replace(dialect, header=header)
    trimmed = tuple(name for name in header if name != name.strip())
    return replace(dialect, header=names, trimmed=trimmed)


def _text_of_head(file: InputFile) -> tuple[str, str, bool]:
    """Return the lines at the head of a file, the encoding, and whether they are the whole file."""
    with open_unchanged(file) as raw:
        head = b"".join(whole(file, _head(decompressed(file, raw))))
    is_whole = len(head) < HEAD
    encoding = encoding_of(head)
    text = head.decode(encoding, errors="replace")
    if not is_whole:
        text = text[: text.rfind(_line_end(text) or "\r") + 1] or text
    return text, encoding, is_whole


def _line_end(text: str) -> str:
    """Return the end of lines, as in `Dialect.line_end`."""
    if "\r" in text and "\n" not in text:
        return ""
    return "\n"


def _lines_of(text: str, dialect: Dialect) -> Iterator[str]:
    """Yield the lines of the text at the head of a file."""
    return _pieces(io.StringIO(text, newline=dialect.line_end), bool(dialect.line_end))


def _head(reader: Any) -> Iterator[bytes]:
    left = HEAD
    while left > 0 and (block := reader.read(left)):
        yield block[:left]
        left -= len(block)


def _delimiter_of(file: InputFile, text: str) -> str:
    if file.delimiter:
        return file.delimiter
    if file.format == "tsv":
        return "\t"
    header = QUOTED.sub("", text).partition("\n")[0].partition("\r")[0]
    return max(DELIMITERS, key=header.count)


def _fits(dialect: Dialect, text: str, is_whole: bool) -> bool:
    """Whether all rows of the text have as many values as the header."""
    widths: list[int] = []
    try:
        with long_fields():
            widths += (len(row) for row in dialect.rows(_lines_of(text, dialect)) if row)
    except csv.Error as error:
        # unless the last row continues after the head
        if is_whole or "unexpected end of data" not in str(error):
            return False
    return len(set(widths)) <= 1
