"""The rows of spans, counted where no footer says how many there are."""

import contextlib
import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import BinaryIO

from transforms.corpus.csv_rows import dialect_of, long_fields, read_csv
from transforms.corpus.files import BY_LINE, SEPARATED, InputFile, decompressed, open_unchanged
from transforms.corpus.json_values import read_json
from transforms.corpus.lines import line_starts, read_lines, whole
from transforms.corpus.spans import Span
from transforms.corpus.tables import read_table, table_schema

HEAD = 1 << 22  # uncompressed bytes by which the rows of a span are estimated


def count_rows(span: Span) -> int:
    """The number of rows in a span. Raises SentenceBeamError naming a file that cannot be read."""
    if span.rows is not None:
        return span.rows
    if span.file.format in BY_LINE:
        return sum(len(block) for block in read_lines(span.file, span.start, span.stop))
    return sum(1 for _ in _row_starts(span))


def count_up_to(span: Span, most: int) -> int:
    """The number of rows in a span, or `most` if it has more, which are not read. Raises as
    `count_rows` does.
    """
    if span.rows is not None:
        return min(span.rows, most)
    return sum(1 for _ in islice(_row_starts(span), most))


def rows_about(span: Span) -> float | None:
    """About how many rows a span has, by its first megabytes; None for formats where that does not
    tell.

    Raises SentenceBeamError naming a file that cannot be read.
    """
    file, stop = span.file, span.stop
    if span.rows is not None:
        return span.rows
    if file.format not in BY_LINE + SEPARATED:
        return None
    if file.format in SEPARATED and stop is not None:
        return stop - span.start  # these count rows, not bytes
    size = (file.size if stop is None else stop) - span.start
    most = HEAD if stop is None else min(HEAD, size)
    with open_unchanged(file) as raw:
        raw.seek(0 if file.compression else span.start)
        head = b"".join(whole(file, _blocks_of_head(decompressed(file, raw), most)))
        read = raw.tell() - span.start
    if stop is not None:
        head = head[:size]
        read = len(head)
    rows = _lines_in(head, read < size) if file.format in BY_LINE else _rows_in(file, head)
    return rows * max(1.0, size / max(1, read))


def _blocks_of_head(reader: BinaryIO, most: int) -> Iterator[bytes]:
    """Uncompressed bytes until they are as many, or a few more."""
    read = 0
    while read < most and (block := reader.read(most - read)):
        yield block
        read += len(block)


def _lines_in(head: bytes, goes_on: bool) -> int:
    return head.count(b"\n") + (not goes_on and head != b"" and not head.endswith(b"\n"))


def _rows_in(file: InputFile, head: bytes) -> int:
    """The rows of a table's head below the names of its columns."""
    dialect = dialect_of(file)
    rows = -1
    with long_fields(), contextlib.suppress(csv.Error):  # the last row is cut
        for row in dialect.rows(io.StringIO(head.decode(dialect.encoding, "replace"), newline="")):
            rows += bool(row) or len(dialect.header) <= 1
    return max(0, rows)


def limit_spans(spans: list[Span], limit: int) -> list[Span]:
    """The spans that hold the first `limit` rows; files are read up to there where their rows have
    to be counted.
    """
    kept = []
    for span in spans:
        if limit <= 0:
            break
        known = span.rows is not None
        span = _cut(span, limit)
        limit -= span.rows or 0
        # How many rows were counted is known by now, but is not the plan's to promise.
        kept.append(span if known else replace(span, rows=None))
    return kept


def _cut(span: Span, limit: int) -> Span:
    if span.rows is not None:
        rows = min(span.rows, limit)
        return replace(
            span, rows=rows, stop=span.start + rows, tokens=span.tokens * rows // span.rows
        )
    rows, stop = 0, span.stop
    for start in _row_starts(span):
        if rows == limit:
            stop = start
            break
        rows += 1
    return replace(span, rows=rows, stop=stop)


def _row_starts(span: Span) -> Iterator[int]:
    """Where each row of a span begins: the byte of a line, else the row's number."""
    if span.file.format in BY_LINE:
        yield from line_starts(span.file, span.start, span.stop)
        return
    number = 0
    for rows in _row_counts(span):
        for _ in range(rows):
            if span.stop is None or number < span.stop:
                yield number
            number += 1


def _row_counts(span: Span) -> Iterator[int]:
    """The numbers of rows in the blocks of a table."""
    file = span.file
    if file.format in SEPARATED:
        yield from map(len, read_csv(file))
    elif file.format == "json":
        yield from map(len, read_json(file))
    else:
        yield from (batch.num_rows for batch in read_table(file, table_schema(file).names[:1]))
