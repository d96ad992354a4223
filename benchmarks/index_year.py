"""A year of nights of an index by lists, by counting: the bytes written and the segments left.

    python -m benchmarks.index_nights --year [--rows 1000000000] [--dim 384] [--changed 0.01]

Each night some rows, chosen by chance, are edited: each leaves its segment, and comes back as a new
row of any list. `decision_of`, which a run calls, decides on these counts what is written; no file
is. Bytes are those of the segments' rows, without locators.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from sentence_beam.transforms.index import IndexPlan
from sentence_beam.transforms.index.choose import cut_lists
from sentence_beam.transforms.steps.index.files import SEGMENT_ROWS, most_rows
from sentence_beam.transforms.steps.index.update import IndexUpdate
from sentence_beam.transforms.steps.index.update_decision import (
    MatchedRows,
    TargetSegment,
    decision_of,
)
from sentence_beam.transforms.store.index_entries import IndexEntry, IndexRequest, SegmentEntry


@dataclass(frozen=True)
class Night:
    """The rows that a night writes, those it copies among them, and what it leaves behind.

    `written` and `ranges` are the ranges written and all ranges; `waiting` is the share of the rows
    in deltas.
    """

    rows: int
    copied: int
    written: int
    ranges: int
    deltas: int
    waiting: float


@dataclass(frozen=True)
class Counted:
    """A segment and its live rows in each range of lists, int64 [ranges]."""

    entry: SegmentEntry
    live: np.ndarray

    def at(self, live: np.ndarray) -> Counted:
        """Return the same file with fewer live rows."""
        deleted = self.entry.rows - int(live.sum())
        return Counted(replace(self.entry, deleted=deleted), live)


class Year:
    """The segments of an index of `rows` rows, night after night, each with `changed` edited."""

    def __init__(self, plan: IndexPlan, rows: int, changed: float, seed: int = 1):
        self._plan, self._changed = plan, changed
        self._chance = np.random.default_rng(seed)
        sizes = np.full(plan.nlist, rows // plan.nlist)
        cuts = cut_lists(sizes, plan)
        self._firsts = np.array([first for first, _ in cuts])
        self._most_rows = most_rows(plan, rows, False)
        self._segments = {}
        for number, lists in enumerate(cuts):
            live = np.zeros(len(cuts), np.int64)
            live[number] = sizes[slice(*lists)].sum()
            self._segments[number] = self._made(number, "base", live, lists)

    def nights(self, count: int) -> Iterator[Night]:
        """Yield that many nights, one after the other."""
        for _ in range(count):
            yield self._night()

    def _night(self) -> Night:
        edited = {
            number: self._chance.binomial(one.live, self._changed)
            for number, one in self._segments.items()
        }
        new = int(sum(rows.sum() for rows in edited.values()))
        update, groups = self._update(new)
        deleted = {number: int(rows.sum()) for number, rows in edited.items()}
        counts = MatchedRows(deleted, dict(enumerate(groups)))
        targets = decision_of(update, counts, self._most_rows).targets
        self._segments = self._after(targets, edited, groups)
        made = [one for number, one in self._segments.items() if number > max(deleted)]
        every = [one.entry for one in self._segments.values()]
        deltas = [entry for entry in every if entry.kind == "delta"]
        rows = sum(one.entry.rows for one in made)
        return Night(
            rows=rows,
            copied=rows - new,
            written=sum(one.entry.kind == "base" for one in made),
            ranges=len(every) - len(deltas),
            deltas=len(deltas),
            waiting=sum(entry.live for entry in deltas) / sum(entry.live for entry in every),
        )

    def _update(self, new: int) -> tuple[IndexUpdate, list[int]]:
        """Return the update for so many new rows, and the rows of its groups."""
        groups = [SEGMENT_ROWS] * (new // SEGMENT_ROWS) + [new % SEGMENT_ROWS]
        plan = self._plan
        index = IndexEntry(
            tuple(one.entry for one in self._segments.values()), plan.factory, plan.metric,
            IndexRequest(), None, nprobe=plan.nprobe, rerank=plan.rerank, rows=0, layout="lists",
        )  # fmt: skip
        added = [[f"shard{number}"] for number in range(len(groups))]
        update = IndexUpdate(
            index, IndexRequest(), [], added, [], buckets=1, merge=False, unit=True
        )
        return update, groups

    def _after(
        self, targets: tuple[TargetSegment, ...], edited: dict[int, np.ndarray], groups: list[int]
    ) -> dict[int, Counted]:
        """Return the segments that a decision leaves."""
        live = {number: one.live - edited[number] for number, one in self._segments.items()}
        found, listed = {}, np.zeros(len(self._firsts), np.int64)
        merged: dict[int, tuple[int, int]] = {}
        for target in targets:
            taken = self._columns(target.lists)
            if target.listed:
                for number in target.sources:
                    listed += live[number] * (taken | (not target.lists))
                    merged |= self._bounds(number)
                listed += self._new_rows(groups, target.groups)
                continue
            rows = sum((live[number] * ~taken for number in target.sources), np.zeros_like(listed))
            rows = rows + self._new_rows(groups, target.groups)
            if not target.rewrite:
                found[target.number] = self._segments[target.number].at(rows)
            elif rows.sum():
                found[target.number] = self._made(target.number, target.kind, rows)
        number = max([*self._segments, *found])
        for column, lists in merged.items():
            number += 1
            mine = np.where(np.arange(len(listed)) == column, listed, 0)
            found[number] = self._made(number, "base", mine, lists)
        assert sum(int(one.live.sum()) for one in found.values()) == sum(
            int(rows.sum()) for rows in live.values()
        ) + sum(groups)
        return found

    def _columns(self, lists: tuple[tuple[int, int], ...]) -> np.ndarray:
        """Return which ranges lie in these lists, bool [ranges]."""
        found = np.zeros(len(self._firsts), bool)
        for first, stop in lists:
            found |= (self._firsts >= first) & (self._firsts < stop)
        return found

    def _bounds(self, number: int) -> dict[int, tuple[int, int]]:
        """Return the lists of a segment that is a range, by its place; {} for a delta."""
        lists = self._segments[number].entry.lists
        if lists is None:
            return {}
        return {int(np.searchsorted(self._firsts, lists[0])): lists}

    def _new_rows(self, groups: list[int], numbers: tuple[int, ...]) -> np.ndarray:
        """Return the new rows of some groups in each range, which have as many lists each."""
        rows = sum(groups[number] for number in numbers)
        ends = [*self._firsts[1:], self._plan.nlist]
        shares = (np.array(ends) - self._firsts) / self._plan.nlist
        return self._chance.multinomial(rows, shares)

    def _made(
        self, number: int, kind: str, live: np.ndarray, lists: tuple[int, int] | None = None
    ) -> Counted:
        entry = SegmentEntry(number, kind, int(live.sum()), 0, "", "", 0, "", "", lists=lists)
        return Counted(entry, live)
