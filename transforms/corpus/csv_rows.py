"""CSV and TSV: the dialect, told from the head of a file, its header, and its rows.

The first row is the header. Delimiter: the one that the file was given, else a tab for TSV, else whichever of comma,
semicolon, tab and bar the header has most of. Values may stand in double quotes and then hold delimiters, line ends and
doubled quotes; where the head of a file makes no sense so and does without, its quotes are plain characters. The
encoding is UTF-8, or UTF-16 by its byte order mark.
"""

import csv
import functools
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from transforms.corpus.files import InputFile, decompressed, open_unchanged
from transforms.corpus.lines import encoding_of, whole
from transforms.errors import SentenceBeamError
from transforms.storage.base import BLOCK

DELIMITERS = ",;\t|"
HEAD = 1 << 18  # bytes by which a dialect is told
MOST_CHARACTERS = 1 << 30  # in one value
ROWS = 8192
QUOTED = re.compile(r'"(?:[^"]|"")*"')


@dataclass(frozen=True)
class Dialect:
    """How a file is to be read; `header` has the names of its columns, none for a file without a row."""

    encoding: str
    delimiter: str
    quoting: bool
    header: tuple[str, ...] = ()

    def rows(self, text: Any) -> Any:
        """The reader of the rows in lines of text."""
        csv.field_size_limit(MOST_CHARACTERS)
        if not self.quoting:
            return csv.reader(text, delimiter=self.delimiter, quoting=csv.QUOTE_NONE, strict=True)
        return csv.reader(text, delimiter=self.delimiter, strict=True)


def read_csv(file: InputFile, dialect: Dialect | None = None) -> Iterator[list[list[str]]]:
    """Blocks of rows below the header, read by a dialect (default: the one that the file's head tells).

    Bytes that are no UTF-8 are lone surrogates. An empty line is no row, but in a file of one column. Raises
    SentenceBeamError for a file that is cut short, corrupt, or quoted in no way that can be followed.
    """
    dialect = dialect or dialect_of(file)
    with open_unchanged(file) as raw:
        errors = "surrogateescape" if dialect.encoding.startswith("utf-8") else "strict"
        lines = io.TextIOWrapper(decompressed(file, raw), dialect.encoding, errors, newline="")
        yield from whole(file, _blocks(file, dialect, lines))
        lines.detach()


def _blocks(file: InputFile, dialect: Dialect, lines: io.TextIOWrapper) -> Iterator[list[list[str]]]:
    reader, block, size = dialect.rows(lines), [], 0
    try:
        next(reader, None)
        for row in reader:
            if not row and len(dialect.header) > 1:
                continue
            block.append(row or [""])
            size += sum(map(len, row))
            if len(block) == ROWS or size > BLOCK:
                yield block
                block, size = [], 0
    except csv.Error as error:
        raise SentenceBeamError(
            f"{file.path}, line {reader.line_num}: {error}; mend its quotes (a value with quotes stands in quotes, and "
            "has its own doubled) or leave it out of --input"
        ) from error
    if block:
        yield block


@functools.lru_cache(16)
def dialect_of(file: InputFile) -> Dialect:
    """How the file is to be read. Raises SentenceBeamError for a file that is cut short or corrupt."""
    text, encoding, is_whole = _text_of_head(file)
    delimiter = file.delimiter or ("\t" if file.format == "tsv" else _delimiter(text))
    quoted, plain = Dialect(encoding, delimiter, True), Dialect(encoding, delimiter, False)
    dialect = plain if not _fits(quoted, text, is_whole) and _fits(plain, text, is_whole) else quoted
    return _with_header(dialect, text)


def unquoted(file: InputFile) -> Dialect:
    """How a file is to be read whose quotes are plain characters. Raises SentenceBeamError as `dialect_of`."""
    text, encoding, _ = _text_of_head(file)
    return _with_header(
        Dialect(encoding, file.delimiter or ("\t" if file.format == "tsv" else _delimiter(text)), False), text
    )


def _with_header(dialect: Dialect, text: str) -> Dialect:
    try:
        header = tuple(next(dialect.rows(io.StringIO(text, newline="")), ()))
    except csv.Error:
        header = ()
    return Dialect(dialect.encoding, dialect.delimiter, dialect.quoting, header)


def _text_of_head(file: InputFile) -> tuple[str, str, bool]:
    """The text at the head of a file, in whole lines, its encoding, and whether it is all of the file."""
    with open_unchanged(file) as raw:
        head = b"".join(whole(file, _head(decompressed(file, raw))))
    is_whole, encoding = len(head) < HEAD, encoding_of(head)
    text = head.decode(encoding, errors="replace")
    if not is_whole:
        text = text[: max(text.rfind("\n"), text.rfind("\r")) + 1] or text
    return text, encoding, is_whole


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
        widths += (len(row) for row in dialect.rows(io.StringIO(text, newline="")) if row)
    except csv.Error as error:
        if is_whole or "unexpected end of data" not in str(error):  # a row that goes on behind the head
            return False
    return len(set(widths)) <= 1
