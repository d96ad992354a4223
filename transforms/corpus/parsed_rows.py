"""Rows that are parsed one by one: lines of text, values of JSON, rows of CSV."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.corpus.column_types import STR, make_type_reason
from sentence_beam.transforms.corpus.column_values import EXCERPT
from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.formats.text_lines import TOO_LONG, CutLine
from sentence_beam.transforms.corpus.row_blocks import Columns, Rows


class ParsedRow(NamedTuple):
    """A row: text, id, reason for rejecting it, kept values, and the prefix of its pieces."""

    text: str | None
    id: str | None
    reason: str | None
    kept: Mapping[str, Any] = MappingProxyType({})
    prefix: tuple[str, ...] = ("",)


def gather_rows(columns: Columns, positions: Iterable[int], parsed: list[ParsedRow]) -> Rows:
    """Put rows at these positions together, column by column."""
    rows = Rows(list(positions))
    if not parsed:
        return rows
    texts, ids, reasons, kept, prefixes = zip(*parsed, strict=True)
    rows.texts += texts
    rows.ids += ids
    rows.reasons += reasons
    if columns.keep:
        rows.kept.append(_make_kept_table(columns, kept))
    if columns.before_pieces:
        rows.prefixes += prefixes
    return rows


def fill_prefix(columns: Columns, value: Callable[[str], str | None]) -> tuple[str, ...]:
    """Return the prefix of the pieces of a row with these values, split around its headings."""
    template = columns.before_pieces
    return template.fill_around_headings(value) if template is not None else ("",)


def measure_texts(parsed: list[ParsedRow]) -> np.ndarray:
    """Return the size of each row's text in bytes, int64 [n]."""
    texts = (row.text or "" for row in parsed)
    sizes = [len(text) if text.isascii() else len(text.encode()) for text in texts]
    return np.array(sizes, np.int64)


def make_id(file: InputFile, columns: Columns, number: int) -> str | None:
    """Make the id of a row; None if ids come from a column."""
    return None if columns.id else f"{file.relative}#{number}"


def _make_kept_table(columns: Columns, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    arrays = {}
    for name in columns.keep:
        kind = columns.kinds.get(name, STR)
        arrays[name] = pa.array([row.get(name) for row in rows], kind.arrow)
    return pa.table(arrays)


def read_kept(
    columns: Columns, texts: Mapping[str, str | None]
) -> tuple[Mapping[str, Any], str | None]:
    """Read the kept values of a row from their texts; return a reason if one is not of its type."""
    if not columns.kinds:
        return texts, None
    values: dict[str, Any] = {}
    for name, text in texts.items():
        kind = columns.kinds.get(name, STR)
        try:
            values[name] = None if text is None else kind.read(text)
        except (ValueError, OverflowError):
            return {}, make_type_reason(name, kind)
    return values, None


def reject_cut(line: CutLine, row_id: str | None) -> ParsedRow:
    """Return the rejected row of a line that is too long."""
    return ParsedRow(line[:EXCERPT].decode(errors="replace"), row_id, TOO_LONG)


def replace_undecodable(text: str) -> str:
    """Replace bytes of a text that are not UTF-8 by marks."""
    return text.encode("utf8", errors="surrogateescape").decode("utf8", errors="replace")
