"""Parquet: files are cut at row groups, by their footers, and large row groups into ranges of rows.

Range k of row group g has the number RANGE_NUMBERS * k + g, so the first one has the group's. To
read a range, the reader decodes the group's rows before it too.
"""

import contextlib
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite, first_line
from sentence_beam.transforms.corpus.batch_rows import read_batch_rows
from sentence_beam.transforms.corpus.files import InputFile, check_unchanged
from sentence_beam.transforms.corpus.formats.table_formats import ROWS, TableFormat
from sentence_beam.transforms.corpus.row_blocks import Block, Columns
from sentence_beam.transforms.corpus.spans import (
    MOST,
    RANGE_UNITS,
    Span,
    choose_span_rows,
    estimate_tokens,
)

RANGE_NUMBERS = 10_000_000  # row groups of a file whose ranges have numbers of their own


class Parquet(TableFormat):
    """Parquet files, read by several workers."""

    name = "parquet"
    endings = (".parquet", ".pq")

    def read_schema(self, file: InputFile) -> pa.Schema:
        return _load_footer(file).schema

    def has_rows(self, file: InputFile) -> bool:
        return read_footer(file).num_rows > 0

    def has_nulls(self, file: InputFile, name: str) -> bool:
        footer = read_footer(file)
        places = _find_leaves(footer, (name,))
        groups = (footer.row_group(number) for number in range(footer.num_row_groups))
        stated = (group.column(place).statistics for group in groups for place in places)
        return any(one is not None and one.has_null_count and one.null_count for one in stated)

    def choose_cut(self, file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> int:
        """Return the rows of RANGE_UNITS units, by the sizes in the footer.

        A larger row group is read by several workers.
        """
        groups = list(_read_row_groups(file, text))
        tokens = sum(group.tokens for group in groups)
        rows = sum(group.rows for group in groups)
        if not rows:
            return choose_span_rows(0, 0, RANGE_UNITS * unit_tokens)  # the file may get rows later
        return max(1, rows * RANGE_UNITS * unit_tokens // tokens)

    def spans(self, file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> list[Span]:
        """Spans of whole row groups, or of rows of a group that is larger than the file's cut.

        Raises OptionError for a nested column of text.
        """
        return list(_make_spans(file, _read_row_groups(file, text), unit_tokens))

    def blocks(self, span: Span, columns: Columns) -> Iterator[Block]:
        position = span.start
        left = span.rows or 0
        threads = storage.threads_may_read(span.file.path)
        with _reading(span.file) as parquet:
            earlier = range(span.row_groups[0])
            skipped = span.start - sum(parquet.metadata.row_group(n).num_rows for n in earlier)
            for batch in parquet.iter_batches(
                ROWS, list(span.row_groups), columns.wanted, use_threads=threads
            ):
                some = min(skipped, batch.num_rows)
                skipped -= some
                batch = batch.slice(some, left)
                if batch.num_rows:
                    yield read_batch_rows(span.file, columns, batch, position)
                position += batch.num_rows
                left -= batch.num_rows
                if not left:
                    break

    def batches(self, file: InputFile, names: list[str]) -> Iterator[pa.RecordBatch]:
        threads = storage.threads_may_read(file.path)
        with _reading(file) as parquet:
            yield from parquet.iter_batches(ROWS, None, names, use_threads=threads)


@contextlib.contextmanager
def _reading(file: InputFile) -> Iterator[pq.ParquetFile]:
    """The opened file; an error of Arrow inside the block becomes one line that names the file."""
    check_unchanged(file)
    with _open(file) as parquet:
        try:
            yield parquet
        except (pa.ArrowException, OSError) as error:
            check_unchanged(file)  # a file that is being overwritten looks corrupt
            raise SentenceBeamError(
                f"{file.path} cannot be read ({first_line(error)}); replace the file"
            ) from error
    check_unchanged(file)


@dataclass(frozen=True)
class _RowGroup:
    """A row group, and the estimated tokens of its text."""

    number: int
    first_row: int
    rows: int
    tokens: int


def _read_row_groups(file: InputFile, text: str | tuple[str, ...]) -> Iterator[_RowGroup]:
    """Yield the row groups that have rows, in order."""
    footer = read_footer(file)
    if not footer.num_rows:  # whose columns may be of any type, or missing
        return
    columns = [_find_leaf(footer, text)] if isinstance(text, str) else _find_leaves(footer, text)
    first_row = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        size = sum(group.column(column).total_uncompressed_size for column in columns)
        if group.num_rows:
            tokens = estimate_tokens(size, group.num_rows)
            yield _RowGroup(number, first_row, group.num_rows, tokens)
        first_row += group.num_rows


def _make_spans(file: InputFile, groups: Iterator[_RowGroup], unit_tokens: int) -> Iterator[Span]:
    together: list[_RowGroup] = []
    tokens = 0
    for group in groups:
        is_long = bool(file.cut) and group.rows > MOST * (file.cut or 0)
        if together and (is_long or tokens + group.tokens > unit_tokens):
            yield _make_span(file, together)
            together = []
            tokens = 0
        if is_long:
            yield from _cut_ranges(file, group, file.cut or 0)
        else:
            together.append(group)
            tokens += group.tokens
    if together:
        yield _make_span(file, together)


def _make_span(file: InputFile, groups: list[_RowGroup]) -> Span:
    """Return the span of whole row groups."""
    first = groups[0]
    rows = sum(group.rows for group in groups)
    return Span(
        file,
        first.number,
        first.first_row,
        first.first_row + rows,
        tuple(group.number for group in groups),
        rows,
        sum(group.tokens for group in groups),
    )


def _cut_ranges(file: InputFile, group: _RowGroup, step: int) -> Iterator[Span]:
    """Yield the ranges of a row group's rows; the last one may be a quarter longer than `step`."""
    count = max(1, math.ceil(group.rows / step - (MOST - 1)))
    for place in range(count):
        start = place * step
        rows = step if place < count - 1 else group.rows - start
        first = group.first_row + start
        number = place * RANGE_NUMBERS + group.number
        tokens = group.tokens * rows // group.rows
        yield Span(file, number, first, first + rows, (group.number,), rows, tokens)


@dataclass(frozen=True)
class _Footer:
    """A Parquet file's footer, and the columns as the reader returns them."""

    metadata: pq.FileMetaData
    schema: pa.Schema


def read_footer(file: InputFile) -> pq.FileMetaData:
    """A Parquet file's footer; it is read once, for the columns and the spans."""
    return _load_footer(file).metadata


@functools.lru_cache(16)
def _load_footer(file: InputFile) -> _Footer:
    with _open(file) as parquet:
        return _Footer(parquet.metadata, parquet.schema_arrow)


def _find_leaf(footer: pq.FileMetaData, name: str) -> int:
    for i in range(footer.num_columns):
        if footer.schema.column(i).path == name:
            return i
    raise OptionError(f"column {name} is nested; {cite('text_column')} needs a plain string column")


def _find_leaves(footer: pq.FileMetaData, names: tuple[str, ...]) -> list[int]:
    """The columns with these names, and those inside them; none for a missing name."""
    paths = [footer.schema.column(i).path for i in range(footer.num_columns)]
    return [
        i
        for i, path in enumerate(paths)
        if any(f"{path}.".startswith(f"{name}.") for name in names)
    ]


def _open(file: InputFile) -> pq.ParquetFile:
    """The file with its footer read. Raises SentenceBeamError if it is not complete Parquet."""
    try:
        source: str | BinaryIO = file.path
        if not storage.is_local(file.path):
            source = storage.storage_of(file.path).open(file.path, file.entry)
        # Spark's timestamps; read in nanoseconds, which end in 2262, the year 9999 would wrap
        return pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
    except (pa.ArrowException, OSError, UnicodeError) as error:  # UnicodeError: names of columns
        reason = first_line(error).rstrip(".")
        raise SentenceBeamError(
            f"{file.path} is not a readable Parquet file ({reason}); replace it or leave it out of"
            f" {cite('input')}"
        ) from error


FORMATS = (Parquet(),)
