"""Rows of a table in any format, as values of some columns: data of trainings and tasks."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transforms.base.errors import OptionError
from transforms.corpus.column_values import NOT_UTF8
from transforms.corpus.csv_rows import CutRow, Dialect, dialect_of, read_csv, unquoted
from transforms.corpus.files import InputFile, open_unchanged
from transforms.corpus.json_values import read_json
from transforms.corpus.lines import TOO_LONG, CutLine, read_lines
from transforms.corpus.row_blocks import NOT_JSON, OTHER_WIDTH
from transforms.corpus.spans import parquet_file
from transforms.corpus.tables import read_table, table_schema


@dataclass(frozen=True)
class Raw:
    """A row as it is in its file: its number from 1, without a header, and its values; or what is
    wrong with it.
    """

    number: int
    values: Sequence[Any] = ()
    reason: str | None = None


def header_of(file: InputFile) -> list[str]:
    """The names of a file's columns; of JSON those of its first row. Raises OptionError for a file
    without columns.
    """
    if file.format in ("csv", "tsv"):
        names = list(_dialect(file).header)
    elif file.format in ("jsonl", "json"):
        names = list(next((value for value in _objects(file) if isinstance(value, dict)), {}))
    elif file.format == "parquet":
        with parquet_file(file) as parquet:
            names = parquet.schema_arrow.names
    elif file.format == "text":
        raise OptionError(
            f"{file.path} is plain text and has no columns; give TSV, CSV, JSON lines or Parquet"
        )
    else:
        names = table_schema(file).names
    if not names:
        raise OptionError(f"{file.path} is empty; leave it out of --input")
    return names


def rows_of(file: InputFile, columns: Sequence[str]) -> Iterator[Raw]:
    """The rows of a file, in its order, with the values of these columns.

    TSV has no quoting, as in the files that `evaluate` reads. Raises SentenceBeamError for a file
    that cannot be read.
    """
    if file.format in ("csv", "tsv"):
        return _separated(file, columns)
    if file.format in ("jsonl", "json"):
        return _of_objects(file, columns)
    return _of_tables(file, columns)


def _dialect(file: InputFile) -> Dialect:
    """How CSV and TSV are read."""
    return unquoted(file) if file.format == "tsv" else dialect_of(file)


def _separated(file: InputFile, columns: Sequence[str]) -> Iterator[Raw]:
    dialect = _dialect(file)
    places = [dialect.header.index(name) for name in columns]
    number = 0
    for block in read_csv(file, dialect):
        for row in block:
            number += 1
            if isinstance(row, CutRow):
                yield Raw(number, reason=TOO_LONG)
            elif len(row) != len(dialect.header):
                yield Raw(number, reason=OTHER_WIDTH)
            else:
                yield Raw(number, [row[place] for place in places])


def _of_objects(file: InputFile, columns: Sequence[str]) -> Iterator[Raw]:
    for number, value in enumerate(_objects(file), 1):
        if isinstance(value, dict):
            yield Raw(number, [value.get(name) for name in columns])
        else:
            yield Raw(number, reason=value)


def _objects(file: InputFile) -> Iterator[dict[str, Any] | str]:
    """The objects of a JSON file, or of JSON lines; in the place of what is none, the reason."""
    if file.format == "json":
        for block in read_json(file):
            yield from (value if isinstance(value, dict) else NOT_JSON for value in block)
        return
    for lines in read_lines(file, 0, None):
        for _, line in lines:
            if isinstance(line, CutLine):
                yield TOO_LONG
            elif line.strip():
                yield _parsed(line)


def _parsed(line: bytes) -> dict[str, Any] | str:
    try:
        value = json.loads(line.decode())
    except UnicodeDecodeError:
        return NOT_UTF8
    except (ValueError, RecursionError):
        return NOT_JSON
    return value if isinstance(value, dict) else NOT_JSON


def _of_tables(file: InputFile, columns: Sequence[str]) -> Iterator[Raw]:
    """The rows of Parquet, Arrow, ORC and Avro."""
    names, number = list(columns), 0
    if file.format == "parquet":
        with open_unchanged(file), parquet_file(file) as parquet:
            batches = parquet.iter_batches(columns=names)
            for batch in batches:
                for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
                    number += 1
                    yield Raw(number, row)
        return
    for batch in read_table(file, names):
        for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
            number += 1
            yield Raw(number, row)
