"""An index update: the facts that all of its steps need, kept in a file.

The steps; those "for each" are spread over workers:

1. `index_work.choose_work` finds the shards that the index does not know (added) and those that are
missing (removed).

2. `index_update_rows.read`, for each group of added shards and each segment: texts and ids, sent
to the bucket of their hash (`exchange`). If no shard was added or removed, each segment is only
compared with its checksums.

3. `index_update_rows.match`, for each bucket: an added row with the text of a removed one takes its
place, since its vector is the same; the other removed rows are deleted, the other added rows are
new. They are sent to their segments and groups.

4. `index_update_decision.decide`: which segments stay, which are rewritten, which take the new
rows, and which rows go into ranges of lists. A delta may give the rows of some lists to ranges and
keep the others.

5. `index_update_segments.build`, for each segment: its file if it is rewritten, its locator if rows
of it changed.

6. `index_update_ranges.cut`, if segments are merged into ranges of lists, whose rows `build` has
left by list: the ranges to write; and `index_update_ranges.write`, for each of them.

7. `index_update_recall.conclude`: recall is measured again; the manifest's entry, or why the index
has to be retrained.

A damaged segment is made again alone, from the shards. If another file of the index is damaged, or
the segment cannot be made, the index is trained and built again from the shards, which are checked
then too.
"""

import functools
import json
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base.entries import JsonEntry
from sentence_beam.transforms.index import IndexPlan
from sentence_beam.transforms.index.choose import plan_for
from sentence_beam.transforms.index.segment import rows_by_list
from sentence_beam.transforms.index.vectors import scored_by
from sentence_beam.transforms.steps.index import matching, scratch
from sentence_beam.transforms.steps.index.files import Folder
from sentence_beam.transforms.steps.index.held_out import KnownQueries
from sentence_beam.transforms.store.index_entries import IndexEntry, IndexRequest, SegmentEntry
from sentence_beam.transforms.store.index_files import files as index_files
from sentence_beam.transforms.store.index_files import locators
from sentence_beam.transforms.store.records import Problem

DELTA = "delta"
HELD_OUT = "held-out"
ADDED = "added"
REMOVED = "removed"
STANDING = "standing"
ShardRows = tuple[str, int, str | None]  # path relative to the store, rows, sha256


@dataclass(frozen=True)
class IndexUpdate(JsonEntry):
    """The facts that are known before any row is read.

    `current` is the manifest's entry of the index to update, `added` the shards that it does not
    know, in groups, `removed` those that are missing, `shards` all that the new snapshot has.
    `merge` asks for one segment; `unit` says that all rows in the index are of length 1.
    `checksums` are the storage's for the added shards, "" if it has none.
    """

    current: IndexEntry
    request: IndexRequest
    shards: list[ShardRows]
    added: list[list[str]]
    removed: list[str]
    buckets: int
    merge: bool
    unit: bool
    checksums: dict[str, str] = field(default_factory=dict)

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
        """Whether the index stays: no shard was added or removed, nothing to merge."""
        return not (self.added or self.removed or (self.merge and not self.is_merged))

    @property
    def has_lists(self) -> bool:
        """Whether the index has lists, so that its base can be cut into ranges of them."""
        return self.current.spec.lists > 0

    @property
    def is_by_lists(self) -> bool:
        """Whether the base of the current index is cut into ranges of lists."""
        return self.current.layout is not None

    @property
    def is_merged(self) -> bool:
        """Whether the current segments cannot be merged further."""
        base = [segment for segment in self.segments.values() if segment.kind != HELD_OUT]
        if self.has_lists:
            return all(segment.lists for segment in base)
        return len(base) <= 1

    @property
    def metric(self) -> str:
        """The metric of the scores, ip or l2."""
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
        """The place of each group's first shard in `added_shards`, and the end.

        int64 [groups + 1].
        """
        return np.cumsum([0, *(len(group) for group in self.added)])


