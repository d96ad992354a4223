"""Records of units, made up."""

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.tables.table_columns import MADE, list_values, make_table


def unit_record(rows: int, **values: object) -> UnitRecord:
    """A unit of a file of text with so many rows, none rejected, and other values as they are
    given.
    """
    made = UnitRecord(
        path=None,
        unit="a-0",
        file="a.txt",
        range=(0, 100),
        rows=rows,
        read=rows,
        rejected=0,
        rejects=None,
        tokens=9,
        truncated=0,
        lost=0,
        bytes=1,
        sha256=None,
    )
    return replace(made, **values)  # type: ignore[arg-type]


def made_table(units: Iterable[UnitRecord]) -> pa.Table:
    """The rows of `made` of some units."""
    return make_table(map(list_values, units), MADE)
