"""The columns of the tables of a snapshot: `files`, a row an input file, and `units`, a row a unit.

`made` are the units of one run: the columns of `units`, and what only that run needs. The counts of
a unit are declared in `UnitRecord`; schemas, sums and checks follow from there.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from sentence_beam.transforms.base.measures import OWN_FIGURES
from sentence_beam.transforms.store.records import KEPT_COUNTS, WORK_COUNTS, UnitRecord

TEXT = pa.string()
COUNT = pa.int64()
SUM = pa.uint64()
SHA256 = pa.binary(32)
ROWS_AT_ONCE = 10_000  # made from objects
FILE_COUNTS = ("units", "rows", "read", "written")
PENDING = ("pending_bytes", "pending_tokens")


def _make_schema(*columns: tuple[str, pa.DataType, bool]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable) for name, kind, nullable in columns])


FILES = _make_schema(
    ("path", TEXT, False),  # relative; the key
    ("folder", TEXT, True),  # what stands before `path` in the full path
    ("source", TEXT, True),  # the full path if it is not `folder` and `path`
    ("format", TEXT, False),
    ("checksum", TEXT, False),
    ("version", TEXT, False),
    ("size", COUNT, False),
    ("group", TEXT, True),  # the group whose units have its rows
    ("cut", COUNT, True),  # the size of its spans
    ("shards_of", TEXT, True),  # the key in the names of its shards, if it is another file's
    # of a file that waits for a later run: its size, and the estimated tokens of embedding it
    *((name, COUNT, True) for name in PENDING),
    # sums over its own units; those of a group stand at the first of its files
    *((name, COUNT, False) for name in FILE_COUNTS),
)
UNITS = _make_schema(
    ("unit", TEXT, False),  # the key
    ("file", TEXT, True),  # null for a group or a bucket
    ("start", COUNT, False),
    ("stop", COUNT, True),
    *((name, COUNT, False) for name in KEPT_COUNTS),
    ("documents", COUNT, True),
    ("pieces_sum", SUM, True),
    ("documents_sum", SUM, True),
    ("path", TEXT, True),
    ("bytes", COUNT, False),
    ("sha256", SHA256, True),
    ("checksum", TEXT, True),
    ("rejects", TEXT, True),
    ("rejects_sha256", SHA256, True),
    ("form", TEXT, True),
)
MADE = pa.schema(
    [
        *UNITS,
        *(pa.field(name, COUNT, False) for name in WORK_COUNTS),
        pa.field("run", TEXT, False),
        pa.field("device", TEXT, False),
        pa.field("damaged", pa.list_(TEXT), False),
        pa.field("moved", pa.list_(pa.float64()), False),
        *(pa.field(name, pa.float32()) for name in OWN_FIGURES),
    ]
)
KEYS = {"files": "path", "units": "unit"}
_SAME = (*KEPT_COUNTS, "documents", "path", "bytes", "checksum", "rejects", "form")
_WORK = (*WORK_COUNTS, "run", "device", "damaged", "moved")


def list_values(record: UnitRecord) -> tuple[Any, ...]:
    """Return the values of a record in the order of `MADE`."""
    start, stop = record.range
    values: dict[str, Any] = {name: getattr(record, name) for name in (*_SAME, *_WORK)}
    values |= {"unit": record.unit, "file": record.file or None, "start": start, "stop": stop}
    values |= {name: _from_hex(getattr(record, name)) for name in ("sha256", "rejects_sha256")}
    values |= {name: _to_sum(getattr(record, name)) for name in ("pieces_sum", "documents_sum")}
    return tuple(
        values[name] if name in values else record.measures.get(name) for name in MADE.names
    )


def make_table(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Return rows, each the values in the order of the schema, as a table."""
    tables = [schema.empty_table()]
    waiting = iter(rows)
    while some := list(islice(waiting, ROWS_AT_ONCE)):
        columns = [
            pa.array(values, field.type)
            for values, field in zip(zip(*some, strict=True), schema, strict=True)
        ]
        tables.append(pa.table(columns, schema=schema))
    return pa.concat_tables(tables)


def make_units_table(records: Iterable[UnitRecord]) -> pa.Table:
    """Return the rows of `units` of records, sorted by name."""
    return make_table(map(list_values, records), MADE).select(UNITS.names).sort_by("unit")


def make_records(units: pa.Table) -> list[UnitRecord]:
    """Return the records of rows of `units` or of `made`."""
    return [make_record(row) for row in units.to_pylist()]


def make_record(row: dict[str, Any]) -> UnitRecord:
    """Return the record of a row of `units` or of `made`, as `Table.to_pylist` gives it."""
    values = {name: row[name] for name in _SAME}
    values |= {name: row[name] for name in _WORK if name in row}
    for name in ("damaged", "moved"):
        if name in row:
            values[name] = tuple(row[name])
    measures = {name: row[name] for name in OWN_FIGURES if row.get(name) is not None}
    return UnitRecord(
        unit=row["unit"],
        file=row["file"] or "",
        range=(row["start"], row["stop"]),
        sha256=_to_hex(row["sha256"]),
        rejects_sha256=_to_hex(row["rejects_sha256"]),
        pieces_sum=_from_sum(row["pieces_sum"]),
        documents_sum=_from_sum(row["documents_sum"]),
        measures=measures,
        **values,
    )


def _from_hex(digest: str | None) -> bytes | None:
    return None if digest is None else bytes.fromhex(digest)


def _to_hex(digest: bytes | None) -> str | None:
    return None if digest is None else digest.hex()


def _to_sum(digits: str | None) -> int | None:
    return None if digits is None else int(digits, 16)


def _from_sum(value: int | None) -> str | None:
    return None if value is None else f"{value:016x}"
