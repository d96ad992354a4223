"""The base class of input formats: their names, columns, spans and rows."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sentence_beam.transforms.corpus.column_checks import FileColumns
from sentence_beam.transforms.corpus.files import InputFile, check_unchanged
from sentence_beam.transforms.corpus.row_blocks import EMPTY_TEXT, Block, Columns
from sentence_beam.transforms.corpus.spans import Span, make_whole_span


@dataclass(frozen=True)
class RawRow:
    """A row of a file: its number from 1, without a header, and its values.

    A row that cannot be read has a reason instead of values.
    """

    number: int
    values: Sequence[Any] = ()
    reason: str | None = None


class Format(ABC):
    """An input format. By default a file is one span, which is read from start to end.

    `name` is its word for `--format`; `endings` are those of its files' names, in lower case, with
    the dot. Methods that read a file raise SentenceBeamError naming one that cannot be read, and
    InputChangedError naming one that changed.
    """

    name: str
    endings: tuple[str, ...]
    is_packed = False  # compressed inside, if at all; suffixes as `.gz` are ignored
    is_by_line = False  # one row a line: any range of bytes can be read; positions are bytes
    has_columns = True  # plain text has none
    has_header = False  # the first row has the names of the columns
    counts_in_head = False  # the number of rows can be estimated from the first megabytes
    blank_reason = EMPTY_TEXT  # reason against a row whose text is blank

    @abstractmethod
    def columns(self, file: InputFile) -> FileColumns:
        """The columns of a file, which is opened when they are first used."""

    @abstractmethod
    def blocks(self, span: Span, columns: Columns) -> Iterator[Block]:
        """The rows of a span in order, in blocks."""

    @abstractmethod
    def count_block_rows(self, file: InputFile) -> Iterator[int]:
        """The numbers of rows in the blocks of a file."""

    def describe(self, file: InputFile) -> str:
        """The syntax that a file was found to have, for the summary; "" if the format has one."""
        return ""

    @abstractmethod
    def header(self, file: InputFile) -> list[str]:
        """The names of the columns that `values` can read; for JSON, the keys of the first row."""

    @abstractmethod
    def values(self, file: InputFile, names: Sequence[str]) -> Iterator[RawRow]:
        """The rows of a file with their values in columns of the header."""

    def choose_cut(self, file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> int:
        """Choose the size of a file's spans when a store first has the file.

        The store keeps it, so that an edit moves no cuts. Its unit is the format's: bytes of CSV,
        JSON and JSON lines, rows of tables. 0 if the format has no choice. `text` as for `spans`.
        """
        return 0

    def spans(self, file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> list[Span]:
        """Spans of about `unit_tokens`, in order.

        `text` names the column with the text, or the columns of its template.
        """
        return make_whole_span(file, is_packed=bool(file.compression))

    def count_rows(self, span: Span) -> int:
        """The number of rows in a span whose number is unknown."""
        return sum(1 for _ in self.find_row_starts(span))

    def find_row_starts(self, span: Span) -> Iterator[int]:
        """The start of each row of a span: the row's number, or the byte offset of its line."""
        number = 0
        for rows in self.count_block_rows(span.file):
            for _ in range(rows):
                if span.stop is None or number < span.stop:
                    yield number
                number += 1

    def count_in_head(self, file: InputFile, head: bytes, goes_on: bool) -> int:
        """The number of rows in the first bytes of a file or range.

        `goes_on` says that more bytes follow.
        """
        raise NotImplementedError


def cut_at_stop(span: Span, blocks: Iterator[Block]) -> Iterator[Block]:
    """The rows of a file before the span's end, if that is a row number."""
    for rows, sizes in blocks:
        left = span.stop - rows.positions[0] if span.stop is not None else len(rows.positions)
        if left <= 0:
            check_unchanged(span.file)
            return
        if left < len(rows.positions):
            rows = rows.slice(0, left)
            sizes = sizes[:left]
        yield rows, sizes
        if rows.positions[-1] + 1 == span.stop:
            check_unchanged(span.file)
            return
