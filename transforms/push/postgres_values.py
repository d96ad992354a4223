"""Values and columns of rows as PostgreSQL takes them, and copying rows into a table."""

from collections.abc import Sequence
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from pyarrow import types

from sentence_beam.transforms.base.arrow_arrays import as_matrix
from sentence_beam.transforms.base.errors import DataGateError, OptionError, cite, first_line
from sentence_beam.transforms.base.plain_values import to_json_value, to_python_values

LONGEST_NAME = 63  # bytes; PostgreSQL cuts longer names
VECTOR = "vector"
KINDS = [  # the first match of a column's type; nested types are jsonb
    (types.is_string, "text"), (types.is_large_string, "text"), (types.is_null, "text"),
    (types.is_boolean, "bool"), (types.is_int8, "int2"), (types.is_int16, "int2"),
    (types.is_uint8, "int2"), (types.is_int32, "int4"), (types.is_uint16, "int4"),
    (types.is_int64, "int8"), (types.is_uint32, "int8"), (types.is_uint64, "numeric"),
    (types.is_decimal, "numeric"), (types.is_float64, "float8"), (types.is_floating, "float4"),
    (types.is_date, "date"), (types.is_binary, "bytea"), (types.is_large_binary, "bytea"),
    (types.is_fixed_size_binary, "bytea"),
]  # fmt: skip


def copy_rows(
    connection: psycopg.Connection,
    into: sql.Identifier,
    rows: pa.RecordBatch,
    where: str,
    vectors: str = VECTOR,
) -> None:
    """Copy rows into a table, whose column of vectors has the type `vectors`.

    Raises DataGateError for a value that PostgreSQL cannot hold.
    """
    ids = rows.column("id")
    columns = [convert_values(field, rows.column(field.name), ids, where) for field in rows.schema]
    kinds = [find_kind(field, 1, where).partition("(")[0] for field in rows.schema]
    kinds = [vectors if kind == VECTOR else kind for kind in kinds]
    query = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(
        into, join_names(rows.schema.names)
    )
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        copy.set_types(kinds)
        for row in zip(*columns, strict=True):
            copy.write_row(row)


def join_names(names: Sequence[str]) -> sql.Composed:
    """The names of columns with commas between them."""
    return sql.SQL(", ").join(map(sql.Identifier, names))


def find_kind(field: pa.Field, dim: int, where: str) -> str:
    """The type of a column. Raises OptionError for a name that PostgreSQL would cut."""
    if len(field.name.encode()) > LONGEST_NAME:
        raise OptionError(
            f"{cite('to')} {where}: PostgreSQL cuts the column name {field.name!r} after"
            f" {LONGEST_NAME} bytes; rename it in the input, or leave it out of"
            f" {cite('keep_columns')}"
        )
    if field.name == "embedding":
        return f"vector({dim})"
    if pa.types.is_timestamp(field.type):
        return "timestamptz" if field.type.tz else "timestamp"
    return next((name for is_one, name in KINDS if is_one(field.type)), "jsonb")


def convert_values(field: pa.Field, column: pa.Array, ids: pa.Array, where: str) -> Sequence[Any]:
    """The values of a column for psycopg.

    Raises DataGateError for a value that PostgreSQL cannot hold.
    """
    if field.name == "embedding":
        return list(as_matrix(column))
    kind = find_kind(field, 1, where)
    name = f"{cite('to')} {where}: the column {field.name!r}"
    left_out_by = f"{cite('keep_columns')}, {cite('keep_text=False')}"
    mend = f"mend it in the input, or leave the column out ({left_out_by})"
    try:
        if kind == "text":
            place = pc.index(pc.match_substring(column, "\0"), True).as_py()
            if place >= 0:
                row_id = ids[place].as_py()
                raise DataGateError(
                    f"{name} of row {row_id!r} has a NUL, which PostgreSQL has not; {mend}"
                )
        if kind in ("timestamp", "timestamptz"):
            column = column.cast(pa.timestamp("us", field.type.tz))
        if kind == "jsonb":
            return [to_json_value(value) for value in to_python_values(column)]
        if kind == "float4":
            return column.cast(pa.float32()).to_pylist()
        return column.to_pylist()
    except (pa.ArrowInvalid, ValueError, OverflowError) as error:
        raise DataGateError(
            f"{name} ({field.type}) has a value that PostgreSQL cannot hold"
            f" ({first_line(error)}); {mend}"
        ) from error
