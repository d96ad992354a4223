"""Formats of tables, whose files have a schema: their columns, and the rows of their batches."""

import contextlib
import functools
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import pyarrow as pa

from sentence_beam.transforms.base.arrow_arrays import as_plain_type
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite, first_line
from sentence_beam.transforms.corpus.arrow_types import NO_TYPE, make_code
from sentence_beam.transforms.corpus.batch_rows import read_batch_rows
from sentence_beam.transforms.corpus.casts import can_read
from sentence_beam.transforms.corpus.column_checks import (
    FileColumns,
    can_be_kept,
    is_id,
    is_text,
    name_options,
)
from sentence_beam.transforms.corpus.column_types import ColumnType
from sentence_beam.transforms.corpus.column_values import has_samples, take_samples
from sentence_beam.transforms.corpus.files import InputFile, check_unchanged, open_unchanged
from sentence_beam.transforms.corpus.formats.format import Format, RawRow, cut_at_stop
from sentence_beam.transforms.corpus.nested import find_column, find_roots, find_type, list_names
from sentence_beam.transforms.corpus.row_blocks import Block, Columns
from sentence_beam.transforms.corpus.spans import Span

ROWS = 8192  # in a batch


class TableFormat(Format):
    """A format whose files have a schema and are read in Arrow batches."""

    is_packed = True

    @abstractmethod
    def read_schema(self, file: InputFile) -> pa.Schema:
        """The columns of a file and their types."""

    @abstractmethod
    def batches(self, file: InputFile, names: list[str]) -> Iterator[pa.RecordBatch]:
        """Batches of at most ROWS rows of the named columns of the schema, in the file's order."""

    def read_batches(self, span: Span, names: list[str]) -> Iterator[pa.RecordBatch]:
        """As `batches`, of the rows of a span, and perhaps of some after it."""
        return self.batches(span.file, names)

    def columns(self, file: InputFile) -> FileColumns:
        return TableColumns(file, self)

    def blocks(self, span: Span, columns: Columns) -> Iterator[Block]:
        return cut_at_stop(span, self._read_blocks(span, columns))

    def _read_blocks(self, span: Span, columns: Columns) -> Iterator[Block]:
        schema = load_schema(self, span.file)
        existing = [name for name in columns.wanted if find_type(schema, name) is not None]
        position = span.start
        for batch in self.read_batches(span, find_roots(schema, existing)):
            if batch.num_rows:
                yield read_batch_rows(span.file, columns, batch, position)
                position += batch.num_rows

    def count_block_rows(self, file: InputFile) -> Iterator[int]:
        return (batch.num_rows for batch in self.batches(file, load_schema(self, file).names[:1]))

    def has_nulls(self, file: InputFile, name: str) -> bool:
        """Whether a column has nulls, as far as the file says it without its values."""
        return False

    def has_rows(self, file: InputFile) -> bool:
        """Whether a file has a row."""
        return bool(load_schema(self, file).names) and any(self.count_block_rows(file))

    def header(self, file: InputFile) -> list[str]:
        names: list[str] = load_schema(self, file).names
        return names

    def values(self, file: InputFile, names: Sequence[str]) -> Iterator[RawRow]:
        number = 0
        for batch in self.batches(file, list(names)):
            for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
                number += 1
                yield RawRow(number, row)


@functools.lru_cache(16)
def load_schema(table: TableFormat, file: InputFile) -> pa.Schema:
    """The columns of a file, read once."""
    return table.read_schema(file)


def check_names(schema: pa.Schema) -> pa.Schema:
    """Return a schema once its names are known to be UTF-8. Raises UnicodeDecodeError."""
    list_names(schema)
    return schema


@contextlib.contextmanager
def opening(file: InputFile, title: str) -> Iterator[BinaryIO]:
    """The file's bytes; errors in the block become one line that names the file.

    `title` is the format's name in this line.
    """
    try:
        with open_unchanged(file) as raw:
            yield raw
    except SentenceBeamError:
        raise
    except Exception as error:  # the libraries raise ArrowException, OSError, ValueError, EOFError
        check_unchanged(file)  # a file that is being overwritten looks corrupt
        raise SentenceBeamError(
            f"{file.path} is not a readable {title} file ({first_line(error).rstrip('.')}); "
            f"replace it or leave it out of {cite('input')}"
        ) from error


def cut_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of batches in batches of at most ROWS."""
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS):
            yield batch.slice(start, ROWS)


@dataclass(frozen=True)
class TableColumns(FileColumns):
    """The columns of a table, by its schema."""

    table: TableFormat

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return load_schema(self.table, self.file)

    def names(self) -> Sequence[str]:
        return list_names(self.schema)

    def check(self, columns: Columns) -> None:
        """Raise OptionError with the file, the column, its type and the option to change.

        A file without rows may have any columns: writers of empty tables know no types.
        """
        try:
            self._check(columns)
        except OptionError:
            if self.table.has_rows(self.file):
                raise

    def _check(self, columns: Columns) -> None:
        file = self.file
        schema = self.schema
        text = columns.text_column
        id_column = columns.id
        for option, name in name_options(columns):
            times = schema.names.count(name)
            if times > 1:
                raise OptionError(f"{file.path} has {times} columns {name} ({option}); rename one")
        for option, name in name_options(replace(columns, keep=())):
            if find_type(schema, name) is None:
                raise self.make_missing_error(name, option)
        if text is not None and not is_text(find_type(schema, text)):
            raise OptionError(
                f"{file.path}: column {text} is {find_type(schema, text)}, not string; name another"
                f" {cite('text_column')} or cast it"
            )
        if id_column is not None and not is_id(find_type(schema, id_column)):
            raise OptionError(
                f"{file.path}: column {id_column} is {find_type(schema, id_column)}; ids must be"
                f" strings, whole numbers, UUIDs or bytes ({cite('id_column')})"
            )
        for name in self.find_existing(columns.keep):
            self._check_kept(name, columns.kinds)

    def read_first_values(self, rows: int) -> dict[str, list[Any]]:
        kinds = {name: find_type(self.schema, name) for name in self.names()}
        names = [name for name, kind in kinds.items() if kind is not None and has_samples(kind)]
        if not names:
            return {}
        batches = self.table.batches(self.file, find_roots(self.schema, names))
        batch = next((one for one in batches if one.num_rows), None)
        if batch is None:
            return {}
        head = batch.slice(0, rows)
        return {name: take_samples(find_column(head, name)) for name in names}

    def has_nulls(self, name: str) -> bool:
        return self.table.has_nulls(self.file, name)

    def find_existing(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if find_type(self.schema, name) is not None)

    def _check_kept(self, name: str, types: Mapping[str, ColumnType]) -> None:
        own_type = find_type(self.schema, name)
        if name in types and not can_read(own_type, types[name]):
            raise OptionError(
                f"{self.file.path}: column {name} is {own_type}, which is not read as"
                f" {types[name].word} ({cite('keep_columns')}); name another type, or cast it"
            )
        if name not in types and not can_be_kept(own_type):
            raise OptionError(
                f"{self.file.path}: column {name} is {own_type}, which a Parquet file cannot hold"
                f" ({cite('keep_columns')}); cast it or leave it out"
            )

    def find_types(self, keep: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        types = []
        for name in self.find_existing(keep):
            kind = as_plain_type(find_type(self.schema, name))
            code = NO_TYPE if pa.types.is_null(kind) else make_code(kind)
            types.append((name, code))
        return tuple(types)
