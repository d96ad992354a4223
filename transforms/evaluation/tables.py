"""Files of tasks: tables with a header, and JSON lines. Every error names the file and the line or
row.
"""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from transforms import storage
from transforms.base.errors import OptionError
from transforms.corpus import InputFile, match_inputs, reading
from transforms.corpus.column_values import NOT_UTF8
from transforms.corpus.files import is_utf8
from transforms.corpus.formats.registry import compression_of, format_of, plain_formats

Place = int | str  # the number of a line, or the words that name a row
Row = tuple[Place, list[str]]
MOST_SHOWN = 200  # characters of a header in an error


def read_lines(path: str) -> list[str]:
    """The lines of a file. Raises OptionError if it cannot be read as UTF-8."""
    return storage.lines_of(storage.read_text(path, "--task"))


def read_table(path: str, columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a table: the place of each in its file, and its values in these columns as text.

    Files have the formats that `train` reads. TSV, and a file whose name says no format of tables,
    is tab-separated without any quoting. Raises OptionError for a column that is missing and for a
    row that cannot be used.
    """
    header = read_header(path)
    missing = [name for name in columns if name not in header]
    if missing:
        found = ascii(", ".join(header))[1:-1] or "none"
        raise OptionError(
            f"--task {path}: no column {missing[0]} in its header ({found[:MOST_SHOWN]}); it needs"
            f" {', '.join(columns)}"
        )
    return (
        _tab_separated(path, columns) if _is_tab_separated(path) else _of_any_format(path, columns)
    )


def read_header(path: str) -> list[str]:
    """The names of a table's columns. Raises OptionError for a file that cannot be read."""
    if _is_tab_separated(path):
        lines = read_lines(path)
        return lines[0].split("\t") if lines else []
    with reading.naming_option("--task"):
        return reading.read_header(_file(path))


def _is_tab_separated(path: str) -> bool:
    kind = format_of(path)
    return kind in ("", "tsv", *plain_formats()) and not compression_of(path, kind)


def _tab_separated(path: str, columns: Sequence[str]) -> Iterator[Row]:
    header, *lines = read_lines(path)
    places = [header.split("\t").index(name) for name in columns]
    for number, line in enumerate(lines, 2):
        if line:
            row = line.split("\t")
            yield number, [cell(path, number, row, place, columns) for place in places]


def _of_any_format(path: str, columns: Sequence[str]) -> Iterator[Row]:
    with reading.naming_option("--task"):
        for row in reading.read_values(_file(path), columns):
            place = f"row {row.number}"
            if row.reason is not None:
                raise bad_line(path, place, row.reason)
            values = ["" if value is None else str(value) for value in row.values]
            if not all(map(is_utf8, values)):
                raise bad_line(path, place, NOT_UTF8)
            yield place, values


def _file(path: str) -> InputFile:
    files = match_inputs(path)
    if len(files) > 1:
        raise OptionError(f"--task {path} names {len(files)} files; name one")
    return files[0]


def cell(path: str, line: Place, row: Sequence[str], place: int, columns: Sequence[str]) -> str:
    """One cell of a line. Raises OptionError where the line has none there."""
    if place >= len(row):
        raise bad_line(path, line, f"not {', '.join(columns)}, tab-separated")
    return row[place]


def number(path: str, line: Place, text: str) -> float:
    """A finite score. Raises OptionError naming file and line for anything else."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise bad_line(path, line, f"{text!r} is no score")
    return value


def label(path: str, line: Place, text: str) -> str:
    """A label. Raises OptionError naming file and line for an empty one."""
    if not text.strip():
        raise bad_line(path, line, "the label is missing")
    return text.strip()


def bad_line(path: str, place: Place, what: str) -> OptionError:
    """The error of a line, by its number, or of a row, by the words that name it."""
    if isinstance(place, int):
        return OptionError(f"--task {path}, line {place}: {what}; mend the line")
    return OptionError(f"--task {path}, {place}: {what}; mend the row")


def read_json_lines(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, with their line numbers. Raises OptionError for a line
    that is none.
    """
    for line, text in enumerate(read_lines(path), 1):
        if not text.strip():
            continue
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise bad_line(path, line, "not a JSON object")
        yield line, value


def stem(path: str) -> str:
    """A file's name without folders and its ending."""
    return os.path.splitext(os.path.basename(path.rstrip("/")))[0]


def files_in(folder: str) -> list[str]:
    """The names of the files in a folder, sorted; none where it is no folder."""
    root = storage.absolute(folder)
    if storage.is_local(root):
        return (
            sorted(entry.name for entry in os.scandir(root) if entry.is_file())
            if os.path.isdir(root)
            else []
        )
    below = [entry.path[len(root) + 1 :] for entry in storage.storage_of(root).below(root)]
    return [name for name in below if "/" not in name]
