"""Rows in memory as columns: data frames, tables, columns, dicts, texts; and single values of rows.

Only the columns that are used are looked at: others may be of types that Arrow does not know.
"""

import decimal
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base.arrow_arrays import as_plain, as_plain_type
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.corpus.column_values import NOT_UTF8, has_samples, take_samples
from sentence_beam.transforms.corpus.files import is_utf8
from sentence_beam.transforms.corpus.nested import (
    find_column,
    find_type,
    find_value,
    format_value,
    has_value,
)
from sentence_beam.transforms.corpus.row_blocks import (
    ID_NOT_STRING,
    NULL_ID,
    TEXT_NOT_STRING,
    Columns,
)

TEXT = "text"  # the column of rows that are texts
PLAIN = frozenset((str, int, float, bool, type(None)))
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")  # the index of a pandas data frame
_UNREAD = (pa.ArrowException, TypeError, ValueError, OverflowError)


class ArrowStream(Protocol):
    """An object with Arrow data.

    Among them are data frames and columns of pandas and Polars, tables of Arrow, relations of
    DuckDB.
    """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Rows: TypeAlias = ArrowStream | Mapping[str, Any] | Iterable[str] | Iterable[Mapping[str, Any]]


def read_columns(rows: Any, columns: Columns | None = None) -> pa.Table:
    """Return rows as a table with plain types; nested columns that are used have dotted names.

    `columns` are those that are used (None: all); of others only the names are left, with nulls.
    Rows are an object with Arrow data, a dict of columns, a list of dicts, or a list of texts.
    Values of several types in a column are text. Raises OptionError naming the row for a text that
    is none and an id that cannot be one, and for values that have no type of Arrow.
    """
    values = _find_columns(rows, columns)
    if isinstance(values, Mapping):
        values = pa.table({name: _make_array(name, each, columns) for name, each in values.items()})
    if values.num_rows and not values.num_columns:
        raise OptionError(f"the {values.num_rows} rows have no columns; give a column {TEXT}")
    names = values.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OptionError(f"the rows have {names.count(twice)} columns {twice}; rename one")
    if columns is None:
        return pa.table({name: _take_column(values, name) for name in names})
    used = {
        name: _take_column(values, name)
        for name in columns.wanted
        if find_type(values.schema, name)
    }
    return pa.table({**{name: pa.nulls(values.num_rows) for name in names}, **used})


def read_first_values(rows: Any, count: int) -> dict[str, list[Any]]:
    """Return the values of the first rows, by column; none of a stream that can be read once."""
    head: Any = None
    if isinstance(rows, pa.Table | pa.RecordBatch):
        head = rows.slice(0, count)
    elif type(rows).__name__ == "DataFrame":
        head = rows.head(count)
    elif isinstance(rows, Mapping):
        _check_columns(rows)
        head = {name: values[:count] for name, values in rows.items()}
    elif isinstance(rows, Sequence):
        head = rows[:count]
    if head is None or not len(head):
        return {}
    try:
        table = read_columns(head)
    except (OptionError, *_UNREAD):
        return {}
    return {
        name: take_samples(table.column(name))
        for name in table.column_names
        if has_samples(table.schema.field(name).type)
    }


