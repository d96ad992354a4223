"""Rows that are parsed one by one: lines of text, values of JSON, rows of CSV."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from transforms.corpus.column_types import STR, not_of_type
from transforms.corpus.column_values import EXCERPT
from transforms.corpus.files import InputFile
from transforms.corpus.lines import TOO_LONG, CutLine
from transforms.corpus.row_blocks import Columns, Rows


class ParsedRow(NamedTuple):
    """A row: its text, its id, the reason against it, the kept values, and the text before its
    pieces.
    """

    text: str | None
    id: str | None
    reason: str | None
    kept: Mapping[str, Any] = MappingProxyType({})
    prefix: tuple[str, ...] = ("",)


def gather_rows(columns: Columns, positions: Iterable[int], parsed: list[ParsedRow]) -> Rows:
    """Put rows at these positions together, column by column."""
    texts, ids, reasons, kept, prefixes = (
        map(list, zip(*parsed, strict=True)) if parsed else ([], [], [], [], [])
    )
    tables = [_kept_table(columns, kept)] if columns.keep and kept else []
    return Rows(
        list(positions), texts, ids, reasons, tables, prefixes if columns.before_pieces else []
    )


def fill_prefix(columns: Columns, value: Callable[[str], str | None]) -> tuple[str, ...]:
    """The text before the pieces of a row with these values, cut around its headings."""
    return columns.before_pieces.around_headings(value) if columns.before_pieces else ("",)


def measure_texts(parsed: list[ParsedRow]) -> np.ndarray:
    """The size of each row's text in bytes, int64 [n]."""
    return np.array([len((text or "").encode()) for text, *_ in parsed], np.int64)


def make_id(file: InputFile, columns: Columns, number: int) -> str | None:
    """The id that is made for a row, None where ids come from a column."""
    return None if columns.id else f"{file.relative}#{number}"


def _kept_table(columns: Columns, rows: list[Mapping[str, Any]]) -> pa.Table:
    kinds = {name: columns.kinds.get(name, STR) for name in columns.keep}
    return pa.table(
        {
            name: pa.array([row.get(name) for row in rows], kind.arrow)
            for name, kind in kinds.items()
        }
    )


def read_kept(
    columns: Columns, texts: Mapping[str, str | None]
) -> tuple[Mapping[str, Any], str | None]:
    """The kept values of a row, read from their texts, and the reason against the row where one is
    not of its type.
    """
    if not columns.kinds:
        return texts, None
    values: dict[str, Any] = {}
    for name, text in texts.items():
        kind = columns.kinds.get(name, STR)
        try:
            values[name] = None if text is None else kind.read(text)
        except (ValueError, OverflowError):
            return {}, not_of_type(name, kind)
    return values, None


def reject_cut(line: CutLine, row_id: str | None) -> ParsedRow:
    """The rejected row of a line that is too long."""
    return ParsedRow(line[:EXCERPT].decode(errors="replace"), row_id, TOO_LONG)


def replace_undecodable(text: str) -> str:
    """The text with marks in place of bytes that are not UTF-8."""
    return text.encode("utf8", errors="surrogateescape").decode("utf8", errors="replace")
