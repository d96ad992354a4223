"""Rows of units as records and back, and the columns that follow from the counts of a record."""

from dataclasses import fields

import pyarrow as pa
import pytest
from helpers.unit_records import made_table, unit_record

from sentence_beam.transforms.store.records import KEPT_COUNTS, WORK_COUNTS, UnitRecord
from sentence_beam.transforms.store.tables import table_columns
from sentence_beam.transforms.store.tables.table_columns import (
    MADE,
    UNITS,
    list_values,
    make_records,
    make_table,
    make_units_table,
)

NAME = "0123456789abcdef-000000000000"
COUNTS = {name: 3 + place for place, name in enumerate((*KEPT_COUNTS, *WORK_COUNTS))}
FULL = UnitRecord(
    unit=NAME,
    file="a/ü.txt",
    range=(5, 99),
    path=f"embeddings/{NAME}-{'0' * 16}.parquet",
    rejects=f"rejects/{NAME}-{'0' * 16}.parquet",
    sha256="5" * 64,
    rejects_sha256="6" * 64,
    checksum="crc",
    bytes=7,
    documents=2,
    pieces_sum="ffffffffffffffff",
    documents_sum="0000000000000001",
    form="7" * 16,
    run="run1",
    device="cpu",
    damaged=("embeddings/x.parquet",),
    moved=(0.5, 1e30),
    measures={"read_ms": 1.5, "forward_ms": 20.25},
    **COUNTS,
)
EMPTY = unit_record(0, unit="3-5.1", file="", range=(0, None), bytes=0)


@pytest.mark.parametrize("record", [FULL, EMPTY])
def test_a_record_comes_back_from_its_row(record: UnitRecord) -> None:
    (found,) = make_records(made_table([record]))
    assert found == record
    assert (found.moved, found.measures) == (record.moved, record.measures)
    assert (found.device, found.damaged) == (record.device, record.damaged)


def test_a_snapshot_keeps_no_work() -> None:
    (found,) = make_records(make_units_table([FULL]))
    assert {name: getattr(found, name) for name in WORK_COUNTS} == dict.fromkeys(WORK_COUNTS, 0)
    assert (found.run, found.device, found.measures, found.damaged) == ("", "", {}, ())
    kept = {*KEPT_COUNTS, "path", "rejects", "sha256", "rejects_sha256", "checksum", "form"}
    kept |= {"unit", "file", "range", "bytes", "documents", "pieces_sum", "documents_sum"}
    for name in kept:
        assert getattr(found, name) == getattr(FULL, name)


def test_every_field_of_a_record_has_a_column_or_stays_in_its_sidecar() -> None:
    names = {item.name for item in fields(UnitRecord)}
    apart = {"range", "carried", "worker", "measures"}
    assert names - apart == {*MADE.names} & names
    assert {*UNITS.names} - names == {"start", "stop"}


def test_a_row_is_the_values_in_the_order_of_the_schema() -> None:
    values = dict(zip(MADE.names, list_values(FULL), strict=True))
    assert (values["start"], values["stop"], values["sha256"]) == (5, 99, bytes.fromhex("5" * 64))
    assert values["pieces_sum"] == 2**64 - 1
    assert dict(zip(MADE.names, list_values(EMPTY), strict=True))["file"] is None


@pytest.mark.parametrize("count", [0, 1, 3, 4, 10])
def test_many_rows_are_made_some_at_a_time(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_columns, "ROWS_AT_ONCE", 3)
    rows = [(n, str(n)) for n in range(count)]
    schema = pa.schema([("number", pa.int64()), ("text", pa.string())])
    found = make_table(iter(rows), schema)
    assert found.schema == schema
    assert [tuple(row.values()) for row in found.to_pylist()] == rows


def test_units_are_sorted_by_name() -> None:
    units = [unit_record(n, unit=f"{n:016x}-{0:012d}") for n in (3, 1, 2)]
    assert make_units_table(units)["rows"].to_pylist() == [1, 2, 3]