@dataclass(frozen=True)
class IndexUpdateJob:
    """Store, run, dimension and metric, by which the steps of an update find the rest.

    `repaired` says that damaged segments of the last index have been made again.
    """

    root: str
    run: str
    dim: int
    metric: str
    repaired: bool = False

    @property
    def folder(self) -> Folder:
        """The files that the steps read and write."""
        return Folder(self.root, self.run, "update", self.metric)

    @property
    def plan_name(self) -> str:
        """The name of the file with the update."""
        if self.repaired:
            return scratch.REPAIRED_PLAN
        return scratch.PLAN

    def record(self, update: IndexUpdate) -> None:
        """Record the update for the steps."""
        self.folder.put(self.plan_name, json.dumps(update.to_json(), sort_keys=True).encode())

    def update(self) -> IndexUpdate:
        """Return the update that `begin` recorded; a process reads it once."""
        return _on_record(self)

    def plan(self, update: IndexUpdate) -> IndexPlan:
        """Return the plan by which the current index was trained."""
        return plan_for(update.current.spec, update.rows, self.dim, update.metric)

    def known_queries(self, update: IndexUpdate) -> KnownQueries:
        """Return the held-out texts whose true neighbours are known already."""
        named = update.current.queries
        return KnownQueries.from_bytes(
            index_files.read(self.folder.stored(named.path), named.sha256)
        )


@functools.lru_cache(1)
def _on_record(job: IndexUpdateJob) -> IndexUpdate:
    return job.folder.parsed(job.plan_name, lambda data: IndexUpdate.from_json(json.loads(data)))


def begin(job: IndexUpdateJob, update: IndexUpdate) -> list[tuple[str, int]]:
    """Record the update, and return the groups of added shards and the segments to read.

    If the index stays, its segments are read to check them.
    """
    job.record(update)
    if update.is_none:
        return [(STANDING, number) for number in update.segments]
    job.folder.leave(scratch.WAS_CROWDED, job.known_queries(update).crowded)
    added = [(ADDED, group) for group in range(len(update.added))]
    return [*added, *((REMOVED, number) for number in update.segments)]


@dataclass(frozen=True)
class Repair:
    """A segment that was made again, and the line that names its damaged file."""

    segment: SegmentEntry
    why: str


@dataclass(frozen=True)
class Reading:
    """The end of a reading: sound, a damaged file of the last index, or a damaged shard.

    `repair` is a segment that was damaged and has been made again.
    """

    damaged: str | None = None
    problem: Problem | None = None
    repair: Repair | None = None


@dataclass(frozen=True)
class SegmentState:
    """A current segment after the rows were matched.

    If `lists` are given, runs [first, stop), its rows are divided: it has only those of these lists
    if they are `taken`, otherwise only those of other lists. The others count as deleted.
    """

    job: IndexUpdateJob
    update: IndexUpdate
    segment: SegmentEntry
    lists: tuple[tuple[int, int], ...] = ()
    taken: bool = False

    @cached_property
    def _moves(self) -> pa.Table:
        name = scratch.gathered("moved", self.segment.number)
        return self.job.folder.tables(name, matching.MOVED, 0)[0]

    @property
    def touched(self) -> bool:
        """Whether any of its rows moved, was deleted, or may have left."""
        return len(self._moves) > 0 or bool(self.lists)

    @cached_property
    def _whole(self) -> pa.Table:
        """Its locator, with the moves applied."""
        return moved(
            self.update, locators.from_bytes(self.job.folder.locator(self.segment)), self._moves
        )

    @cached_property
    def table(self) -> pa.Table:
        """Its locator, with the moves applied, and without rows that it does not have."""
        if not self.lists:
            return self._whole
        return locators.only(self._whole, self.keep)

    @cached_property
    def keep(self) -> np.ndarray:
        """bool [n], False if a row is deleted."""
        if not self.touched and not self.segment.deleted:
            return np.ones(self.segment.rows, bool)
        alive: np.ndarray = self._whole.column("shard").is_valid().to_numpy()
        if not self.lists:
            return alive
        return alive & (self._in_lists() == self.taken)

    def _in_lists(self) -> np.ndarray:
        """Return which rows are in the lists, bool [n]."""
        with self.job.folder.on_disk(self.segment) as path:
            listed = rows_by_list(path)
        chosen = np.zeros(len(listed.sizes), bool)
        for first, stop in self.lists:
            chosen[first:stop] = True
        found = np.zeros(self.segment.rows, bool)
        found[listed.rows] = np.repeat(chosen, listed.sizes)
        return found


def moved(update: IndexUpdate, locator: pa.Table, moves: pa.Table) -> pa.Table:
    """Return a locator with the places that matching found for its rows."""
    if not len(moves):
        return locator
    local, shard, row = (moves.column(name).to_numpy() for name in ("local", "shard", "row"))
    ids = moves.column("id").combine_chunks()
    return locators.moved(locator, locators.Moves(local, shard, row, ids, update.added_shards))
