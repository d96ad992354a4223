"""Units on their way to the commit: as tuples of values, then as one table a stretch of names."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow_arrays import mask_array, stream_bytes, stream_table
from sentence_beam.transforms.base.columns import column, lookup
from sentence_beam.transforms.base.errors import LedgerError
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.tables.names import STRETCHES, stretch_of
from sentence_beam.transforms.store.tables.table_columns import MADE, rows_table, values_of

ROWS_AT_ONCE = 100_000  # that are checked together, however many tables they came in


def by_stretch(unit: UnitRecord) -> tuple[int, tuple[Any, ...]]:
    """Return the stretch of a unit, and the unit as plain values."""
    return stretch_of(unit.unit), values_of(unit)


def pack(rows: Iterable[Sequence[Any]]) -> bytes:
    """Return the units of one stretch, sorted by name, each once, as an Arrow stream.

    Raises LedgerError for two different units of one name.
    """
    return stream_bytes(once(rows_table(rows, MADE)).sort_by("unit").combine_chunks())


def once(made: pa.Table) -> pa.Table:
    """Return each unit once: an engine delivers one twice if it retries a bundle.

    Raises LedgerError for two different units of one name.
    """
    names = column(made, "unit")
    first = lookup(names, names)
    is_again = mask_array(first != np.arange(len(made)))
    twice = made.filter(is_again)
    before = made.take(pa.array(first)).filter(is_again)
    for name in ("path", "sha256", "start", "stop"):
        both_null = pc.and_(twice.column(name).is_null(), before.column(name).is_null())
        alike = pc.coalesce(pc.equal(twice.column(name), before.column(name)), both_null)
        if not pc.all(alike, min_count=0).as_py():
            unit = twice.column("unit")[pc.index(alike, False).as_py()]
            raise LedgerError(
                f"ledger: unit {unit} was written twice with different rows; nothing committed"
            )
    return made.filter(pc.invert(is_again))


def together(made: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, int, pa.Table]]:
    """Yield (first stretch, the one after the last, their units), some ROWS_AT_ONCE together.

    `made` are stretches with their packed units, in any order. All stretches are yielded, with
    units or not. Raises LedgerError if a stretch came twice.
    """
    first = 0
    before = -1
    tables = [MADE.empty_table()]
    for number, data in sorted(made):
        if number == before:
            raise LedgerError(f"ledger: part {number} of the units came twice; nothing committed")
        table = stream_table(data)
        if sum(map(len, tables)) + len(table) > ROWS_AT_ONCE:
            yield first, number, pa.concat_tables(tables)
            first = number
            tables = [MADE.empty_table()]
        tables.append(table)
        before = number
    yield first, STRETCHES, pa.concat_tables(tables)
