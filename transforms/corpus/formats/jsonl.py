"""JSON lines: one object a line."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sentence_beam.transforms.corpus.column_values import NOT_UTF8, decode
from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.formats.json_objects import (
    JsonFormat,
    count_text_bytes,
    read_object,
)
from sentence_beam.transforms.corpus.formats.json_values import DECODER
from sentence_beam.transforms.corpus.formats.line_formats import LineFormat
from sentence_beam.transforms.corpus.formats.text_lines import TOO_LONG, CutLine, read_lines
from sentence_beam.transforms.corpus.parsed_rows import ParsedRow, reject_cut
from sentence_beam.transforms.corpus.row_blocks import EMPTY_TEXT, NOT_JSON, Columns
from sentence_beam.transforms.corpus.spans import choose_span_bytes


class JsonLines(LineFormat, JsonFormat):
    """Lines of JSON objects."""

    name = "jsonl"
    endings = (".jsonl", ".ndjson")

    def row(self, file: InputFile, columns: Columns, offset: int, line: bytes) -> ParsedRow:
        default = None if columns.id else f"{file.relative}@{offset}"
        if isinstance(line, CutLine):
            return reject_cut(line, default)
        source, reason = decode(line)
        if reason or not source.strip():
            return ParsedRow(source, default, reason or EMPTY_TEXT)
        return read_object(columns, _parse(source), default, source)

    def choose_cut(self, file: InputFile, text: str | tuple[str, ...], unit_tokens: int) -> int:
        """Return the bytes of lines that hold a unit's text, by the first megabyte."""
        head = _read_head(file)
        return choose_span_bytes(
            head.size, count_text_bytes(head.rows, text), head.lines, unit_tokens
        )

    def first_rows(self, file: InputFile) -> list[dict[str, Any]]:
        return _read_head(file).rows

    def objects(self, file: InputFile) -> Iterator[dict[str, Any] | str]:
        """All objects of a file; for other lines, the reason against them.

        Blank lines are left out.
        """
        for lines in read_lines(file, 0, None):
            for _, line in lines:
                if isinstance(line, CutLine):
                    yield TOO_LONG
                elif line.strip():
                    yield _parse_object(line)


@dataclass(frozen=True)
class _FirstLines:
    """The objects in the first megabyte of a file, its bytes, and its lines, other ones too."""

    rows: list[dict[str, Any]]
    size: int
    lines: int


@functools.lru_cache(1)  # one file is checked several times in a row
def _read_head(file: InputFile) -> _FirstLines:
    lines = next(read_lines(file, 0, None), [])
    rows = [row for _, line in lines if isinstance(row := _parse_object(line), dict)]
    return _FirstLines(rows, sum(len(line) + 1 for _, line in lines), len(lines))


def _parse_object(line: bytes) -> dict[str, Any] | str:
    try:
        value = _parse(line.decode())
    except UnicodeDecodeError:
        return NOT_UTF8
    return value if isinstance(value, dict) else NOT_JSON


def _parse(source: str) -> Any:
    """The value of a line; None if it is not JSON."""
    try:
        return DECODER.decode(source)
    except (ValueError, RecursionError):  # RecursionError: ten thousand brackets
        return None


FORMATS = (JsonLines(),)
