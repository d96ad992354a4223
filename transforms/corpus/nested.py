"""Columns by name, those inside of others by dotted names: `meta.lang` is the field `lang` of
`meta`.

A column whose own name has the dots comes before a field of another.
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


def value_at(row: dict[str, Any], name: str) -> Any:
    """The value of a key, or of a path of keys, in a JSON object; None where it is not there."""
    if name in row or "." not in name:
        return row.get(name)
    head, _, rest = name.partition(".")
    inner = row.get(head)
    return value_at(inner, rest) if isinstance(inner, dict) else None


def value_as_text(value: Any) -> str | None:
    """A value as text: strings as they are, what JSON can say as compact JSON, anything else as
    Python prints it.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (dict, list, bool, int, float)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return str(value)


def type_at(schema: pa.Schema | pa.StructType, name: str) -> pa.DataType | None:
    """The type of a column, or of a struct's field; None where it is not there."""
    fields = [field for field in schema if field.name == name]
    if fields:
        return fields[0].type if len(fields) == 1 else None
    head, dot, rest = name.partition(".")
    inner = [field.type for field in schema if field.name == head]
    return (
        type_at(inner[0], rest)
        if dot and len(inner) == 1 and pa.types.is_struct(inner[0])
        else None
    )


def column_at(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column, or a struct's field, which is null where the struct is."""
    if name in batch.schema.names:
        return batch.column(name)
    head, _, rest = name.partition(".")
    return _field_at(batch.column(head), rest)


def _field_at(array: pa.Array, name: str) -> pa.Array:
    if any(field.name == name for field in array.type):
        return pc.struct_field(array, name)
    head, _, rest = name.partition(".")
    return _field_at(pc.struct_field(array, head), rest)


def roots(schema: pa.Schema, names: list[str]) -> list[str]:
    """The columns of the schema that hold the named ones, each once."""
    return list(
        dict.fromkeys(name if name in schema.names else name.partition(".")[0] for name in names)
    )


def all_names(schema: pa.Schema | pa.StructType, above: str = "") -> list[str]:
    """The names of all columns, of structs those of their fields."""
    names = []
    for field in schema:
        inside = (
            all_names(field.type, f"{above}{field.name}.") if pa.types.is_struct(field.type) else []
        )
        names += inside or [above + field.name]
    return names


def all_keys(row: dict[str, Any], above: str = "") -> list[str]:
    """The keys of a JSON object, of objects in it those of their own."""
    keys = []
    for key, value in row.items():
        keys += (all_keys(value, f"{above}{key}.") if isinstance(value, dict) else []) or [
            above + key
        ]
    return keys
