"""Rows of CSV and TSV, read by a dialect (`csv_dialect.py` finds it).

Quoted values may hold delimiters, line ends and doubled quotes. A row with wrong quotes, or one
that is too long, is replaced by a BadRow.
"""

import contextlib
import csv
import io
import threading
from collections.abc import Iterator
from itertools import islice

from sentence_beam.transforms.corpus.files import InputFile, open_decompressed, open_unchanged
from sentence_beam.transforms.corpus.formats import csv_lines
from sentence_beam.transforms.corpus.formats.csv_lines import CsvLines
from sentence_beam.transforms.corpus.formats.dialect import Dialect
from sentence_beam.transforms.corpus.formats.encoding import choose_errors
from sentence_beam.transforms.corpus.formats.text_lines import gather_blocks, report_faults


class _FieldLimit:
    """The number of readers that need our field limit of csv, a global, and its value before."""

    lock = threading.Lock()
    readers = 0
    before = 0


@contextlib.contextmanager
def with_long_fields() -> Iterator[None]:
    """Let csv read fields as long as a row may be; restore its limit after the last reader."""
    with _FieldLimit.lock:
        if _FieldLimit.readers == 0:
            limit = csv_lines.MOST_CHARACTERS + csv_lines.PIECE
            _FieldLimit.before = csv.field_size_limit(limit)
        _FieldLimit.readers += 1
    try:
        yield
    finally:
        with _FieldLimit.lock:
            _FieldLimit.readers -= 1
            if _FieldLimit.readers == 0:
                csv.field_size_limit(_FieldLimit.before)


def read_csv(
    file: InputFile, dialect: Dialect, offset: int = 0, rows: int | None = None
) -> Iterator[list[list[str]]]:
    """Yield blocks of rows below the header.

    `offset` is the byte of the first row to read, 0 for all; `rows` is their number (None: all).
    Bytes that are not UTF-8 become lone surrogates. Empty lines are skipped, except in one-column
    files. Raises SentenceBeamError for a file that is cut short or corrupt.
    """
    with open_unchanged(file) as raw:
        encoding = dialect.encoding
        if offset:
            raw.seek(offset)
            encoding = "utf-8"  # the mark of utf-8-sig is at the start
        text = io.TextIOWrapper(
            open_decompressed(file, raw), encoding, choose_errors(encoding), newline=""
        )
        text.reconfigure(newline=dialect.line_end)
        lines = CsvLines(text, dialect)
        with with_long_fields():
            if not offset:
                lines.skip(dialect.skip)
            read = read_rows(lines, dialect)
            if dialect.has_header and not offset:
                next(read, None)
            filled = islice(_drop_empty(read, dialect), rows)
            yield from report_faults(file, gather_blocks(filled, lambda row: sum(map(len, row))))
        text.detach()


def read_rows(lines: CsvLines, dialect: Dialect, goes_on: bool = False) -> Iterator[list[str]]:
    """Yield the rows in lines, the header too; read them within `with_long_fields`.

    After a row with wrong quotes the line after its first one is read as the next row. `goes_on`:
    if the text ends inside quotes, this row has no end yet, and is left out.
    """
    row = lines.row
    while True:
        reader = dialect.reader(iter(lines))
        try:
            for values in reader:
                if len(row) == 1 and lines.is_plain:
                    row.clear()
                    yield values
                else:
                    yield lines.end(values)
            return
        except csv.Error as error:
            if goes_on and "unexpected end of data" in str(error):
                return
            yield lines.step_back()


def _drop_empty(rows: Iterator[list[str]], dialect: Dialect) -> Iterator[list[str]]:
    """Yield the rows without empty ones, which only files of one column have."""
    return filter(None, rows) if len(dialect.header) > 1 else (row or [""] for row in rows)
