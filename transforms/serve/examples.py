"""Filters to begin with, made of the columns and values of the store that is served."""

import re
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from transforms.base.errors import OptionError
from transforms.base.where import checked
from transforms.search.rows import SnapshotRows

FIELDS = {"id", "piece", "pieces", "start", "end"}  # columns of every store
CONDITIONS = 3
LONGEST = 40  # characters of a value


def examples(rows: SnapshotRows) -> list[str]:
    """Filters of single columns, then one that joins two of them; of a snapshot with a row at
    least.
    """
    kept = [name for name in rows.columns.names if name not in FIELDS and name != rows.text]
    found = [example for name in kept if (example := _of(rows, name))][:CONDITIONS]
    if len(found) > 1:
        found.append(f"{found[0]} AND {found[1]}")
    return found or [_without_kept(rows)]


def _of(rows: SnapshotRows, column: str) -> str:
    """A filter of one column, empty if none of its values makes a short one."""
    value = rows.first_value(column)
    example = _condition(_name(column), value) if value is not None else ""
    try:
        checked(example, rows.columns)
    except OptionError:  # a type that has no literals, a name that filters cannot say
        return ""
    return example


def _condition(column: str, value: Any) -> str:
    """The condition that a row with this value of the column satisfies."""
    if isinstance(value, bool):
        return column
    if isinstance(value, int | float | Decimal):
        return f"{column} >= {value}"
    if isinstance(value, date | datetime | time):
        return f"{column} >= '{value}'"
    if isinstance(value, list) and value:
        return f"{_literal(value[0])} IN {column}"
    return f"{column} = {_literal(value)}"


def _literal(value: Any) -> str:
    """A value as filters have it."""
    if isinstance(value, str) and len(value) <= LONGEST:
        quoted = value.replace("'", "''")
        return f"'{quoted}'"
    return str(value)


def _name(column: str) -> str:
    """A column as filters name it."""
    if column.isidentifier():
        return column
    quoted = column.replace('"', '""')
    return f'"{quoted}"'


def _without_kept(rows: SnapshotRows) -> str:
    """The filter for a store that keeps no columns."""
    if rows.text is not None:
        words = re.findall(rf"\w{{1,{LONGEST}}}", rows.first_value(rows.text))
        return f"{_name(rows.text)} LIKE '%{max(words, key=len, default='')}%'"
    return f"id <> {_literal(rows.first_value('id'))}"
