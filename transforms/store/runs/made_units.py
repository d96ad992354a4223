"""Units on their way to the commit: as tuples of values, then as one table a stretch of names."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow_arrays import make_mask_array, read_stream, write_stream
from sentence_beam.transforms.base.columns import get_column, look_up
from sentence_beam.transforms.base.errors import LedgerError
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.tables.names import STRETCHES, find_stretch
from sentence_beam.transforms.store.tables.table_columns import MADE, list_values, make_table

ROWS_AT_ONCE = 100_000  # that are checked together, however many tables they came in


def assign_stretch(unit: UnitRecord) -> tuple[int, tuple[Any, ...]]:
    """Return the stretch of a unit, and the unit as plain values."""
    return find_stretch(unit.unit), list_values(unit)


def pack(rows: Iterable[Sequence[Any]]) -> bytes:
    """Return the units of one stretch, sorted by name, each once, as an Arrow stream.

    Raises LedgerError for two different units of one name.
    """
    return write_stream(drop_repeated(make_table(rows, MADE)).sort_by("unit").combine_chunks())


def drop_repeated(made: pa.Table) -> pa.Table:
    """Return each unit once: an engine delivers one twice if it retries a bundle.

    Raises LedgerError for two different units of one name.
    """
    names = get_column(made, "unit")
    first = look_up(names, names)
    is_again = make_mask_array(first != np.arange(len(made)))
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


def join_stretches(made: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, int, pa.Table]]:
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
        table = read_stream(data)
        if sum(map(len, tables)) + len(table) > ROWS_AT_ONCE:
            yield first, number, pa.concat_tables(tables)
            first = number
            tables = [MADE.empty_table()]
        tables.append(table)
        before = number
    yield first, STRETCHES, pa.concat_tables(tables)
