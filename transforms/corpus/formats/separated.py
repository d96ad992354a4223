"""CSV and TSV: a header, then rows."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sentence_beam.transforms.base.arrow_arrays import is_string
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.corpus.column_checks import (
    FileColumns,
    list_columns,
    make_column_error,
    name_options,
)
from sentence_beam.transforms.corpus.column_types import STR
from sentence_beam.transforms.corpus.column_values import EXCERPT, KEPT_NOT_UTF8, NOT_UTF8
from sentence_beam.transforms.corpus.files import InputFile, is_utf8
from sentence_beam.transforms.corpus.formats.csv_cuts import cut_at_lines
from sentence_beam.transforms.corpus.formats.csv_dialect import find_dialect, read_dialect
from sentence_beam.transforms.corpus.formats.csv_lines import BadRow, CsvLines
from sentence_beam.transforms.corpus.formats.csv_rows import read_csv, read_rows, with_long_fields
from sentence_beam.transforms.corpus.formats.dialect import Dialect, make_shape
from sentence_beam.transforms.corpus.formats.encoding import describe_not_utf8
from sentence_beam.transforms.corpus.formats.format import Format, RawRow, cut_at_stop
from sentence_beam.transforms.corpus.parsed_rows import (
    ParsedRow,
    fill_prefix,
    gather_rows,
    make_id,
    measure_texts,
    read_kept,
    replace_undecodable,
)
from sentence_beam.transforms.corpus.row_blocks import OTHER_WIDTH, Block, Columns
from sentence_beam.transforms.corpus.spans import MOST, Span, choose_span_bytes

WORDS = 3  # in the name of a column; more are a text
BY_FIRST_ROW = "its columns, by its first row"


class Csv(Format):
    """Values with a delimiter; the file decides which, and whether there are quotes.

    A file without quotes is cut at line ends unless it is compressed.
    """

    name = "csv"
    endings: tuple[str, ...] = (".csv",)
    has_header = True
    counts_in_head = True

    def columns(self, file: InputFile) -> "HeaderColumns":
        return HeaderColumns(file)

    def choose_cut(self, file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> int:
        """Return the bytes of rows that hold a unit's text, by the first of them."""
        if file.compression:
            return 0
        rows = next(read_csv(file, read_dialect(file)), [])
        head = sum(len(_encode(value)) + 1 for row in rows for value in row)  # with delimiters
        return choose_span_bytes(head, _count_text_bytes(file, rows, text), len(rows), unit_tokens)

    def spans(self, file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> list[Span]:
        if not file.cut or file.size <= MOST * file.cut:
            return super().spans(file, text, unit_tokens)
        spans = cut_at_lines(file, read_dialect(file), file.cut, unit_tokens)
        return spans or super().spans(file, text, unit_tokens)

    def blocks(self, span: Span, columns: Columns) -> Iterator[Block]:
        return cut_at_stop(span, _read_blocks(span, columns))

    def count_block_rows(self, file: InputFile) -> Iterator[int]:
        return map(len, read_csv(file, read_dialect(file)))

    def count_in_head(self, file: InputFile, head: bytes, goes_on: bool) -> int:
        """The number of rows below the header."""
        dialect = read_dialect(file)
        text = io.StringIO(head.decode(dialect.encoding, "replace"), newline=dialect.line_end)
        lines = CsvLines(text, dialect)
        lines.skip(dialect.skip)
        with with_long_fields():
            rows = sum(bool(row) or len(dialect.header) <= 1 for row in read_rows(lines, dialect))
        return max(0, rows - dialect.has_header)

    def describe(self, file: InputFile) -> str:
        return find_dialect(file).title

    def header(self, file: InputFile) -> list[str]:
        return read_dialect(file).names

    def values(self, file: InputFile, names: Sequence[str]) -> Iterator[RawRow]:
        dialect = read_dialect(file)
        places = [dialect.header.index(name) for name in names]
        rows = chain.from_iterable(read_csv(file, dialect))
        for number, row in enumerate(rows, 1):
            if isinstance(row, BadRow):
                yield RawRow(number, reason=row.reason)
            elif len(row) != len(dialect.header):
                yield RawRow(number, reason=OTHER_WIDTH)
            else:
                yield RawRow(number, [_replace_null(dialect, row[place]) for place in places])


class Tsv(Csv):
    """Values with tabs between them; quotes are characters unless its rows fit better with them."""

    name = "tsv"
    endings = (".tsv", ".tab")


class HeaderColumns(FileColumns):
    """The columns named in the first row."""

    def names(self) -> Sequence[str]:
        return read_dialect(self.file).names

    def check(self, columns: Columns) -> None:
        """Raise OptionError if the text or the ids are missing, or a named column is there twice.

        A file without rows may have any header.
        """
        dialect = read_dialect(self.file)
        for option, name in name_options(columns):
            times = dialect.header.count(name) or int(dialect.find_place(name) is not None)
            is_needed = name not in columns.keep or name in (columns.text_column, columns.id)
            if (times > 1 or (is_needed and not times)) and any(read_csv(self.file, dialect)):
                raise OptionError(self._describe_fault(name, option, times))

    def _describe_fault(self, name: str, option: str, times: int) -> str:
        """The message about a column that is missing or in the header several times."""
        header = read_dialect(self.file).header
        fault = f"{times} columns {name}" if times else f"no column {name}"
        columns = list_columns(BY_FIRST_ROW, name, self.names())
        mend = self._mend(header)
        return f"{self.file.path} has {fault} ({option}){columns}{mend}{describe_not_utf8(header)}"

    def _mend(self, header: tuple[str, ...]) -> str:
        """The mend of a missing column, as the end of a message."""
        if len(header) == 1:
            return f"; say {cite('delimiter')} if it has more than this one"
        if self.file.syntax.csv.columns:
            return f"; {cite('csv')} columns names them"
        if any(make_shape(name) == "0" or len(name.split()) > WORDS for name in header):
            return f"; say {cite('csv')} columns=A/B if this is no header, or skip=N if it is below"
        return ""

    def find_types(self, keep: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        return tuple((name, "") for name in self.find_existing(keep) or ())

    def read_first_values(self, rows: int) -> dict[str, list[Any]]:
        dialect = read_dialect(self.file)
        first = [
            row
            for row in next(read_csv(self.file, dialect), [])[:rows]
            if not isinstance(row, BadRow) and len(row) == len(dialect.header)
        ]
        places = {name: dialect.header.index(name) for name in dialect.names}
        if not first:
            return {}
        return {
            name: [_replace_null(dialect, row[place]) or None for row in first]
            for name, place in places.items()
        }

    def find_existing(self, names: tuple[str, ...]) -> tuple[str, ...] | None:
        dialect = read_dialect(self.file)
        if not dialect.header:
            return None
        return tuple(name for name in names if dialect.find_place(name) is not None)

    @property
    def trimmed_names(self) -> tuple[str, ...]:
        return read_dialect(self.file).trimmed

    def make_missing_error(self, name: str, option: str) -> OptionError:
        error = make_column_error(self.file, name, option, BY_FIRST_ROW, self.names())
        return OptionError(f"{error.message}{describe_not_utf8(self.names())}")


def _count_text_bytes(file: InputFile, rows: list[list[str]], text: str | tuple[str, ...]) -> int:
    """The bytes of the rows' values in the column of the text, or in those of its template."""
    names = (text,) if isinstance(text, str) else text
    all_places = (read_dialect(file).find_place(name) for name in names)
    places = [place for place in all_places if place is not None]
    return sum(len(_encode(row[p])) for row in rows for p in places if p < len(row))


def _encode(value: str) -> bytes:
    return value.encode("utf8", "surrogateescape")


def _read_blocks(span: Span, columns: Columns) -> Iterator[Block]:
    file = span.file
    dialect = read_dialect(file)
    position = span.start
    places: dict[str, int] = {}
    for name in columns.wanted:
        place = dialect.find_place(name)
        if place is not None:
            places[name] = place
    of_path = {name: value or "" for name, value in columns.path if name not in places}
    reader = _ValueReader(dialect, columns, places, of_path)
    for rows in read_csv(file, dialect, span.offset, span.rows):
        parsed = []
        for number, row in enumerate(rows, position):
            default = make_id(file, columns, number)
            if isinstance(row, BadRow):
                excerpt = replace_undecodable(row[0][:EXCERPT])
                parsed.append(ParsedRow(excerpt, default, row.reason))
            elif len(row) == len(dialect.header):
                parsed.append(reader.read(row, default))
            else:
                excerpt = dialect.delimiter.join(row)[:EXCERPT]
                parsed.append(ParsedRow(replace_undecodable(excerpt), default, OTHER_WIDTH))
        positions = range(position, position + len(parsed))
        yield gather_rows(columns, positions, parsed), measure_texts(parsed)
        position += len(rows)


@dataclass(frozen=True)
class _ValueReader:
    """Reads the columns of rows, which are at these places, by name.

    `of_path` are values of other columns, which the file's path has.
    """

    dialect: Dialect
    columns: Columns
    places: dict[str, int]
    of_path: dict[str, str]

    def read(self, row: list[str], default: str | None) -> ParsedRow:
        """Read a row; `default` is its id unless a column has it."""
        columns = self.columns
        own = {name: _replace_null(self.dialect, row[p]) for name, p in self.places.items()}
        values = {**own, **self.of_path}
        texts = {name: _drop_blank(columns, name, values.get(name, "")) for name in columns.keep}
        if columns.of_text is None:
            text = values[columns.text] or None
        else:
            text = columns.of_text.fill(values.get)
        prefix = fill_prefix(columns, values.get)
        row_id = values[columns.id] or None if columns.id else default
        if not (is_utf8(text) and is_utf8(row_id) and all(map(is_utf8, prefix))):
            return ParsedRow(replace_undecodable((text or "")[:EXCERPT]), default, NOT_UTF8)
        if not all(map(is_utf8, texts.values())):
            return ParsedRow(text, row_id, KEPT_NOT_UTF8)
        kept, unread = read_kept(columns, texts)
        return ParsedRow(text, row_id, unread, kept, prefix)


def _replace_null(dialect: Dialect, value: str) -> str:
    """Return a value; "" if it is null."""
    return "" if value in dialect.nulls else value


def _drop_blank(columns: Columns, name: str, value: str) -> str | None:
    """A kept value of CSV; null if it is empty, or if it is blank and not of type text."""
    if is_string(columns.kinds.get(name, STR).arrow):
        return value or None
    return value.strip() or None


FORMATS = (Csv(), Tsv())
