"""Read the files of tasks: tables with a header, and JSON lines.

Every error names the file and the line or row.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.corpus import InputFile, collection_rows, match_inputs
from sentence_beam.transforms.corpus.column_values import NOT_UTF8
from sentence_beam.transforms.corpus.files import is_utf8
from sentence_beam.transforms.corpus.formats.registry import (
    find_compression,
    find_format,
    list_plain_formats,
)
from sentence_beam.transforms.corpus.syntax import AS_FOUND, Syntax

Place = int | str  # the number of a line, or the words that name a row
Row = tuple[Place, list[str]]
MOST_SHOWN = 200  # characters of a header in an error
_SYNTAX = ContextVar("syntax", default=AS_FOUND)


@contextlib.contextmanager
def reading_as(syntax: Syntax) -> Iterator[None]:
    """Read the tables of the tasks in this block with the syntax that options say."""
    token = _SYNTAX.set(syntax)
    try:
        yield
    finally:
        _SYNTAX.reset(token)


def split_word(word: str) -> tuple[str, str, str]:
    """Split [KIND:]NAME=PATHS into kind (default: sts), name and paths; each may be empty."""
    named, _, paths = word.partition("=")
    kind, colon, name = named.partition(":")
    return (kind, name, paths) if colon else ("sts", named, paths)


def read_lines(path: str) -> list[str]:
    """Return the lines of a file. Raises OptionError if it cannot be read as UTF-8."""
    return storage.lines_of(storage.read_text(path, cite("task")))


def read_table(path: str, columns: Sequence[str]) -> Iterator[Row]:
    """Return the rows of a table: each one's place in its file, and the columns' values as text.

    Files have the formats that `train` reads. TSV, and a file whose name has no known ending, is
    tab-separated; without any quoting, unless options say its syntax. Raises OptionError for a
    missing column and for a row that cannot be used.
    """
    header = read_header(path)
    missing = [name for name in columns if name not in header]
    if missing:
        named = ascii(", ".join(header))[1:-1] or "none"
        raise OptionError(
            f"{cite('task')} {path}: no column {missing[0]} in its header ({named[:MOST_SHOWN]});"
            f" it needs {', '.join(columns)}"
        )
    if _is_tab_separated(path):
        return _read_tab_separated(path, columns)
    return _read_any_format(path, columns)


def read_header(path: str) -> list[str]:
    """Return the names of a table's columns. Raises OptionError for an unreadable file."""
    if _is_tab_separated(path):
        lines = read_lines(path)
        return lines[0].split("\t") if lines else []
    with collection_rows.naming_option(cite("task")):
        return collection_rows.read_header(_find_file(path))


def _is_tab_separated(path: str) -> bool:
    if _SYNTAX.get() != AS_FOUND:
        return False
    kind = find_format(path)
    return kind in ("", "tsv", *list_plain_formats()) and not find_compression(path, kind)


def _read_tab_separated(path: str, columns: Sequence[str]) -> Iterator[Row]:
    header, *lines = read_lines(path)
    places = [header.split("\t").index(name) for name in columns]
    for number, line in enumerate(lines, 2):
        if line:
            row = line.split("\t")
            yield number, [read_cell(path, number, row, place, columns) for place in places]


def _read_any_format(path: str, columns: Sequence[str]) -> Iterator[Row]:
    with collection_rows.naming_option(cite("task")):
        for row in collection_rows.read_values(_find_file(path), columns):
            place = f"row {row.number}"
            if row.reason is not None:
                raise make_line_error(path, place, row.reason)
            values = ["" if value is None else str(value) for value in row.values]
            if not all(map(is_utf8, values)):
                raise make_line_error(path, place, NOT_UTF8)
            yield place, values


def _find_file(path: str) -> InputFile:
    file_format = "tsv" if find_format(path) in ("", *list_plain_formats()) else "auto"
    files = match_inputs(path, file_format, syntax=_SYNTAX.get())
    if len(files) > 1:
        raise OptionError(f"{cite('task')} {path} names {len(files)} files; name one")
    return files[0]


def read_cell(
    path: str, line: Place, row: Sequence[str], place: int, columns: Sequence[str]
) -> str:
    """Return one cell of a line. Raises OptionError if the line is too short."""
    if place >= len(row):
        raise make_line_error(path, line, f"not {', '.join(columns)}, tab-separated")
    return row[place]


def parse_number(path: str, line: Place, text: str) -> float:
    """Parse a finite score. Raises OptionError naming file and line for anything else."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise make_line_error(path, line, f"{text!r} is no score")
    return value


def parse_label(path: str, line: Place, text: str) -> str:
    """Return a label without blanks. Raises OptionError naming file and line if it is empty."""
    if not text.strip():
        raise make_line_error(path, line, "the label is missing")
    return text.strip()


def make_line_error(path: str, place: Place, what: str) -> OptionError:
    """Return the error of a line, by its number, or of a row, by the words that name it."""
    if isinstance(place, int):
        return OptionError(f"{cite('task')} {path}, line {place}: {what}; mend the line")
    return OptionError(f"{cite('task')} {path}, {place}: {what}; mend the row")


def read_json_lines(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file of JSON lines, with their line numbers.

    Raises OptionError for a line that is not an object.
    """
    for line, text in enumerate(read_lines(path), 1):
        if not text.strip():
            continue
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise make_line_error(path, line, "not a JSON object")
        yield line, value


def stem(path: str) -> str:
    """Return a file's name without folders and ending."""
    return os.path.splitext(os.path.basename(path.rstrip("/")))[0]


def list_folder(folder: str) -> list[str]:
    """Return the sorted names of the files in a folder; none if it is no folder."""
    root = storage.absolute(folder)
    if storage.is_local(root):
        if os.path.isdir(root):
            return sorted(entry.name for entry in os.scandir(root) if entry.is_file())
        return []
    below = [entry.path[len(root) + 1 :] for entry in storage.storage_of(root).below(root)]
    return [name for name in below if "/" not in name]
