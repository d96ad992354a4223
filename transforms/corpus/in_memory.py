"""Rows that a Python program holds, as an Arrow table: data frames, tables, lists of texts or of dicts."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from transforms.errors import OptionError

TEXT = "text"
_VIEWS = {pa.string_view(): pa.string(), pa.large_string(): pa.string(), pa.binary_view(): pa.binary()}


def table_of(rows: Any) -> pa.Table:
    """The rows as a table: of whatever gives Arrow data (pandas, Polars, Arrow, DuckDB), of texts (column `text`), or
    of dicts.

    Raises `OptionError` for anything else, and for what Arrow has no type for.
    """
    try:
        if isinstance(rows, pa.Table | pa.RecordBatch) or hasattr(rows, "__arrow_c_stream__"):
            return _plain(pa.table(rows))
        return _of_items(list(rows))
    except (pa.ArrowException, TypeError) as error:
        raise OptionError(f"rows of {type(rows).__name__} cannot be read ({error}); give texts or dicts") from None


def _of_items(items: list[Any]) -> pa.Table:
    for place, item in enumerate(items):
        if not isinstance(item, str | Mapping):
            raise OptionError(f"row {place} is neither a text nor a dict ({type(item).__name__}); give one kind")
        if isinstance(item, str) != isinstance(items[0], str):
            raise OptionError(f"row {place} is not of the kind of row 0; give texts or dicts, not both")
    if not items or isinstance(items[0], str):
        return pa.table({TEXT: pa.array(items, pa.string())})
    return pa.Table.from_pylist([dict(item) for item in items], schema=_schema(items))


def _schema(items: Iterable[Mapping[str, Any]]) -> pa.Schema:
    """The columns of all dicts, in the order in which they first come; a key that a row has not is null there."""
    names = dict.fromkeys(name for item in items for name in item)
    return pa.schema([(name, pa.array([item.get(name) for item in items]).type) for name in names])


def _plain(table: pa.Table) -> pa.Table:
    """The table with the types that Parquet files have."""
    return table.cast(pa.schema([field.with_type(_VIEWS.get(field.type, field.type)) for field in table.schema]))
