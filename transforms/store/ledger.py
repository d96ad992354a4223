"""The ledger: every planned row is written or rejected, every written row has one origin.

The checks are over columns: units that were made (`made` of `tables.columns`) against the spans or
buckets of a plan.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.columns import (
    as_numbers,
    get_column,
    get_numbers,
    look_up,
    sum_by_place,
)
from sentence_beam.transforms.base.errors import LedgerError
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.store.records import WORK_COUNTS
from sentence_beam.transforms.store.tables.names import get_spans, parse_buckets

LEAST_REJECTED = 10  # rows: fewer end no run if others are left
LEAST_UNKNOWN = 100  # tokens: fewer end no run that brings a store up to date
LEAST_UNKNOWN_FIRST = 10  # tokens, of a store's first run
NO_END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Ledger:
    """Sums over all units of a snapshot (`kept`), and over those that the run made (`work`).

    `kept` are the counts that snapshots keep, `written`, `carried` and, if rows are pieces of
    documents, `pieces`. `work` are the other counts, and tokens lost in truncated rows.
    """

    kept: Mapping[str, int] = field(default_factory=dict)
    work: Mapping[str, int] = field(default_factory=dict)

    @property
    def read(self) -> int:
        """The rows of the input, or its documents if these are cut into pieces."""
        return self.kept.get("read", 0)

    @property
    def written(self) -> int:
        """The rows, or documents, that are in a shard."""
        return self.kept.get("written", 0)

    @property
    def rejected(self) -> int:
        """The rows, or documents, that are in none."""
        return self.kept.get("rejected", 0)

    @property
    def pieces(self) -> int | None:
        """The rows of all shards if they are pieces of documents, else None."""
        return self.kept.get("pieces")

    @property
    def carried(self) -> int:
        """The rows of units that are carried over."""
        return self.kept.get("carried", 0)

    def list_work(self, *names: str) -> list[int]:
        """Return some counts of the work."""
        return [self.work.get(name, 0) for name in names]

    @property
    def expected(self) -> int:
        """The rejected rows that are no fault of the input: blank lines and erased rows."""
        return self.kept.get("blank", 0) + self.kept.get("forgotten", 0)

    def to_json(self) -> dict[str, Any]:
        """Return the counts by name."""
        counts = {name: self.kept.get(name, 0) for name in ("read", "written", "rejected")}
        counts |= {name: self.kept.get(name, 0) for name in ("blank", "forgotten", "carried")}
        counts |= {name: self.work.get(name, 0) for name in (*WORK_COUNTS, "lost")}
        counts["truncated_rows"] = self.work.get("truncated", 0)
        return {**counts, "pieces": self.pieces}

    def rejects_too_many(self, share: float) -> bool:
        """Return whether too large a share of the rows was rejected.

        Blank lines of text files and rows that were erased do not count.

        Fewer than LEAST_REJECTED rows are too many only if the share is 0 or no row is left.
        """
        rejected = self.rejected - self.expected
        if rejected <= share * (self.read - self.expected):
            return False
        return rejected >= LEAST_REJECTED or share == 0 or self.written == 0

    def has_too_many_unknown(self, share: float, least: int) -> bool:
        """Return whether at least `least` tokens and more than `share` are unknown.

        In a snapshot without any known token, one unknown token is enough.
        """
        known, unknown, reused = self.list_work("known", "unknown", "reused")
        if not known and not reused and not self.carried:
            least = 1
        return unknown >= least and unknown > share * (known + unknown)

    def check(self) -> None:
        """Raise LedgerError unless the counts add up.

        read = written + rejected, and written = embedded + reused + duplicates + carried.
        """
        if self.read != self.written + self.rejected:
            raise LedgerError(
                f"ledger: {self.read} rows read are not {self.written} written + {self.rejected}"
                " rejected; nothing committed"
            )
        embedded, reused, duplicates = self.list_work("embedded", "reused", "duplicates")
        rows = self.written if self.pieces is None else self.pieces
        what = "rows" if self.pieces is None else "pieces"
        if rows != embedded + reused + duplicates + self.carried:
            raise LedgerError(
                f"ledger: {rows} {what} written are not {embedded} embedded + {reused} reused"
                f" + {duplicates} duplicates + {self.carried} carried; nothing committed"
            )


def check_planned(units: pa.Table, is_planned: np.ndarray) -> None:
    """Raise LedgerError for the first unit that is not planned, by bool [n]."""
    if not is_planned.all():
        unit = units.column("unit")[int(np.argmin(is_planned))]
        raise LedgerError(f"ledger: unit {unit} was never planned; nothing committed")


def check_tiles(planned: pa.Table, made: pa.Table, paths: pa.ChunkedArray) -> None:
    """Raise LedgerError unless the units tile every planned span, in order, with all its rows.

    `planned` is of `planned_spans`, and `paths` are those of the plan's files, for the message.
    """
    at = look_up(get_spans(get_column(made, "unit")), get_column(planned, "name"))
    check_planned(made, at >= 0)
    start = get_numbers(made, "start")
    stop = get_numbers(made, "stop", NO_END)
    # of a document that several units hold, all but the last have an empty range
    order = np.lexsort((stop, start, at))
    at = at[order]
    start = start[order]
    stop = stop[order]
    is_first = np.diff(at, prepend=-1) > 0
    wanted = np.where(is_first, get_numbers(planned, "start")[at], np.roll(stop, 1))
    ends = np.full(len(planned), -1)
    ends[at] = stop  # the last one's stays
    read = sum_by_place(at, len(planned), get_numbers(made, "read")[order])
    rows = get_numbers(planned, "rows", -1)
    is_apart = sum_by_place(at, len(planned), (start != wanted).astype(np.int64)) > 0
    is_open = ends != get_numbers(planned, "stop", NO_END)
    wrong = np.flatnonzero(is_apart | is_open | (rows >= 0) & (read != rows))
    if not len(wrong):
        return
    place = int(wrong[0])
    name = planned.column("name")[place]
    says = f"{read[place]} rows read of {rows[place]} planned in {name}"
    if is_apart[place]:
        unit = made.column("unit")[int(order[np.flatnonzero((at == place) & (start != wanted))[0]])]
        says = f"unit {unit} is doubled or out of place"
    elif is_open[place]:
        says = f"planned unit {name} was not finished"
    file = paths[planned.column("place")[place].as_py()]
    raise LedgerError(f"ledger: {file}: {says}; nothing committed")


def check_buckets(planned: Buckets, here: range, made: pa.Table) -> None:
    """Raise LedgerError unless exactly the buckets `here` are there, whole or in all pieces."""
    bits, bucket, piece = parse_buckets(get_column(made, "unit"))
    check_planned(made, (bits == planned.bits) & (bucket >= here.start) & (bucket < here.stop))
    at = bucket - here.start
    count = len(here)
    whole = sum_by_place(np.where(piece < 0, at, -1), count)
    pieces = sum_by_place(np.where(piece >= 0, at, -1), count)
    apart = np.unique(np.stack([at, piece], 1)[piece >= 0], axis=0)
    distinct = sum_by_place(apart[:, 0], count)
    most = np.zeros(count, np.int64)
    np.maximum.at(most, at, piece + 1)
    is_power = (pieces > 1) & (pieces & (pieces - 1) == 0) & (distinct == pieces)
    is_cut = is_power & (most == pieces)
    wrong = np.flatnonzero(~((whole == 1) & (pieces == 0) | (whole == 0) & is_cut))
    if len(wrong):
        name = planned.name(int(wrong[0]) + here.start)
        raise LedgerError(f"ledger: planned unit {name} was not finished; nothing committed")


def check_bucket_rows(planned: Buckets, read: int) -> None:
    """Raise LedgerError unless the planned number of rows was read."""
    if read != planned.rows:
        raise LedgerError(f"ledger: {read} rows read of {planned.rows} planned; nothing committed")


def check_counted(plan: pa.Table, units: np.ndarray) -> None:
    """Raise LedgerError for a file with bytes whose rows no unit counts, its own or its group's.

    `units` int64 [n] counts the units of each file of the plan, those of a group at its first file.
    A file that was opened and has no row counts none, nor a carried file that had no unit.
    """
    # spans are null for a carried file
    is_rowless = as_numbers(pc.list_value_length(plan.column("spans")), -1) == 0
    group = look_up(plan.column("group"), plan.column("group").unique().drop_null())
    of_group = sum_by_place(group, int(group.max(initial=-1)) + 1, units)
    there = np.where(group < 0, units, np.append(of_group, 0)[group]) > 0
    had_none = get_numbers(plan, "carried") & (get_numbers(plan, "units") == 0) & (group < 0)
    lost = np.flatnonzero((get_numbers(plan, "size") > 0) & ~there & ~is_rowless & ~had_none)
    if len(lost):
        raise LedgerError(
            f"ledger: no unit counts the rows of {plan.column('path')[int(lost[0])]}"
            f" ({len(lost):,} such files); nothing committed"
        )


def check_apart(pieces: int) -> None:
    """Raise LedgerError if a document lacks pieces.

    `pieces` are the sums of the units' pieces less those of their documents, modulo 2**64.
    """
    if pieces % (1 << 64):
        raise LedgerError("ledger: a document lacks pieces or has some twice; nothing committed")


def get_span_name(unit: str) -> str:
    """The name of the span that a unit came from."""
    return unit.partition(".")[0]
