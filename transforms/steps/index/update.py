"""An index brought up to date with its store: what is known of one update, kept in a file for all
of its steps.

The steps, each spread over workers if its line says so:

1. `index_work.choose_work` finds the shards that the index does not know (added) and those that are
   gone (removed).
2. `index_update_rows.read`, for each group of added shards and each segment: texts and ids, by
   bucket of their hash. Where no shard came or went, each segment is only compared with its
   checksums.
3. `index_update_rows.match`, for each bucket: an added row with the text of a removed one takes its
   place, as its vector is the same; the other removed rows are deleted, the other added rows are
   new.
4. `index_update_segments.decide`: which segments stay, which are rewritten, where new rows go.
5. `index_update_segments.build`, for each segment: its file if it is rewritten, its locator if rows
   of it changed.
6. `index_update_recall.conclude`: recall measured again; the manifest's entry, or why the index has
   to be retrained.

A file of the index that is not what was written is never read any further: the index is trained and
built anew from the shards, and those are checked then too.
"""

import functools
import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from transforms.base.entries import JsonEntry
from transforms.index import IndexPlan
from transforms.index.choose import plan_for
from transforms.index.vectors import scored_by
from transforms.steps.index import matching, scratch
from transforms.steps.index.files import Folder
from transforms.steps.index.held_out import KnownQueries
from transforms.store.entries import IndexEntry, IndexRequest, SegmentEntry
from transforms.store.index_files import files as index_files
from transforms.store.index_files import locators
from transforms.store.records import Problem

HELD_OUT = "held-out"
ADDED, REMOVED, STANDING = "added", "removed", "standing"
ShardRows = tuple[str, int, str | None]  # path relative to the store, rows, sha256


@dataclass(frozen=True)
class IndexUpdate(JsonEntry):
    """What is known before any row is read.

    `current` is the manifest's entry of the index to update, `added` the shards that it does not
    know, in groups, `removed` those that are gone, `shards` all that the new snapshot has. `merge`
    asks for one segment; `unit` says that all rows in the index are of length 1.
    """

    current: IndexEntry
    request: IndexRequest
    shards: list[ShardRows]
    added: list[list[str]]
    removed: list[str]
    buckets: int
    merge: bool
    unit: bool

    @property
    def rows(self) -> int:
        """The number of rows of the new snapshot."""
        return sum(rows for _, rows, _ in self.shards)

    @cached_property
    def sha256_of(self) -> dict[str, str | None]:
        """The sha256 of every shard of the new snapshot."""
        return {path: sha256 for path, _, sha256 in self.shards}

    @property
    def is_none(self) -> bool:
        """Whether the index stays as it is: no shard came or went, and there is nothing to
        merge.
        """
        in_lists = sum(segment.kind != HELD_OUT for segment in self.segments.values())
        return not (self.added or self.removed or (self.merge and in_lists > 1))

    @property
    def metric(self) -> str:
        """The metric that scores are computed by, ip or l2."""
        return scored_by(self.current.metric)

    @cached_property
    def segments(self) -> dict[int, SegmentEntry]:
        """The current segments by number."""
        return {segment.number: segment for segment in self.current.segments}

    @property
    def held_out(self) -> SegmentEntry | None:
        """The current held-out segment."""
        return next(
            (segment for segment in self.segments.values() if segment.kind == HELD_OUT), None
        )

    @cached_property
    def added_shards(self) -> tuple[str, ...]:
        """All added shards; rows name them by their place here."""
        return tuple(shard for group in self.added for shard in group)

    @property
    def group_starts(self) -> np.ndarray:
        """Place of each group's first shard in `added_shards`, and the end: int64 [groups + 1]."""
        return np.cumsum([0, *(len(group) for group in self.added)])


@dataclass(frozen=True)
class IndexUpdateJob:
    """Store, run, dimension and the index's metric: if the steps of an update find everything
    else.
    """

    root: str
    run: str
    dim: int
    metric: str

    @property
    def folder(self) -> Folder:
        """The files that the steps read and write."""
        return Folder(self.root, self.run, "update", self.metric)

    def update(self) -> IndexUpdate:
        """The update that `begin` put on record; a process reads it once."""
        return _on_record(self)

    def plan(self, update: IndexUpdate) -> IndexPlan:
        """The plan by which the current index was trained."""
        return plan_for(update.current.factory, update.rows, self.dim, update.metric)

    def known_queries(self, update: IndexUpdate) -> KnownQueries:
        """The held-out texts whose true neighbours were known before this update."""
        named = update.current.queries
        return KnownQueries.from_bytes(
            index_files.read(self.folder.stored(named.path), named.sha256)
        )


@functools.lru_cache(1)
def _on_record(job: IndexUpdateJob) -> IndexUpdate:
    return job.folder.parsed(scratch.PLAN, lambda data: IndexUpdate.from_json(json.loads(data)))


def begin(job: IndexUpdateJob, update: IndexUpdate) -> list[tuple[str, int]]:
    """Put the update on record; what has to be read: groups of added shards, segments that rows may
    be gone from.

    Where the index stays as it is, its segments are read to see whether they are what was written.
    """
    job.folder.put(scratch.PLAN, json.dumps(update.to_json(), sort_keys=True).encode())
    if update.is_none:
        return [(STANDING, number) for number in update.segments]
    job.folder.leave(scratch.WAS_CROWDED, job.known_queries(update).crowded)
    added = [(ADDED, group) for group in range(len(update.added))]
    return [*added, *((REMOVED, number) for number in update.segments)]


@dataclass(frozen=True)
class Reading:
    """How the reading of rows ended: as it should, or with a damaged file of the last index, or a
    damaged shard.
    """

    damaged: str | None = None
    problem: Problem | None = None


@dataclass(frozen=True)
class SegmentState:
    """A current segment as it is after the rows were matched."""

    job: IndexUpdateJob
    update: IndexUpdate
    segment: SegmentEntry

    @cached_property
    def _moves(self) -> pa.Table:
        place = list(self.update.segments).index(self.segment.number)
        folder = self.job.folder
        buckets = range(self.update.buckets)
        found = [folder.tables(scratch.moved(bucket), matching.MOVED, place) for bucket in buckets]
        return pa.concat_tables([table for (table,) in found])

    @property
    def touched(self) -> bool:
        """Whether any of its rows moved or was deleted."""
        return len(self._moves) > 0

    @cached_property
    def table(self) -> pa.Table:
        """Its locator, with the moves in it."""
        return moved(
            self.update, locators.from_bytes(self.job.folder.locator(self.segment)), self._moves
        )

    @cached_property
    def keep(self) -> np.ndarray:
        """bool [n], False if a row is deleted."""
        if not self.touched and not self.segment.deleted:
            return np.ones(self.segment.rows, bool)
        return self.table.column("shard").is_valid().to_numpy()


def moved(update: IndexUpdate, locator: pa.Table, moves: pa.Table) -> pa.Table:
    """A locator with the places that matching found for its rows."""
    if not len(moves):
        return locator
    local, shard, row = (moves.column(name).to_numpy() for name in ("local", "shard", "row"))
    ids = moves.column("id").combine_chunks()
    return locators.moved(locator, locators.Moves(local, shard, row, ids, update.added_shards))
