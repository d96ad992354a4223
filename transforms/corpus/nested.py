"""Look up columns by name, nested ones by dotted names: `meta.lang` is the field `lang` of `meta`.

A column whose own name has dots takes precedence over a nested field.
"""

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def has_value(row: dict[str, Any], name: str) -> bool:
    """Whether a JSON object has a key, or a path of keys."""
    if name in row or "." not in name:
        return name in row
    head, _, rest = name.partition(".")
    inner = row.get(head)
    return isinstance(inner, dict) and has_value(inner, rest)


def find_value(row: dict[str, Any], name: str) -> Any:
    """Return the value of a key, or of a path of keys, in a JSON object; None if it is missing."""
    if name in row or "." not in name:
        return row.get(name)
    head, _, rest = name.partition(".")
    inner = row.get(head)
    return find_value(inner, rest) if isinstance(inner, dict) else None


def format_value(value: Any) -> str | None:
    """Convert a value to text: strings unchanged, JSON types to compact JSON, others by `str`."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (dict, list, bool, int, float)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return str(value)


def find_type(schema: pa.Schema | pa.StructType, name: str) -> pa.DataType | None:
    """Return the type of a column or of a struct's field; None if missing or ambiguous."""
    fields = [field for field in schema if field.name == name]
    if len(fields) > 1:
        return None
    if fields:
        return fields[0].type
    head, dot, rest = name.partition(".")
    inner = [field.type for field in schema if field.name == head]
    if dot and len(inner) == 1 and pa.types.is_struct(inner[0]):
        return find_type(inner[0], rest)
    return None


def find_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column, or a struct's field, which is null if the struct is."""
    if name in batch.schema.names:
        return batch.column(name)
    head, _, rest = name.partition(".")
    return _find_field(batch.column(head), rest)


def _find_field(array: pa.Array, name: str) -> pa.Array:
    if any(field.name == name for field in array.type):
        return pc.struct_field(array, name)
    head, _, rest = name.partition(".")
    return _find_field(pc.struct_field(array, head), rest)


def find_roots(schema: pa.Schema, names: list[str]) -> list[str]:
    """Return the columns of the schema that hold the named ones, each once.

    For no names it is the first column, since a batch without columns has no rows in some formats.
    """
    columns = [name if name in schema.names else name.partition(".")[0] for name in names]
    return list(dict.fromkeys(columns)) or schema.names[:1]


def list_names(schema: pa.Schema | pa.StructType, above: str = "") -> list[str]:
    """Return the names of all columns; for structs, those of their fields."""
    names = []
    for field in schema:
        inside = []
        if pa.types.is_struct(field.type):
            inside = list_names(field.type, f"{above}{field.name}.")
        names += inside or [above + field.name]
    return names


def list_keys(row: dict[str, Any], above: str = "") -> list[str]:
    """Return the keys of a JSON object; for objects in it, their keys."""
    keys = []
    for key, value in row.items():
        inside = list_keys(value, f"{above}{key}.") if isinstance(value, dict) else []
        keys += inside or [above + key]
    return keys
