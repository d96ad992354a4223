"""CSV and TSV: the dialect, told from the head of a file, its header, and its rows.

The first row is the header. Delimiter: the one that the file was given, else a tab for TSV, else
whichever of comma, semicolon, tab and bar the header has most of. Values may stand in double quotes
and then hold delimiters, line ends and doubled quotes; where the head of a file makes no sense so
and does without, its quotes are plain characters. The encoding is decided in `encoding.py`. A row
that is too long is passed over, and a CutRow stands for it.
"""

import contextlib
import csv
import functools
import io
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from transforms.base.errors import SentenceBeamError
from transforms.corpus.encoding import encoding_of, errors_of
from transforms.corpus.files import InputFile, decompressed, open_unchanged
from transforms.corpus.lines import BEGINNING, MOST_BYTES, whole
from transforms.storage.base import BLOCK

DELIMITERS = ",;\t|"
HEAD = 1 << 18  # bytes by which a dialect is told
MOST_CHARACTERS = MOST_BYTES  # of a row
PIECE = 1 << 20  # characters of a line that are read at once
ROWS = 8192
NEWLINES = ("\n", "\r")
LONE = re.compile(r"\r(?!\r*(?:\n|\Z))")  # several before LF end a line too
# in the place of a carriage return that ends no line, at which csv would end a row
RETURN = "\udc0d"
QUOTED = re.compile(r'"(?:[^"]|"")*"')
UNQUOTED = re.compile(r'[^"]*(?:""[^"]*)*')


class CutRow(list[str]):
    """Stands for a row of more than MOST_CHARACTERS characters; its one value is the beginning of
    the row.
    """


@dataclass(frozen=True)
class Dialect:
    """How a file is to be read; `header` has the names of its columns, none for a file without a
    row.

    Blanks around names are left out, unless two names would become one; `trimmed` are the names
    that had any. Lines end at LF and CRLF if `line_end` is LF; if it is empty, the file has no LF,
    and they end at carriage returns.
    """

    encoding: str
    delimiter: str
    quoting: bool
    header: tuple[str, ...] = ()
    trimmed: tuple[str, ...] = ()
    line_end: str = "\n"

    def place_of(self, name: str) -> int | None:
        """The place of a column, None if there is none; a name may be asked for with the blanks
        around it.
        """
        names = (name, name.strip())
        return next((self.header.index(known) for known in names if known in self.header), None)

    def rows(self, text: Any) -> Any:
        """The reader of the rows in lines of text, which is read within `long_fields`."""
        if not self.quoting:
            return csv.reader(text, delimiter=self.delimiter, quoting=csv.QUOTE_NONE, strict=True)
        return csv.reader(text, delimiter=self.delimiter, strict=True)


class _FieldLimit:
    """How many readers need csv's limit for a field, which all of a process share, to be ours, and
    what it was.
    """

    lock = threading.Lock()
    readers = 0
    before = 0


@contextlib.contextmanager
def long_fields() -> Iterator[None]:
    """Let csv read fields of any length that a row may have; the limit is put back once nobody
    needs this one.
    """
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


def read_csv(file: InputFile, dialect: Dialect | None = None) -> Iterator[list[list[str]]]:
    """Blocks of rows below the header, read by a dialect (default: the one that the file's head
    tells).

    Bytes that are no UTF-8 are lone surrogates. An empty line is no row, but in a file of one
    column. Raises SentenceBeamError for a file that is cut short, corrupt, or quoted in no way that
    can be followed.
    """
    dialect = dialect or dialect_of(file)
    with open_unchanged(file) as raw:
        errors = errors_of(dialect.encoding)
        lines = io.TextIOWrapper(decompressed(file, raw), dialect.encoding, errors, newline="")
        with long_fields():
            yield from whole(file, _blocks(file, dialect, lines))
        lines.detach()


def _blocks(
    file: InputFile, dialect: Dialect, lines: io.TextIOWrapper
) -> Iterator[list[list[str]]]:
    lines.reconfigure(newline=dialect.line_end)
    bounded = _BoundedRows(lines, dialect)
    reader, block, size = dialect.rows(bounded), [], 0
    try:
        next(reader, None)
        bounded.end()
        for found in reader:
            if bounded.has_returns:
                found = [value.replace(RETURN, "\r") for value in found]
            row = bounded.end() or found
            if not row and len(dialect.header) > 1:
                continue
            block.append(row or [""])
            size += sum(map(len, row))
            if len(block) == ROWS or size > BLOCK:
                yield block
                block, size = [], 0
    except csv.Error as error:
        raise SentenceBeamError(
            f"{file.path}, line {reader.line_num}: {error}; mend its quotes (a value with quotes"
            " stands in quotes, and has its own doubled) or leave it out of --input"
        ) from error
    if block:
        yield block


class _BoundedRows:
    """Lines for `csv.reader`, which holds a whole row at a time: of a row that is too long, lines
    that end it.

    `end` is called after each row. Memory holds a row of MOST_CHARACTERS at most.
    """

    def __init__(self, text: io.TextIOWrapper, dialect: Dialect):
        self._dialect = dialect
        self._pieces = _pieces(text, bool(dialect.line_end))
        self.has_returns = False  # whether RETURN is in any row so far
        self._size = 0  # of the row so far
        self._cut: CutRow | None = None

    def end(self) -> CutRow | None:
        """Begin another row; what stands for the last one if it was too long."""
        cut, self._cut, self._size = self._cut, None, 0
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
        """The line of which a piece was read; if its row is too long, a line that ends the row,
        with all of it read.

        `within` says that the line begins within quotes.
        """
        pieces = [piece]
        while (
            self._size <= MOST_CHARACTERS
            and not piece.endswith(NEWLINES)
            and (piece := next(self._pieces, ""))
        ):
            pieces.append(piece)
            self._size += len(piece)
        if self._size <= MOST_CHARACTERS:
            return "".join(pieces)
        self._cut = CutRow([pieces[0][:BEGINNING].replace(RETURN, "\r")])
        quotes = Quotes(self._dialect, within)
        for held in pieces:
            quotes.read(held)
        while not (quotes.are_closed and piece.endswith(NEWLINES)) and (
            piece := next(self._pieces, "")
        ):
            quotes.read(piece)
        if not quotes.are_closed:
            raise csv.Error("unexpected end of data")
        return '"\n' if within else "cut\n"


