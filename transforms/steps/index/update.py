"""An index update: the facts that all of its steps need, kept in a file.

The steps; those "for each" are spread over workers:

1. `decisions.choose_work` finds the shards that the index does not know (added) and those that are
missing (removed).

2. `update_rows.read`, for each group of added shards and each segment: the segment's files are
compared with their checksums; texts and ids are sent to the bucket of their hash. If no shard was
added or removed, that is all.

3. `update_rows.match`, for each bucket: an added row with the text of a removed one takes its
place, since its vector is the same; the other removed rows are deleted, the other added rows are
new. They are sent to their segments and groups.

4. `segments.decide`: which segments stay, which are written, which rows go into ranges of lists.

5. `segments.build`, for each segment: its file if it is written, its locator if rows changed.

6. `segments.cut`, if all is written again, for the rows that `build` has left by list: the ranges
to write; and `segments.write`, for each of them.

7. `decisions.conclude`: recall is measured again; the manifest's entry, or why the index has to be
trained again.

If a file of the index is damaged, all is built again from the shards, which are checked then too.
"""

import functools
import json
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sentence_beam.transforms.base.json_entries import JsonEntry
from sentence_beam.transforms.index import IndexPlan
from sentence_beam.transforms.index.index_kinds import make_plan
from sentence_beam.transforms.index.metric_vectors import choose_scoring_metric
from sentence_beam.transforms.steps.index import scratch
from sentence_beam.transforms.steps.index.held_out import KnownQueries
from sentence_beam.transforms.steps.index.index_folder import Folder, ShardRows
from sentence_beam.transforms.steps.index.index_recall import Asking
from sentence_beam.transforms.store.index_entries import IndexEntry, IndexRequest, SegmentEntry
from sentence_beam.transforms.store.index_files import checked_files as index_files

BASE = "base"
DELTA = "delta"
HELD_OUT = "held-out"
ADDED = "added"
REMOVED = "removed"
STANDING = "standing"


@dataclass(frozen=True)
class ErasedFromIndex(JsonEntry):
    """The parts of an index that have to leave it because rows are erased, beside the rows.

    `segments` are those with erased rows that were deleted before, by number; `crowded` the hashes
    of erased texts (hex) among the crowded ones.
    """

    segments: tuple[int, ...] = ()
    crowded: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to leave."""
        return not (self.segments or self.crowded)


@dataclass(frozen=True)
class IndexUpdate(JsonEntry):
    """The facts that are known before any row is read.

    `current` is the manifest's entry of the index to update, `added` the shards that it does not
    know, in groups, `removed` those that are missing, `shards` all that the new snapshot has.
    `unit` says that all rows in the index are of length 1. `checksums` are the storage's for the
    added shards, "" if it has none. If rows are `erased`, all segments that had one are written
    again.
    """

    current: IndexEntry
    request: IndexRequest
    shards: list[ShardRows]
    added: list[list[str]]
    removed: list[str]
    buckets: int
    unit: bool
    checksums: dict[str, str] = field(default_factory=dict)
    erased: ErasedFromIndex | None = None

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
        """Whether the index stays: no shard was added or removed, and nothing of it is erased."""
        erases = self.erased is not None and not self.erased.is_empty
        return not (self.added or self.removed or erases)

    @property
    def metric(self) -> str:
        """The metric of the scores, ip or l2."""
        return choose_scoring_metric(self.current.metric)

    @property
    def asking(self) -> Asking:
        """How segments are asked when recall is measured."""
        return Asking.from_index(self.current, self.metric)

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
    """Store, run, dimension and metric, by which the steps of an update find the rest."""

    root: str
    run: str
    dim: int
    metric: str

    @property
    def folder(self) -> Folder:
        """The files that the steps read and write."""
        return Folder(self.root, self.run, "update", self.metric)

    def update(self) -> IndexUpdate:
        """Return the update that `begin` recorded; a process reads it once."""
        return _read_update(self)

    def plan(self, update: IndexUpdate) -> IndexPlan:
        """Return the plan by which the current index was trained."""
        return make_plan(update.current.spec, update.rows, self.dim, update.metric)

    def read_known_queries(self) -> KnownQueries:
        """Return the held-out texts of which anything is known; a process reads them once."""
        return _read_known_queries(self)


@functools.lru_cache(1)
def _read_update(job: IndexUpdateJob) -> IndexUpdate:
    return job.folder.parsed(scratch.PLAN, lambda data: IndexUpdate.from_json(json.loads(data)))


@functools.lru_cache(1)
def _read_known_queries(job: IndexUpdateJob) -> KnownQueries:
    named = job.update().current.queries
    return KnownQueries.from_bytes(index_files.read(job.folder.stored(named.path), named.sha256))


def begin(job: IndexUpdateJob, update: IndexUpdate) -> list[tuple[str, int]]:
    """Record the update, and return the groups of added shards and the segments to read.

    If the index stays, its segments are read to check them.
    """
    job.folder.put(scratch.PLAN, json.dumps(update.to_json(), sort_keys=True).encode())
    if update.is_none:
        return [(STANDING, number) for number in update.segments]
    job.folder.leave(scratch.WAS_CROWDED, job.read_known_queries().crowded)
    added = [(ADDED, group) for group in range(len(update.added))]
    return [*added, *((REMOVED, number) for number in update.segments)]
