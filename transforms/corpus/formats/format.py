"""An input format: how its files are known, which columns they have, how they are cut, counted and
read.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transforms.corpus.columns import FileColumns
from transforms.corpus.files import InputFile, check_unchanged
from transforms.corpus.row_blocks import EMPTY_TEXT, Block, Columns
from transforms.corpus.spans import Span, whole_file


@dataclass(frozen=True)
class RawRow:
    """A row as it is in its file: its number from 1, without a header, and its values; or the
    reason against it.
    """

    number: int
    values: Sequence[Any] = ()
    reason: str | None = None


class Format(ABC):
    """One input format. Unless it says otherwise, a file is one span that is read from one end to
    the other.

    `name` is its word for `--format`; `endings` are those of its files' names, in lower case, with
    the dot. Everything that reads a file raises SentenceBeamError naming one that cannot be read,
    InputChangedError one that changed.
    """

    name: str
    endings: tuple[str, ...]
    is_packed = False  # compressed inside, if at all: suffixes as `.gz` mean nothing
    is_by_line = False  # a row a line: any range of bytes can be read, and rows are placed by bytes
    has_columns = True  # plain text has none
    has_header = False  # the names of the columns are its first row
    counts_in_head = False  # the first megabytes tell about how many rows there are
    blank_reason = EMPTY_TEXT  # against a row whose text is blank

    @abstractmethod
    def columns(self, file: InputFile) -> FileColumns:
        """The columns of a file, which is opened when they are first asked for."""

    @abstractmethod
    def blocks(self, span: Span, columns: Columns) -> Iterator[Block]:
        """The rows of a span in order, in blocks."""

    @abstractmethod
    def row_counts(self, file: InputFile) -> Iterator[int]:
        """The numbers of rows in the blocks of a file."""

    @abstractmethod
    def header(self, file: InputFile) -> list[str]:
        """The names of the columns whose values `values` gives; of JSON those of the first row."""

    @abstractmethod
    def values(self, file: InputFile, names: Sequence[str]) -> Iterator[RawRow]:
        """The rows of a file with their values in columns of the header."""

    def spans(self, file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> list[Span]:
        """Spans of about `unit_tokens`, in order; `text` names the column with the text, or several
        that make it.
        """
        return whole_file(file, is_packed=bool(file.compression))

    def count_rows(self, span: Span) -> int:
        """The number of rows in a span that does not know it."""
        return sum(1 for _ in self.row_starts(span))

    def row_starts(self, span: Span) -> Iterator[int]:
        """The beginning of each row of a span: the row's number, or the byte of its line."""
        number = 0
        for rows in self.row_counts(span.file):
            for _ in range(rows):
                if span.stop is None or number < span.stop:
                    yield number
                number += 1

    def count_in_head(self, file: InputFile, head: bytes, goes_on: bool) -> int:
        """The number of rows in the first bytes of a file or range; `goes_on` says that more bytes
        follow.
        """
        raise NotImplementedError


def until_stop(span: Span, blocks: Iterator[Block]) -> Iterator[Block]:
    """The rows of a file before the span's end, which is a number of rows."""
    for rows, sizes in blocks:
        left = len(rows.positions) if span.stop is None else span.stop - rows.positions[0]
        if left <= 0:
            check_unchanged(span.file)
            return
        if left < len(rows.positions):
            rows, sizes = rows.slice(0, left), sizes[:left]
        yield rows, sizes
