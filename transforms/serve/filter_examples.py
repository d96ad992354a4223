"""Examples of filters, made of the columns and values of the served store."""

import re
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.where import parse_filter
from sentence_beam.transforms.search.snapshot_rows import SnapshotRows

FIELDS = {"id", "piece", "pieces", "start", "end"}  # columns of every store
CONDITIONS = 3
LONGEST = 40  # characters of a value


def examples(rows: SnapshotRows) -> list[str]:
    """Return filters of single columns, then a filter that joins two of them.

    The snapshot must have a row.
    """
    filters: list[str] = []
    for name in rows.columns.names:
        if name in FIELDS or name == rows.text or len(filters) == CONDITIONS:
            continue
        example = _make_example(rows, name)
        if example:
            filters.append(example)
    if len(filters) > 1:
        filters.append(f"{filters[0]} AND {filters[1]}")
    return filters or [_match_text_or_id(rows)]


def _make_example(rows: SnapshotRows, column: str) -> str:
    """Return a filter of one column, empty if no filter can name its value."""
    value = rows.read_first_value(column)
    example = _make_condition(_write_name(column), value) if value is not None else ""
    try:
        parse_filter(example, rows.columns)
    except OptionError:  # a type without literals, or a name that filters cannot write
        return ""
    return example


def _make_condition(column: str, value: Any) -> str:
    """Return a condition that a row with this value of the column satisfies."""
    if isinstance(value, bool):
        return column
    if isinstance(value, int | float | Decimal):
        return f"{column} >= {value}"
    if isinstance(value, date | datetime | time):
        return f"{column} >= '{value}'"
    if isinstance(value, list) and value:
        return f"{_write_literal(value[0])} IN {column}"
    return f"{column} = {_write_literal(value)}"


def _write_literal(value: Any) -> str:
    """Return a value as filters write it."""
    if isinstance(value, str) and len(value) <= LONGEST:
        quoted = value.replace("'", "''")
        return f"'{quoted}'"
    return str(value)


def _write_name(column: str) -> str:
    """Return a column's name as filters write it."""
    if column.isidentifier():
        return column
    quoted = column.replace('"', '""')
    return f'"{quoted}"'


def _match_text_or_id(rows: SnapshotRows) -> str:
    """Return a filter for a store that keeps no columns."""
    if rows.text is not None:
        words = re.findall(rf"\w{{1,{LONGEST}}}", rows.read_first_value(rows.text))
        return f"{_write_name(rows.text)} LIKE '%{max(words, key=len, default='')}%'"
    return f"id <> {_write_literal(rows.read_first_value('id'))}"
