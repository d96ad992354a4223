"""Parquet: files are cut at row groups, by their footers."""

import contextlib
import functools
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from transforms import storage
from transforms.base.errors import OptionError, SentenceBeamError, first_line
from transforms.corpus.batch_rows import batch_rows
from transforms.corpus.files import InputFile, check_unchanged
from transforms.corpus.formats.tables import ROWS, TableFormat
from transforms.corpus.row_blocks import Block, Columns
from transforms.corpus.spans import Span, estimated_tokens


class Parquet(TableFormat):
    """Parquet files, read by several workers."""

    name = "parquet"
    endings = (".parquet", ".pq")

    def read_schema(self, file: InputFile) -> pa.Schema:
        return footer_of(file).schema.to_arrow_schema()

    def spans(self, file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> list[Span]:
        """Spans of whole row groups. Raises OptionError for a nested column of text."""
        return list(_spans(file, text, unit_tokens))

    def blocks(self, span: Span, columns: Columns) -> Iterator[Block]:
        return _blocks(span, columns)

    def batches(self, file: InputFile, names: list[str]) -> Iterator[pa.RecordBatch]:
        threads = storage.threads_may_read(file.path)
        with _reading(file) as parquet:
            yield from parquet.iter_batches(ROWS, None, names, use_threads=threads)


def _blocks(span: Span, columns: Columns) -> Iterator[Block]:
    position = span.start
    left = span.rows or 0
    threads = storage.threads_may_read(span.file.path)
    with _reading(span.file) as parquet:
        for batch in parquet.iter_batches(
            ROWS, list(span.row_groups), columns.wanted, use_threads=threads
        ):
            batch = batch.slice(0, left)
            if batch.num_rows:
                yield batch_rows(span.file, columns, batch, position)
            position += batch.num_rows
            left -= batch.num_rows


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


def _spans(file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> Iterator[Span]:
    footer = footer_of(file)
    if isinstance(text, str):
        columns = [_leaf(footer, text)]
    else:
        columns = _leaves(footer, text)
    groups: list[int] = []
    first_row = 0
    rows = 0
    tokens = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        size = sum(group.column(column).total_uncompressed_size for column in columns)
        estimate = estimated_tokens(size, group.num_rows)
        if groups and tokens + estimate > unit_tokens:
            yield Span(file, groups[0], first_row, first_row + rows, tuple(groups), rows, tokens)
            groups = []
            first_row += rows
            rows = 0
            tokens = 0
        if group.num_rows:
            groups.append(number)
            rows += group.num_rows
            tokens += estimate
    if groups:
        yield Span(file, groups[0], first_row, first_row + rows, tuple(groups), rows, tokens)


@functools.lru_cache(16)
def footer_of(file: InputFile) -> pq.FileMetaData:
    """A Parquet file's footer; it is read once, for the columns and the spans."""
    with _open(file) as parquet:
        return parquet.metadata


def _leaf(footer: pq.FileMetaData, name: str) -> int:
    for i in range(footer.num_columns):
        if footer.schema.column(i).path == name:
            return i
    raise OptionError(f"column {name} is nested; --text-column needs a plain string column")


def _leaves(footer: pq.FileMetaData, names: tuple[str, ...]) -> list[int]:
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
        return pq.ParquetFile(source)
    except (pa.ArrowException, OSError, UnicodeError) as error:  # UnicodeError: names of columns
        reason = first_line(error).rstrip(".")
        raise SentenceBeamError(
            f"{file.path} is not a readable Parquet file ({reason}); replace it or leave it out of"
            " --input"
        ) from error
