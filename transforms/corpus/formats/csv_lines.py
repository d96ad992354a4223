"""Lines of CSV for Python's reader, which holds a whole row in memory.

They remember the lines of the current row, so that they can be read again if its quotes are wrong,
and end a row that is too long. Characters that the reader would take wrongly are replaced by marks.
"""

import io
import re
from collections import deque
from collections.abc import Iterator

from sentence_beam.transforms.corpus.formats.dialect import Dialect
from sentence_beam.transforms.corpus.formats.text_lines import BEGINNING, MOST_BYTES, TOO_LONG

MOST_CHARACTERS = MOST_BYTES  # of a row
PIECE = 1 << 20  # characters of a line that are read at once
NEWLINES = ("\n", "\r")
LONE = re.compile(r"\r(?!\r*(?:\n|\Z))")  # several before LF end a line too
UNQUOTED = re.compile(r'[^"]*(?:""[^"]*)*')
MANY = 1000  # lines of a row; so many that are rows are no value
# Marks are lone surrogates that no encoding has. RETURN replaces a carriage return inside a line,
# at which csv would end the row; others replace a backslash and the character after it.
RETURN = chr(0xDC0D)
SLASH = chr(0xDC0E)
MARKS = {'"': chr(0xDC0F), "\\": SLASH}
MARKS_UNQUOTED = {"n": chr(0xDC10), "t": chr(0xDC11), "r": RETURN, "N": chr(0xDC12)}
READ_AS = {0xDC0D: "\r", 0xDC0F: '"', 0xDC10: "\n", 0xDC11: "\t", 0xDC12: "\\N"}
ESCAPED = re.compile(r'\\(["\\])')
ESCAPED_UNQUOTED = re.compile(r"\\(.)", re.DOTALL)
BROKEN_QUOTES = "wrong quotes"
HOLDS_ROWS = 'a value in quotes holds rows; say --csv quote=none, or quote=" if it is right'


class BadRow(list[str]):
    """Replacement of a row that cannot be used; its one value is the row's beginning.

    `lines` is the number of its lines.
    """

    def __init__(self, text: str, reason: str, lines: int = 1):
        super().__init__([text[:BEGINNING].rstrip("\r\n")])
        self.reason = reason
        self.lines = lines


