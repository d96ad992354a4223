"""Settling: the tables of the next snapshot, of the units of a run and of the last snapshot.

Every planned unit must be there exactly once. A unit that is carried over never travels: it is read
from the parts of the last snapshot, some rows at a time, and parts without a change are kept as
they are.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow_arrays import make_mask_array
from sentence_beam.transforms.base.columns import (
    get_column,
    get_numbers,
    is_valid,
    look_up,
    take_rows_at,
    texts,
)
from sentence_beam.transforms.base.errors import LedgerError
from sentence_beam.transforms.base.measures import Summary
from sentence_beam.transforms.corpus.files import make_key
from sentence_beam.transforms.store.entries import TableEntry, TablePart
from sentence_beam.transforms.store.ledger import (
    check_apart,
    check_bucket_rows,
    check_buckets,
    check_counted,
    check_planned,
    check_tiles,
)
from sentence_beam.transforms.store.runs.made_units import join_stretches
from sentence_beam.transforms.store.runs.recorded_plan import ALL, RecordedPlan
from sentence_beam.transforms.store.runs.run_sums import Sums, Tally
from sentence_beam.transforms.store.tables.file_rows import count_units, set_counts
from sentence_beam.transforms.store.tables.names import (
    KEY_DIGITS,
    STRETCHES,
    Owners,
    find_stretches,
    format_keys,
    list_buckets,
)
from sentence_beam.transforms.store.tables.table_columns import FILE_COUNTS, FILES, UNITS
from sentence_beam.transforms.store.tables.table_parts import (
    PartWriter,
    read_in_turns,
    select_parts,
)

ROWS_AT_ONCE = 100_000  # of `files`, to be cut into parts
NOTHING = TableEntry()


@dataclass(frozen=True)
class Settled:
    """The tables of the next snapshot, checked, and the sums over its units.

    `measures` are those of the units' work, `ms` is the time of settling.
    """

    files: TableEntry
    units: TableEntry
    tally: Tally
    measures: dict[str, Summary]
    ms: float = 0.0


def settle_units(
    root: str,
    run: str,
    plan: RecordedPlan,
    made: Iterable[tuple[int, bytes]],
    last: tuple[TableEntry, TableEntry] = (NOTHING, NOTHING),
) -> Settled:
    """Write the parts of the next snapshot's tables, and return them with all sums.

    `made` are the packed units of this run by stretch, `last` the tables `files` and `units` of the
    last snapshot. Raises LedgerError if anything does not add up.
    """
    return _Settling(root, run, plan, last).settle(made)


class _Settling:
    def __init__(
        self, root: str, run: str, plan: RecordedPlan, last: tuple[TableEntry, TableEntry]
    ):
        self._root = root
        self._plan = plan
        self._files = plan.files
        self._last_files, self._last_units = last
        self._buckets = plan.notes.buckets
        self._replaces = plan.notes.replaces
        self._owners = Owners(self._files.column("path"), self._files.column("group"))
        has_own_name = ~is_valid(self._files, "was")
        # the last place is that of units which no file of the plan has
        self._stays = np.append(get_numbers(self._files, "carried") & has_own_name, False)
        self._counts = {name: np.zeros(len(self._files), np.int64) for name in FILE_COUNTS}
        self._sums = Sums(run)
        self._writer = PartWriter(root, "units", self._last_units)

    def settle(self, made: Iterable[tuple[int, bytes]]) -> Settled:
        new = self._collect_new_units(made)
        waiting = UNITS.empty_table()
        # if all buckets are made anew, no unit of the last snapshot stays
        old = NOTHING if self._buckets is not None and not self._replaces else self._last_units
        for parts, rows in read_in_turns(self._root, old, UNITS.names):
            bound = None if parts[-1] is self._last_units.parts[-1] else parts[-1].last
            waiting, before = _split_at(bound, waiting, new)
            self._take_turn(parts, rows, before)
        for some in (waiting, *new):
            self._take_turn([], UNITS.empty_table(), some)
        units = self._writer.end()
        tally = self._check_sums()
        return Settled(self._write_files(), units, tally, self._sums.measures)

    def _take_turn(self, parts: list[TablePart], rows: pa.Table, new: pa.Table) -> None:
        """Take some units of the last snapshot, those that are carried, and new ones among them."""
        stays = self._find_staying(get_column(rows, "unit"))
        if self._replaces:
            stays &= ~self._find_replaced(rows, new)
        carried = rows.filter(make_mask_array(stays)) if not stays.all() else rows
        carried = self._update_checksums(carried)
        self._sums.add_carried(carried)
        both = pa.concat_tables([carried, new]).sort_by("unit") if len(new) else carried
        self._sums.add_units(both)
        self._count(both)
        if parts and both is rows:
            self._writer.keep(parts, rows)
        else:
            self._writer.add(both)

    def _find_staying(self, names: pa.StringArray) -> np.ndarray:
        """Return which units of the last snapshot are carried over, bool [n]."""
        if self._replaces:
            return np.ones(len(names), bool)
        if self._buckets is not None:
            return np.zeros(len(names), bool)
        return self._stays[self._owners.of(names)]

    def _find_replaced(self, rows: pa.Table, new: pa.Table) -> np.ndarray:
        """Return which units make way for new ones of their names, bool [n].

        Raises LedgerError unless these have the same rows of the input.
        """
        at = look_up(new.column("unit"), rows.column("unit"))
        before = take_rows_at(rows, at)
        is_same = at >= 0
        for name in ("start", "stop", "read"):
            is_same &= get_numbers(new, name, -1) == get_numbers(before, name, -1)
        check_planned(new, is_same)
        is_replaced = np.zeros(len(rows), bool)
        is_replaced[at] = True
        if self._replaces == ALL and not is_replaced.all():
            unit = rows.column("unit")[int(np.argmin(is_replaced))]
            raise LedgerError(f"ledger: planned unit {unit} was not finished; nothing committed")
        return is_replaced

    @cached_property
    def _checksums(self) -> tuple[pa.Array, pa.Array]:
        """Units whose shards have another checksum in the listing than in their record, and it."""
        pairs = get_column(self._files, "checksums").flatten()
        return pc.struct_field(pairs, [0]), pc.struct_field(pairs, [1])

    def _update_checksums(self, units: pa.Table) -> pa.Table:
        """Return units with the checksums of the listing; the same table if none differs."""
        names, checksums = self._checksums
        at = look_up(units.column("unit"), names)
        if not (at >= 0).any():
            return units
        current = pc.coalesce(
            take_rows_at(pa.table({"new": checksums}), at)["new"], units["checksum"]
        )
        place = units.schema.get_field_index("checksum")
        return units.set_column(place, UNITS.field("checksum"), current)

    def _collect_new_units(self, made: Iterable[tuple[int, bytes]]) -> Iterator[pa.Table]:
        """Yield made and renamed units, sorted, once they were checked against the plan."""
        has_spans = not self._replaces and self._buckets is None
        planned = _ByStretch(self._plan.spans, "name") if has_spans else None
        renamed = _ByStretch(self._rename_units(), "unit")
        for first, after, here in join_stretches(made):
            if self._buckets is not None and not self._replaces:
                buckets = list_buckets(first, after, self._buckets.bits)
                check_buckets(self._buckets, buckets, here)
            elif planned is not None:
                check_tiles(planned.rows(first, after), here, self._files.column("path"))
            self._sums.add_made(here)
            moved = renamed.rows(first, after)
            self._sums.add_carried(moved)
            if len(here) or len(moved):
                yield pa.concat_tables([here.select(UNITS.names), moved]).sort_by("unit")

    def _rename_units(self) -> pa.Table:
        """Return the units of carried files with another name now, under that one; sorted."""
        is_renamed = pc.and_(self._files.column("carried"), self._files.column("was").is_valid())
        files = self._files.filter(is_renamed)
        if not len(files):
            return UNITS.empty_table()
        was = files.column("was")
        order = pc.sort_indices(was)
        files = files.take(order)
        owners = Owners(files.column("was"), pa.nulls(len(files), pa.string()))
        keys = np.sort(np.array(format_keys(was).to_pylist()))
        tables = [UNITS.empty_table()]
        for _, rows in read_in_turns(self._root, select_parts(self._last_units, keys), UNITS.names):
            at = owners.of(get_column(rows, "unit"))
            carried = self._update_checksums(rows.filter(make_mask_array(at >= 0)))
            paths = get_column(files, "path").take(pa.array(at[at >= 0]))
            tables.append(rename_units(carried, paths))
        return pa.concat_tables(tables).sort_by("unit")

    def _count(self, units: pa.Table) -> None:
        """Add units to the counts of their files."""
        if self._buckets is not None:
            return
        for name, values in count_units(self._owners, len(self._files), units).items():
            self._counts[name] += values

    def _check_sums(self) -> Tally:
        """Return all sums. Raises LedgerError unless they add up."""
        if self._buckets is None:
            self._check_carried_files()
        tally = self._sums.tally()
        tally.ledger.check()
        check_apart(int(self._sums.pieces_apart[0]))
        if self._buckets is not None:
            check_bucket_rows(self._buckets, tally.ledger.read)
        return tally

    def _check_carried_files(self) -> None:
        """Raise LedgerError unless carried files have the units and rows that the plan has."""
        is_carried = get_numbers(self._files, "carried")
        # a run that replaces units may leave rows out
        names = ("units", "read") if self._replaces else FILE_COUNTS
        for name in names:
            differs = is_carried & (self._counts[name] != get_numbers(self._files, name))
            if differs.any():
                path = self._files.column("path")[int(np.argmax(differs))]
                raise LedgerError(
                    f"ledger: the units of {path}, which is carried over, are not those of the"
                    " plan; nothing committed"
                )
        check_counted(self._files, self._counts["units"])

    def _write_files(self) -> TableEntry:
        """Write the table `files`, with the counts of the units."""
        files = set_counts(self._files.select(FILES.names), self._counts)
        writer = PartWriter(self._root, "files", self._last_files)
        for start in range(0, len(files), ROWS_AT_ONCE):
            writer.add(files.slice(start, ROWS_AT_ONCE))
        return writer.end()


class _ByStretch:
    """A table whose rows are in the order of their stretches."""

    def __init__(self, table: pa.Table, name: str):
        self._table = table
        stretches = find_stretches(get_column(table, name))
        self._starts = np.searchsorted(stretches, np.arange(STRETCHES + 1))

    def rows(self, first: int, after: int) -> pa.Table:
        """Return the rows of stretches from `first` to before `after`."""
        start = int(self._starts[first])
        return self._table.slice(start, int(self._starts[after]) - start)


def _split_at(
    bound: str | None, waiting: pa.Table, new: Iterator[pa.Table]
) -> tuple[pa.Table, pa.Table]:
    """Return the new units after a bound that were read already, and all up to it."""
    before = []
    while True:
        count = len(waiting)
        if bound is not None and count:
            count = pc.sum(pc.less_equal(waiting.column("unit"), bound)).as_py()
        before.append(waiting.slice(0, count))
        waiting = waiting.slice(count)
        more = next(new, None) if not len(waiting) else None
        if more is None:
            return waiting, pa.concat_tables(before)
        waiting = more


def rename_units(units: pa.Table, paths: pa.Array) -> pa.Table:
    """Return units under the names that they have in other files; their shards keep theirs."""
    names = [
        make_key(path) + name[KEY_DIGITS:]
        for name, path in zip(units.column("unit").to_pylist(), paths.to_pylist(), strict=True)
    ]
    units = units.set_column(0, UNITS.field("unit"), texts(names))
    return units.set_column(1, UNITS.field("file"), paths)
