"""The rows of spans, counted where no footer says how many there are."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import BinaryIO

from transforms.corpus.files import decompressed, open_unchanged
from transforms.corpus.formats.registry import reader_of
from transforms.corpus.lines import whole
from transforms.corpus.spans import Span

HEAD = 1 << 22  # uncompressed bytes by which the rows of a span are estimated


def count_rows(span: Span) -> int:
    """The number of rows in a span. Raises SentenceBeamError naming a file that cannot be read."""
    return span.rows if span.rows is not None else reader_of(span.file).count_rows(span)


def count_up_to(span: Span, most: int) -> int:
    """The number of rows in a span, or `most` if it has more, which are not read. Raises as
    `count_rows` does.
    """
    if span.rows is not None:
        return min(span.rows, most)
    return sum(1 for _ in islice(reader_of(span.file).row_starts(span), most))


def rows_about(span: Span) -> float | None:
    """About how many rows a span has, by its first megabytes; None for formats where that does not
    tell.

    Raises SentenceBeamError naming a file that cannot be read.
    """
    file, stop = span.file, span.stop
    reader = reader_of(file)
    if span.rows is not None:
        return span.rows
    if not reader.counts_in_head:
        return None
    if not reader.is_by_line and stop is not None:
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
    rows = reader.count_in_head(file, head, goes_on=read < size)
    return rows * max(1.0, size / max(1, read))


def _blocks_of_head(reader: BinaryIO, most: int) -> Iterator[bytes]:
    """Uncompressed bytes until they are as many, or a few more."""
    read = 0
    while read < most and (block := reader.read(most - read)):
        yield block
        read += len(block)


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
    for start in reader_of(span.file).row_starts(span):
        if rows == limit:
            stop = start
            break
        rows += 1
    return replace(span, rows=rows, stop=stop)