class CsvLines:
    """The lines of text for the reader of a dialect.

    The caller calls `end` after each row, or clears `row` if it is one line and `is_plain`, and
    calls `step_back` after an error. Memory holds at most a row of MOST_CHARACTERS.
    """

    def __init__(self, text: io.TextIOBase, dialect: Dialect):
        self._dialect = dialect
        self._pieces = _read_pieces(text, dialect)
        self.row: list[str] = []  # the lines of the row so far
        self.is_plain = True  # whether values need no change
        self.has_folded = False  # whether a row so far has several lines
        self._again: deque[str] = deque()  # lines to read again
        self._size = 0  # of the row so far
        self._is_cut = False
        self._has_marks = False
        self._marks: tuple[str, ...] = (RETURN,)
        if dialect.escape:
            self._marks = (RETURN, *MARKS.values(), *MARKS_UNQUOTED.values())

    def skip(self, lines: int) -> None:
        """Read over so many lines."""
        for _ in range(lines):
            piece = next(self._pieces, "\n")
            while not piece.endswith(NEWLINES):
                piece = next(self._pieces, "\n")

    def end(self, values: list[str]) -> list[str]:
        """Begin the next row; return the values of the last one, or its replacement."""
        lines = self.row[:]
        self.row.clear()
        self.has_folded |= len(lines) > 1
        if self._is_cut:
            self._is_cut = False
            self.is_plain = not self._has_marks
            return BadRow(self._read(lines[0], lines), TOO_LONG)
        if len(lines) > 1 and self._holds_rows(lines):
            return BadRow(self._read(lines[0], lines), HOLDS_ROWS, len(lines))
        return [self._read(value, lines) for value in values] if self._has_marks else values

    def step_back(self) -> BadRow:
        """Begin again after the first line of a row with wrong quotes, and return that line."""
        first, *rest = self.row
        self._again.extendleft(reversed(rest))
        self.row.clear()
        return BadRow(self._read(first, [first]), BROKEN_QUOTES)

    def count_open_rows(self) -> int:
        """Return the number of lines in a row without an end if they are rows; else 0."""
        return len(self.row) if len(self.row) > 1 and self._holds_rows(self.row) else 0

    def __iter__(self) -> Iterator[str]:
        row = self.row
        again = self._again
        pieces = self._pieces  # which goes on after an error, when this generator is dropped
        while piece := again.popleft() if again else next(pieces, ""):
            size = len(piece)
            if row:
                size += self._size
            self._size = size
            line = self._complete(piece) if len(piece) >= PIECE or size > MOST_CHARACTERS else piece
            if not self._has_marks and not line.isascii():
                self._has_marks = any(mark in line for mark in self._marks)
                self.is_plain = not self._has_marks
            row.append(line)
            if len(row) == MANY and self._holds_rows(row):
                yield '"wrong'  # an error for the reader, which is inside quotes
            else:
                yield line

    def _holds_rows(self, lines: list[str]) -> bool:
        """Whether the lines of a row with quotes are rows by themselves."""
        dialect = self._dialect
        if not dialect.quoting or dialect.trusts_quotes:
            return False
        if len(dialect.header) < 2:  # any line is a row
            return dialect.single_lines
        if dialect.escape and any(MARKS['"'] in line for line in lines):
            return False
        return all(map(dialect.is_line, lines))

    def _complete(self, piece: str) -> str:
        """Return the whole line that begins with a piece.

        If its row is too long, read the rest of the row and return a line that ends it.
        """
        within = bool(self.row)  # the line begins inside quotes
        pieces = [piece]
        while piece and self._size <= MOST_CHARACTERS and not piece.endswith(NEWLINES):
            piece = next(self._pieces, "")
            pieces.append(piece)
            self._size += len(piece)
        if self._size <= MOST_CHARACTERS:
            return "".join(pieces)
        first = next(iter(self.row), pieces[0])
        self.row[:] = [first[:BEGINNING]]
        self._is_cut = True
        self.is_plain = False
        self._skip_row(pieces, within)
        return '"\n' if within else "cut\n"

    def _skip_row(self, pieces: list[str], within: bool) -> None:
        """Read to the end of the row whose line begins with these pieces.

        Raises ValueError if its last quote has no end.
        """
        quotes = Quotes(self._dialect, within)
        for piece in pieces:
            quotes.read(piece)
        while piece and not (quotes.are_closed and piece.endswith(NEWLINES)):
            piece = next(self._pieces, "")
            quotes.read(piece)
        if not quotes.are_closed:
            raise ValueError("a row that is too long has a quote without an end")

    def _read(self, value: str, lines: list[str]) -> str:
        """Return a value of a row in these lines with the characters that marks stand for."""
        if value.isascii():
            return value
        if SLASH in value:
            slash = "\\" if self._is_escaped(value, lines) else "\\\\"
            value = value.replace(SLASH, slash)
        return value.translate(READ_AS)

    def _is_escaped(self, value: str, lines: list[str]) -> bool:
        """Whether two backslashes in a value are one: if there are quotes, only inside them."""
        return not self._dialect.quoting or f'"{value}"' in "".join(lines)


def _read_pieces(text: io.TextIOBase, dialect: Dialect) -> Iterator[str]:
    """Yield the lines of text, long ones in pieces of PIECE characters or one more.

    Neither CRLF nor an escaped character is split from what is before it. Carriage returns inside
    lines are replaced by RETURN, unless they end lines.
    """
    piece = text.readline(PIECE)
    while piece:
        if dialect.escape and "\\" in piece:
            piece = _mark_escaped(piece, text, dialect)
        piece, after = _add_line_feed(piece, text)
        if dialect.line_end and "\r" in piece:
            piece = LONE.sub(RETURN, piece)
            if after and piece.endswith("\r"):
                piece = piece[:-1] + RETURN
        yield piece
        piece = after if after == "\r" else after + text.readline(PIECE)


def _add_line_feed(piece: str, text: io.TextIOBase) -> tuple[str, str]:
    """Add the LF of a CRLF that a piece ends inside of; return another character apart."""
    if not piece.endswith("\r") or 1 < len(piece) < PIECE:
        return piece, ""
    after = text.read(1)
    return (piece + after, "") if after == "\n" else (piece, after)


def _mark_escaped(piece: str, text: io.TextIOBase, dialect: Dialect) -> str:
    """Replace escaped characters by marks; without quotes csv reads others, as delimiters.

    The character after a backslash at the end is read from `text`.
    """
    slashes = len(piece) - len(piece.rstrip("\\"))
    if slashes % 2:
        piece += text.read(1)
    if dialect.quoting:
        return ESCAPED.sub(lambda match: MARKS[match[1]], piece)
    meanings = {**MARKS_UNQUOTED, "\\": SLASH}
    return ESCAPED_UNQUOTED.sub(lambda match: meanings.get(match[1], match[0]), piece)


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
        self._state = "field" if piece.endswith((self._opening[0], *NEWLINES)) else "plain"
        return len(piece)
