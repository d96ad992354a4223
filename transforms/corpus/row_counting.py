"""Count the rows of spans whose files have no footer with the number."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import BinaryIO

from sentence_beam.transforms.corpus.files import open_decompressed, open_unchanged
from sentence_beam.transforms.corpus.formats.registry import choose_reader
from sentence_beam.transforms.corpus.formats.text_lines import report_faults
from sentence_beam.transforms.corpus.spans import Span

HEAD = 1 << 22  # uncompressed bytes from which the rows of a span are estimated


def count_rows(span: Span) -> int:
    """The number of rows in a span. Raises SentenceBeamError naming an unreadable file."""
    return span.rows if span.rows is not None else choose_reader(span.file).count_rows(span)


def count_up_to(span: Span, most: int) -> int:
    """The number of rows in a span, or `most` if it has more, which are not read.

    Raises as `count_rows`.
    """
    if span.rows is not None:
        return min(span.rows, most)
    return sum(1 for _ in islice(choose_reader(span.file).find_row_starts(span), most))


def estimate_rows(span: Span) -> float | None:
    """Estimate the rows of a span from its first megabytes; None for formats that need all of it.

    Raises SentenceBeamError naming a file that cannot be read.
    """
    file = span.file
    stop = span.stop
    reader = choose_reader(file)
    if span.rows is not None:
        return span.rows
    if not reader.counts_in_head:
        return None
    if not reader.is_by_line and stop is not None:
        return stop - span.start  # rows, not bytes
    size = file.size - span.start
    most = HEAD
    if stop is not None:
        size = stop - span.start
        most = min(HEAD, size)
    with open_unchanged(file) as raw:
        if not file.compression:
            raw.seek(span.start)
        head = b"".join(report_faults(file, _read_head(open_decompressed(file, raw), most)))
        read = raw.tell() - span.start
    if stop is not None:
        head = head[:size]
        read = len(head)
    rows = reader.count_in_head(file, head, goes_on=read < size)
    return rows * max(1.0, size / max(1, read))


def _read_head(reader: BinaryIO, most: int) -> Iterator[bytes]:
    """Yield uncompressed bytes, up to `most` or a few more."""
    read = 0
    while read < most and (block := reader.read(most - read)):
        yield block
        read += len(block)


def limit_spans(spans: list[Span], limit: int) -> list[Span]:
    """The spans with the first `limit` rows.

    Files whose rows have to be counted are read to this limit.
    """
    limited = []
    for span in spans:
        if limit <= 0:
            break
        first = _cut(span, limit)
        limit -= first.rows or 0
        # The plan does not promise a number that the file does not state.
        if span.rows is None:
            first = replace(first, rows=None)
        limited.append(first)
    return limited


def _cut(span: Span, limit: int) -> Span:
    if span.rows is not None:
        rows = min(span.rows, limit)
        return replace(
            span, rows=rows, stop=span.start + rows, tokens=span.tokens * rows // span.rows
        )
    rows = 0
    stop = span.stop
    for start in choose_reader(span.file).find_row_starts(span):
        if rows == limit:
            stop = start
            break
        rows += 1
    return replace(span, rows=rows, stop=stop)
