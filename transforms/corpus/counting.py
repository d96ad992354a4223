"""The rows of spans, counted where no footer says how many there are."""

from collections.abc import Iterator
from dataclasses import replace

from transforms.corpus.csv_rows import read_csv
from transforms.corpus.files import BY_LINE, SEPARATED
from transforms.corpus.json_values import read_json
from transforms.corpus.lines import line_starts, read_lines
from transforms.corpus.spans import Span
from transforms.corpus.tables import read_table, table_schema


def count_rows(span: Span) -> int:
    """The number of rows in a span. Raises SentenceBeamError naming a file that cannot be read."""
    if span.rows is not None:
        return span.rows
    if span.file.format in BY_LINE:
        return sum(len(block) for block in read_lines(span.file, span.start, span.stop))
    return sum(1 for _ in _row_starts(span))


def limit_spans(spans: list[Span], limit: int) -> list[Span]:
    """The spans that hold the first `limit` rows; files are read up to there where their rows have to be counted."""
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
        return replace(span, rows=rows, stop=span.start + rows, tokens=span.tokens * rows // span.rows)
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
