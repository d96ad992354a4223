"""Files of tasks: tab-separated tables with a header, and JSON lines. Every error names the file and the line."""

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from transforms import storage
from transforms.errors import OptionError

Row = tuple[int, list[str]]


def read_text(path: str) -> str:
    """The text of a file. Raises OptionError where it cannot be read as UTF-8."""
    return storage.read_text(path, "--task")


def read_table(path: str, columns: Sequence[str]) -> Iterator[Row]:
    """The lines of a tab-separated file with a header, without any quoting: line number and the columns asked for.

    Raises OptionError for a column that is missing and for a line that is too short.
    """
    reader = csv.reader(io.StringIO(read_text(path), newline=""), delimiter="\t", quoting=csv.QUOTE_NONE)
    header = next(reader, [])
    missing = [name for name in columns if name not in header]
    if missing:
        raise OptionError(f"--task {path}: no column {missing[0]} in its header; it needs {', '.join(columns)}")
    places = [header.index(name) for name in columns]
    for row in reader:
        if row:
            yield reader.line_num, [cell(path, reader.line_num, row, place, columns) for place in places]


def cell(path: str, line: int, row: Sequence[str], place: int, columns: Sequence[str]) -> str:
    """One cell of a line. Raises OptionError where the line has none there."""
    if place >= len(row):
        raise bad_line(path, line, f"not {', '.join(columns)}, tab-separated")
    return row[place]


def number(path: str, line: int, text: str) -> float:
    """A finite score. Raises OptionError naming file and line for anything else."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise bad_line(path, line, f"{text!r} is no score")
    return value


def label(path: str, line: int, text: str) -> str:
    """A label. Raises OptionError naming file and line for an empty one."""
    if not text.strip():
        raise bad_line(path, line, "the label is missing")
    return text.strip()


def bad_line(path: str, line: int, what: str) -> OptionError:
    """The error of a line."""
    return OptionError(f"--task {path}, line {line}: {what}; mend the line")


def read_json_lines(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, with their line numbers. Raises OptionError for a line that is none."""
    for line, text in enumerate(read_text(path).splitlines(), 1):
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
        return sorted(entry.name for entry in os.scandir(root) if entry.is_file()) if os.path.isdir(root) else []
    below = [entry.path[len(root) + 1 :] for entry in storage.storage_of(root).below(root)]
    return [name for name in below if "/" not in name]
