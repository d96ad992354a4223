"""The dialect of a CSV file."""

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

ONE_COLUMN = chr(0xDC1F)  # a delimiter that no text has
WRAPPED = re.compile(r'"[^"]*(?:""[^"]*)*"')
LETTERS = re.compile(r"[^\W\d_]+")
NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class Dialect:
    """The format of a CSV file; `header` has the names of its columns, none for an empty file.

    `escape`: a backslash escapes a quote, not another quote; without quoting it escapes any
    character. `trusts_quotes`: an option says that there are quotes. Names are stripped, unless
    two would become equal; `trimmed` are the names before. Lines end at LF and CRLF if
    `line_end` is LF. If it is empty, the file has no LF, and lines end at carriage returns.
    `skip` lines are above the header, or above the first row if `has_header` is False. `nulls`
    are the values that are null. `single_lines`: no value in the samples has several lines.
    `shapes` are those of the values in columns of short ones, as numbers, by place.
    """

    encoding: str
    delimiter: str
    quoting: bool
    header: tuple[str, ...] = ()
    trimmed: tuple[str, ...] = ()
    line_end: str = "\n"
    escape: bool = False
    trusts_quotes: bool = False
    skip: int = 0
    has_header: bool = True
    nulls: frozenset[str] = frozenset()
    single_lines: bool = False
    shapes: tuple[tuple[int, frozenset[str]], ...] = ()

    def find_place(self, name: str) -> int | None:
        """Return the place of a column, by its name with or without blanks; None if missing."""
        for header_name in (name, name.strip()):
            if header_name and header_name in self.header:
                return self.header.index(header_name)
        return None

    @property
    def names(self) -> list[str]:
        """The names of the columns that can be read."""
        return [name for name in self.header if name]

    def reader(self, lines: Iterable[str]) -> Any:
        """Return Python's reader of the rows in lines; read it within `long_fields`."""
        if self.quoting:
            return csv.reader(lines, delimiter=self.delimiter, strict=True)
        escape = "\\" if self.escape else None
        return csv.reader(
            lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE, escapechar=escape, strict=True
        )

    def is_line(self, line: str) -> bool:
        """Whether a line of a value in quotes would be a row without quotes.

        Such a row has a value for each name, none of them in quotes, and the shapes of others.
        """
        values = line.rstrip("\r\n").split(self.delimiter)
        if len(values) != len(self.header) or '""' in line:
            return False
        if any(not value.strip('"') or WRAPPED.fullmatch(value) for value in values if value):
            return False
        return all(
            '"' in values[place] or make_shape(values[place]) in shapes
            for place, shapes in self.shapes
        )

    @property
    def title(self) -> str:
        """The dialect in the words of a summary."""
        delimiter = {"\t": "tab", ONE_COLUMN: "one column"}.get(self.delimiter, self.delimiter)
        quotes = "no quotes" if not self.quoting else '" quoted'
        if self.escape:
            quotes += ", \\ escapes"
        return f"{delimiter} {quotes}"


def make_shape(value: str) -> str:
    """Return a value with `a` for its letters and `0` for its numbers.

    >>> shape_of("doc_17"), shape_of("-2.5")
    ('a_0', '0')
    """
    return NUMBER.sub("0", LETTERS.sub("a", value))