def _take_column(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column, or a nested one by its dotted name, with a plain type."""
    kind = as_plain_type(find_type(table.schema, name))
    chunks = [as_plain(find_column(batch, name)) for batch in table.to_batches()]
    return pa.chunked_array(chunks, kind)


def _find_columns(rows: Any, columns: Columns | None) -> pa.Table | dict[str, Any]:
    """Return a table of Arrow, or the values of each column; unused ones of dicts are null."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return pa.table(rows)
    if isinstance(rows, pa.Array):
        return pa.table({TEXT: rows})
    if hasattr(rows, "__arrow_c_stream__"):
        return _read_stream(rows, columns)
    if isinstance(rows, Mapping):
        _check_columns(rows)
        return {
            name: values if _is_used(name, columns) else pa.nulls(len(values))
            for name, values in rows.items()
        }
    if rows and isinstance(rows[0], Mapping):
        return _read_dicts(rows, columns)
    return {TEXT: list(rows)}


def _read_dicts(rows: Sequence[Mapping[str, Any]], columns: Columns | None) -> dict[str, Any]:
    """The values of each key, null without it; nested ones that are used have dotted names."""
    names = list(map(_check_name, dict.fromkeys(name for row in rows for name in row)))
    if columns is None:
        return {name: [row.get(name) for row in rows] for name in names}
    values: dict[str, Any] = {name: pa.nulls(len(rows)) for name in names}
    items = list(map(dict, rows))
    for name in columns.wanted:
        if any(has_value(item, name) for item in items):
            values[name] = [find_value(item, name) for item in items]
    return values


def _is_used(name: str, columns: Columns | None) -> bool:
    """Whether an option names a column or a field of it."""
    return columns is None or any(f"{path}.".startswith(f"{name}.") for path in columns.wanted)


def _read_stream(rows: Any, columns: Columns | None) -> pa.Table | dict[str, Any]:
    """Read an object with Arrow data; of a data frame that has other data, column by column."""
    labels = getattr(rows, "columns", None)
    is_frame = type(rows).__name__ == "DataFrame"  # of pandas and Polars, which take other data
    if columns is None or labels is None or not is_frame:
        return _read_arrow(pa.chunked_array(rows))
    names = [str(label) for label in labels]
    used = [label for label in labels if _is_used(str(label), columns)]
    try:
        values = _read_arrow(pa.chunked_array(rows[used]))
    except _UNREAD:
        index = getattr(rows, "index", None)  # of pandas; one with a name is a column
        name_of_index = getattr(index, "name", None)
        named = {name_of_index: index} if isinstance(name_of_index, str) else {}
        unused = {name: pa.nulls(len(rows)) for name in names}
        return named | unused | {str(label): rows[label] for label in used}
    for name in names:
        if name not in values.column_names:
            values = values.append_column(name, pa.nulls(values.num_rows))
    return values


def _read_arrow(column: pa.ChunkedArray) -> pa.Table:
    if not pa.types.is_struct(column.type):
        return pa.table({TEXT: column})
    if not len(column):  # of which Arrow makes no table
        return pa.schema(list(column.type)).empty_table()
    table = pa.Table.from_struct_array(column)
    return table.drop_columns(list(filter(_UNNAMED_INDEX.fullmatch, table.column_names)))


def _check_name(name: Any) -> str:
    if not isinstance(name, str):
        raise OptionError(f"column {name!r} has a name that is no text; rename it")
    return name


def _check_columns(columns: Mapping[str, Any]) -> None:
    """Raise OptionError for names that are none, values without a length, and other lengths."""
    for name, values in columns.items():
        _check_name(name)
        if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
            raise OptionError(
                f"column {name!r} holds one value ({type(values).__name__}), no list; a dict holds"
                " columns, as in {'text': ['one', 'two']}; for rows give a list of dicts"
            )
    counts = {name: len(values) for name, values in columns.items()}
    if len(set(counts.values())) > 1:
        lengths = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise OptionError(f"columns of different lengths: {lengths}")


def _make_array(name: str, values: Any, columns: Columns | None) -> pa.Array | pa.ChunkedArray:
    """Return values as a column of the type that they have, else of text."""
    try:
        if hasattr(values, "__arrow_c_stream__"):
            return pa.chunked_array(values)
        return pa.array(values)
    except _UNREAD:
        plain_values = list(map(_read_value, values))
    texts, reasons = format_texts(plain_values, name, columns)
    for row, (value, reason) in enumerate(zip(plain_values, reasons, strict=True)):
        if reason is not None and value is not None:
            what = f"{value!r:.80} ({type(value).__name__}): {reason}"
            if reason == NOT_UTF8:
                what = reason
            raise OptionError(f"row {row}: column {name} is {what}; mend the row, or leave it out")
    return pa.array(texts, pa.string())


def format_texts(
    values: Iterable[Any], name: str, columns: Columns | None
) -> tuple[list[str | None], list[str | None]]:
    """Return the values of a column as text, and the reasons against those that cannot be.

    A text that is not UTF-8 has question marks for what UTF-8 lacks.
    """
    read: Callable[[Any], tuple[str | None, str | None]] = _write_text
    if columns is not None and name == columns.id:
        read = read_id
    elif columns is not None and name == columns.text and columns.of_text is None:
        read = read_text
    texts: list[str | None] = []
    reasons: list[str | None] = []
    for value in values:
        text, reason = read(value)
        if text is not None and not is_utf8(text):
            text = text.encode("utf8", errors="replace").decode("utf8")
            reason = NOT_UTF8
        texts.append(text)
        reasons.append(reason)
    return texts, reasons


def _read_value(value: Any) -> Any:
    """Return a value of a column; None for those by which pandas says that it is missing."""
    value = as_plain_value(value)
    return None if type(value).__name__ in ("NAType", "NaTType") or value != value else value


def _write_text(value: Any) -> tuple[str | None, None]:
    return format_value(as_plain_value(value)), None


def read_id(value: Any) -> tuple[str | None, str | None]:
    """Return the id that a value is, and the reason against others.

    Ids are texts, whole numbers (also decimals), UUIDs, and bytes that are UTF-8.
    """
    value = as_plain_value(value)
    if value is None:
        return None, NULL_ID
    if isinstance(value, str):
        return value, None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value), None
    if isinstance(value, decimal.Decimal) and value.is_finite() and value == int(value):
        return str(int(value)), None
    return None, ID_NOT_STRING


def read_text(value: Any) -> tuple[str | None, str | None]:
    """Return the text that a value is, and the reason against others."""
    value = as_plain_value(value)
    if value is None or isinstance(value, str):
        return value, None
    return None, TEXT_NOT_STRING


def as_plain_value(value: Any) -> Any:
    """Return a value as a type of Python's own; times of Beam, which JDBC gives, as moments.

    Bytes are text; what is not UTF-8 becomes characters that cannot be encoded.
    """
    if type(value) in PLAIN:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf8", "surrogateescape")
    if hasattr(value, "to_utc_datetime"):
        return value.to_utc_datetime(has_tz=True)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, np.floating):
        return float(str(value))  # of float32, the digits that Arrow writes
    if isinstance(value, np.generic):
        return as_plain_value(value.item())
    if hasattr(value, "_asdict"):
        return value._asdict()
    return value