def _pieces(text: io.TextIOBase, marks: bool) -> Iterator[str]:
    """The lines of text, a long one in pieces of PIECE characters or one more; CRLF is in one
    piece.

    If it `marks` them, RETURN stands for carriage returns that end no line.
    """
    piece = text.readline(PIECE)
    while piece:
        after = ""
        if piece.endswith("\r") and (len(piece) >= PIECE or piece == "\r"):
            after = text.read(1)
            if after == "\n":
                piece, after = piece + after, ""
        if marks and "\r" in piece:
            piece = LONE.sub(RETURN, piece)
            if after and piece.endswith("\r"):
                piece = piece[:-1] + RETURN
        yield piece
        piece = after if after == "\r" else after + text.readline(PIECE)


class Quotes:
    """Whether a place in CSV lies within quotes, by what was read up to there."""

    def __init__(self, dialect: Dialect, within: bool = False):
        self._quoting, self._opening = dialect.quoting, f'{dialect.delimiter}"'
        self._state = "quoted" if within else "field"

    @property
    def are_closed(self) -> bool:
        """Whether a line that ends here ends its row."""
        return self._state != "quoted"

    def read(self, piece: str) -> None:
        """Read on."""
        at = 0
        while self._quoting and at < len(piece):
            if self._state == "quoted":
                at = UNQUOTED.match(piece, at).end()  # type: ignore[union-attr]
                if at < len(piece):
                    at, self._state = at + 1, "quote"
            elif self._state == "quote":  # which closes the quotes, or is the first of two
                self._state = "quoted" if piece[at] == '"' else "plain"
                at += self._state == "quoted"
            elif self._state == "field":
                self._state = "quoted" if piece[at] == '"' else "plain"
                at += self._state == "quoted"
            else:
                found = piece.find(self._opening, at)
                is_open = piece.endswith((self._opening[0], *NEWLINES))
                self._state = "quoted" if found >= 0 else ("field" if is_open else "plain")
                at = found + 2 if found >= 0 else len(piece)


@functools.lru_cache(16)
def dialect_of(file: InputFile) -> Dialect:
    """How the file is to be read. Raises SentenceBeamError for a file that is cut short or
    corrupt.
    """
    text, encoding, is_whole = _text_of_head(file)
    delimiter = file.delimiter or ("\t" if file.format == "tsv" else _delimiter(text))
    end = _line_end(text)
    quoted = Dialect(encoding, delimiter, True, line_end=end)
    plain = Dialect(encoding, delimiter, False, line_end=end)
    dialect = (
        plain if not _fits(quoted, text, is_whole) and _fits(plain, text, is_whole) else quoted
    )
    return _with_header(dialect, text)


def unquoted(file: InputFile) -> Dialect:
    """How a file is to be read whose quotes are plain characters. Raises SentenceBeamError as
    `dialect_of`.
    """
    text, encoding, _ = _text_of_head(file)
    delimiter = file.delimiter or ("\t" if file.format == "tsv" else _delimiter(text))
    return _with_header(Dialect(encoding, delimiter, False, line_end=_line_end(text)), text)


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
    return replace(
        dialect, header=names, trimmed=tuple(name for name in header if name != name.strip())
    )


def _text_of_head(file: InputFile) -> tuple[str, str, bool]:
    """The text at the head of a file, in whole lines, its encoding, and whether it is all of the
    file.
    """
    with open_unchanged(file) as raw:
        head = b"".join(whole(file, _head(decompressed(file, raw))))
    is_whole, encoding = len(head) < HEAD, encoding_of(head)
    text = head.decode(encoding, errors="replace")
    if not is_whole:
        text = text[: text.rfind(_line_end(text) or "\r") + 1] or text
    return text, encoding, is_whole


def _line_end(text: str) -> str:
    """How lines end, as `Dialect.line_end` says it."""
    return "" if "\r" in text and "\n" not in text else "\n"


def _lines_of(text: str, dialect: Dialect) -> Iterator[str]:
    """The lines of the text at the head of a file."""
    return _pieces(io.StringIO(text, newline=dialect.line_end), bool(dialect.line_end))


def _head(reader: Any) -> Iterator[bytes]:
    left = HEAD
    while left > 0 and (block := reader.read(left)):
        yield block[:left]
        left -= len(block)


def _delimiter(text: str) -> str:
    header = QUOTED.sub("", text).partition("\n")[0].partition("\r")[0]
    return max(DELIMITERS, key=header.count)


def _fits(dialect: Dialect, text: str, is_whole: bool) -> bool:
    """Whether the text is rows of as many values as the header has."""
    widths: list[int] = []
    try:
        with long_fields():
            widths += (len(row) for row in dialect.rows(_lines_of(text, dialect)) if row)
    except csv.Error as error:
        # a row that goes on behind the head
        if is_whole or "unexpected end of data" not in str(error):
            return False
    return len(set(widths)) <= 1
