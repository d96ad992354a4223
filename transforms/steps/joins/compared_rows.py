"""The rows of a snapshot that queries are compared with, in groups that workers share.

If it has an index, its segments make the groups; else rows are compared one by one, with shards for
groups.
"""

from functools import cached_property
from itertools import accumulate

import numpy as np

from sentence_beam.transforms.base.pairing import group_by_size
from sentence_beam.transforms.index import SegmentedIndex, TrainedIndex, rerank
from sentence_beam.transforms.index.by_lists import scan, search_coarse
from sentence_beam.transforms.index.exact import gains_to_scores
from sentence_beam.transforms.index.index_kinds import choose_depth
from sentence_beam.transforms.index.index_parts import Coarse, TopK
from sentence_beam.transforms.index.metric_vectors import choose_scoring_metric
from sentence_beam.transforms.index.segment_search import result as as_result
from sentence_beam.transforms.search import Hits, Searcher
from sentence_beam.transforms.search.snapshot_rows import find_exact_rows
from sentence_beam.transforms.store.index_entries import IndexEntry
from sentence_beam.transforms.store.manifest import Manifest

GROUP_ROWS = 1_000_000
Group = tuple[int, int]  # the first segment or shard, and the one behind the last


class ComparedRows:
    """The rows of a snapshot, as queries are compared with them; by default without lists."""

    def __init__(self, metric: str):
        self._metric = choose_scoring_metric(metric)

    @property
    def groups(self) -> list[Group]:
        """The groups, in order; at least one."""
        raise NotImplementedError

    def coarse(self, queries: np.ndarray) -> Coarse | None:
        """Return the lists to search, once for all groups; None without lists."""

    def asked(self, group: Group, queries: np.ndarray, coarse: Coarse | None) -> np.ndarray:
        """Return those of the queries, int64, that may have a candidate in a group."""
        return queries

    def scan(self, group: Group, queries: np.ndarray, coarse: Coarse | None) -> TopK:
        """Return gains and positions of the best candidates of a group."""
        raise NotImplementedError

    def hits(self, queries: np.ndarray, best: TopK) -> Hits:
        """Return the k best rows of each query, from the best candidates of all groups."""
        gains, positions = best
        return Hits.from_positions(gains_to_scores(gains, self._metric), positions)


def open_rows(
    manifest: Manifest, searcher: Searcher, k: int, spare: int, where: str | None = None
) -> ComparedRows:
    """Return the rows of a snapshot as `search` compares them for k hits; `spare` more are found.

    `where` is a filter of the rows. Raises OptionError if it does not fit the store's columns.
    """
    if where is not None:
        return ByFilter(searcher, k + spare, where)
    if manifest.index:
        return ByIndex(manifest.index, searcher, k, spare)
    return ByRow(manifest, k + spare)


class ByIndex(ComparedRows):
    """The rows of an index; a group's candidates are those that `search` finds in its segments."""

    def __init__(self, index: IndexEntry, searcher: Searcher, k: int, spare: int):
        super().__init__(index.metric)
        self._index = index
        self._searcher = searcher
        self._k = k + spare
        # one hit more would have some indexes look into several times as many
        self._nprobe = index.choose_nprobe(k)
        self._depth = choose_depth(self._k, index.rerank)
        self._opened: tuple[Group, SegmentedIndex] | None = None

    @property
    def groups(self) -> list[Group]:
        return _cut_groups([segment.rows for segment in self._index.segments])

    def coarse(self, queries: np.ndarray) -> Coarse | None:
        """Return the lists to search; all of them if there are at most k rows."""
        if self._trained is None:
            return None
        nprobe = self._nprobe
        if self._k >= sum(segment.live for segment in self._index.segments):
            nprobe = self._trained.index.nlist
        return search_coarse(self._trained, queries, nprobe)

    def asked(self, group: Group, queries: np.ndarray, coarse: Coarse | None) -> np.ndarray:
        """Return the queries whose lists are in a group; all if it has a segment of rows."""
        bounds = [segment.lists for segment in self._index.segments[slice(*group)]]
        if coarse is None:
            return queries
        is_asked = np.zeros(len(queries), bool)
        for lists in bounds:
            if lists is None:
                return queries
            inside = (coarse.lists >= lists[0]) & (coarse.lists < lists[1])
            is_asked |= inside.any(axis=1)
        return queries[is_asked]

    @cached_property
    def _trained(self) -> TrainedIndex | None:
        return self._searcher.index.trained

    def scan(self, group: Group, queries: np.ndarray, coarse: Coarse | None) -> TopK:
        gains, positions = scan(
            self._open(group).parts, queries, self._depth, coarse, self._trained
        )
        return gains, np.where(positions >= 0, positions + (group[0] << 32), -1)

    def _open(self, group: Group) -> SegmentedIndex:
        if self._opened is None or self._opened[0] != group:
            self._opened = group, self._searcher.index.open_segments(*group)
        return self._opened[1]

    def hits(self, queries: np.ndarray, best: TopK) -> Hits:
        """Return the k best rows.

        If codes are rough, exact scores decide. Queries whose lists hold too few rows search more
        lists.
        """
        gains, positions = best
        last = min(self._k, positions.shape[1]) - 1
        short = np.flatnonzero(positions[:, last] < 0)
        result = as_result(gains, positions, self._metric)
        if short.size and self._trained is not None:
            wider = self._open((0, len(self._index.segments))).search(
                queries[short], self._depth, nprobe=self._nprobe, least=self._k
            )
            for mine, other in zip(result, wider, strict=True):
                mine[short] = other
        if self._index.rerank:
            result = rerank(
                queries, result, self._k, self._searcher.index.read_vectors_of, self._metric
            )
        shard, row = self._searcher.index.located(result.segment, result.row)
        return Hits(result.scores[:, : self._k], shard[:, : self._k], row[:, : self._k])


class ByRow(ComparedRows):
    """All rows of a snapshot without an index; a group is some shards."""

    def __init__(self, manifest: Manifest, k: int):
        super().__init__(manifest.metric)
        self._manifest = manifest
        self._k = k

    @property
    def groups(self) -> list[Group]:
        return _cut_groups(self._manifest.shards.column("rows").to_pylist())

    def scan(self, group: Group, queries: np.ndarray, coarse: Coarse | None) -> TopK:
        scores, positions = find_exact_rows(self._manifest, queries, self._k, shards=range(*group))
        return gains_to_scores(scores, self._metric), positions


class ByFilter(ComparedRows):
    """The rows that a filter matches, all in one group: a search knows which lists hold them."""

    def __init__(self, searcher: Searcher, k: int, where: str):
        super().__init__(searcher.manifest.metric)
        self._searcher = searcher
        self._k = k
        self._where = where

    @property
    def groups(self) -> list[Group]:
        return [(0, len(self._searcher.manifest.shards))]

    def scan(self, group: Group, queries: np.ndarray, coarse: Coarse | None) -> TopK:
        hits = self._searcher.nearest(queries, self._k, where=self._where)
        positions = np.where(hits.shard >= 0, hits.shard << 32 | hits.row, -1)
        return gains_to_scores(hits.scores, self._metric), positions


def _cut_groups(sizes: list[int]) -> list[Group]:
    """Return consecutive items of these sizes in groups of at most a million rows, or of one."""
    counts = [len(group) for group in group_by_size(sizes, int, GROUP_ROWS)]
    ends = list(accumulate(counts))
    return list(zip([0, *ends], ends, strict=False))
