"""The rows of a snapshot that queries are compared with, in groups that workers share.

If it has an index, its segments make the groups; else rows are compared one by one, with shards for
groups.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate
from typing import Protocol

import numpy as np

from sentence_beam.transforms.base.arrow import as_matrix
from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.base.pairs import group_by_size
from sentence_beam.transforms.index import SegmentedIndex, TrainedIndex, exact_search, rerank
from sentence_beam.transforms.index.by_lists import coarse_search, scan
from sentence_beam.transforms.index.choose import depth_for
from sentence_beam.transforms.index.exact import gains_to_scores
from sentence_beam.transforms.index.faiss_module import load_faiss
from sentence_beam.transforms.index.parts import Coarse, TopK
from sentence_beam.transforms.index.search import SearchResult
from sentence_beam.transforms.index.vectors import prepared, scored_by
from sentence_beam.transforms.search import Hits, Searcher
from sentence_beam.transforms.store.index_entries import IndexEntry
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.shards.reading import read_shard

GROUP_ROWS = 1_000_000
Group = tuple[int, int]  # the first segment or shard, and the one behind the last


class ComparedRows(Protocol):
    """The rows of a snapshot, as queries are compared with them."""

    @property
    def groups(self) -> list[Group]:
        """The groups, in order; at least one."""

    def coarse(self, queries: np.ndarray) -> Coarse | None:
        """Return the lists to search, once for all groups; None without lists."""

    def asked(self, group: Group, queries: np.ndarray, coarse: Coarse | None) -> np.ndarray:
        """Return those of the queries, int64, that may have a candidate in a group."""

    def scan(self, group: Group, queries: np.ndarray, coarse: Coarse | None) -> TopK:
        """Return gains and positions of the best candidates of a group."""

    def hits(self, queries: np.ndarray, found: TopK) -> Hits:
        """Return the k best rows of each query, from the best candidates of all groups."""


def rows_of(
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


class ByIndex:
    """The rows of an index; a group's candidates are those that `search` finds in its segments."""

    def __init__(self, index: IndexEntry, searcher: Searcher, k: int, spare: int):
        self._index = index
        self._searcher = searcher
        self._k = k + spare
        # one hit more would have some indexes look into several times as many
        self._nprobe = index.nprobe_for(k)
        self._depth = depth_for(self._k, index.rerank)
        self._metric = scored_by(index.metric)
        self._opened: tuple[Group, SegmentedIndex] | None = None

    @property
    def groups(self) -> list[Group]:
        return _groups([segment.rows for segment in self._index.segments])

    def coarse(self, queries: np.ndarray) -> Coarse | None:
        """Return the lists to search; all of them if there are at most k rows."""
        if self._trained is None:
            return None
        live = sum(segment.live for segment in self._index.segments)
        if self._k >= live:
            nprobe = self._trained.index.nlist
        else:
            nprobe = self._nprobe
        return coarse_search(self._trained, queries, nprobe)

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
        """The quantizer of the lists; None without lists."""
        trained = self._searcher.index.trained
        if trained is None:  # segments of earlier versions have the quantizer themselves
            lists = [
                part.index
                for part in self._searcher.index.opened(*self._all).parts
                if part.has_lists
            ]
            return TrainedIndex(load_faiss(), lists[0]) if lists else None
        return trained if hasattr(trained.index, "quantizer") else None

    @property
    def _all(self) -> Group:
        return 0, len(self._index.segments)

    def scan(self, group: Group, queries: np.ndarray, coarse: Coarse | None) -> TopK:
        """Return gains and positions of the best candidates of some segments."""
        gains, positions = scan(
            self._open(group).parts, queries, self._depth, coarse, self._trained
        )
        return gains, np.where(positions >= 0, positions + (group[0] << 32), -1)

    def _open(self, group: Group) -> SegmentedIndex:
        if self._opened is None or self._opened[0] != group:
            self._opened = group, self._searcher.index.opened(*group)
        return self._opened[1]

    def hits(self, queries: np.ndarray, found: TopK) -> Hits:
        """Return the k best rows.

        If codes are rough, exact scores decide. Queries whose lists hold too few rows search more
        lists.
        """
        gains, positions = found
        segment = (positions >> 32).astype(np.int32)
        row = np.where(positions >= 0, positions & 0xFFFFFFFF, -1)
        result = SearchResult(gains_to_scores(gains, self._metric), segment, row)
        short = np.flatnonzero(row[:, min(self._k, row.shape[1]) - 1] < 0)
        if short.size and self._trained is not None:
            wider = self._open(self._all).search(
                queries[short], self._depth, nprobe=self._nprobe, least=self._k
            )
            for mine, other in zip(result, wider, strict=True):
                mine[short] = other
        if self._index.rerank:
            result = rerank(queries, result, self._k, self._searcher.index.vectors_of, self._metric)
        shard, row = self._searcher.index.located(result.segment, result.row)
        return Hits(result.scores[:, : self._k], shard[:, : self._k], row[:, : self._k])


class ByRow:
    """All rows of a snapshot without an index."""

    def __init__(self, manifest: Manifest, k: int):
        self._manifest = manifest
        self._k = k
        self._metric = scored_by(manifest.metric)

    @property
    def groups(self) -> list[Group]:
        return _groups(self._manifest.shards.column("rows").to_pylist())

    def coarse(self, queries: np.ndarray) -> Coarse | None:
        """Return None: there are no lists."""

    def asked(self, group: Group, queries: np.ndarray, coarse: Coarse | None) -> np.ndarray:
        """Return all queries."""
        return queries

    def scan(self, group: Group, queries: np.ndarray, coarse: Coarse | None) -> TopK:
        """Return gains and positions of the k best rows of some shards."""
        scores, positions = exact_search(self._vectors(group), queries, self._k, self._metric)
        return gains_to_scores(scores, self._metric), positions

    def _vectors(self, group: Group) -> Iterator[tuple[np.ndarray, int]]:
        for number in range(*group):
            start = number << 32
            for batch in read_shard(self._manifest.shard(number).full_path, ["embedding"]):
                yield prepared(as_matrix(batch.column(0)), self._manifest.metric), start
                start += batch.num_rows

    def hits(self, queries: np.ndarray, found: TopK) -> Hits:
        """Return the rows as they were found."""
        return hits_at(found, self._metric)


class ByFilter:
    """The rows that a filter matches, all in one group: a search knows which lists hold them."""

    def __init__(self, searcher: Searcher, k: int, where: str):
        self._searcher = searcher
        self._k = k
        self._where = where
        self._metric = scored_by(searcher.manifest.metric)

    @property
    def groups(self) -> list[Group]:
        return [(0, len(self._searcher.manifest.shards))]

    def coarse(self, queries: np.ndarray) -> Coarse | None:
        """Return None: the search chooses among the lists with matching rows."""

    def asked(self, group: Group, queries: np.ndarray, coarse: Coarse | None) -> np.ndarray:
        """Return all queries."""
        return queries

    def scan(self, group: Group, queries: np.ndarray, coarse: Coarse | None) -> TopK:
        """Return gains and positions of the k best matching rows."""
        hits = self._searcher.nearest(queries, self._k, where=self._where)
        positions = np.where(hits.shard >= 0, hits.shard << 32 | hits.row, -1)
        return gains_to_scores(hits.scores, self._metric), positions

    def hits(self, queries: np.ndarray, found: TopK) -> Hits:
        """Return the rows as they were found."""
        return hits_at(found, self._metric)


def hits_at(found: TopK, metric: str) -> Hits:
    """Return hits for gains and positions, number of the shard << 32 and row each; -1 is none."""
    gains, positions = found
    shard = np.where(positions >= 0, positions >> 32, -1)
    return Hits(gains_to_scores(gains, metric), shard, positions & 0xFFFFFFFF)


def _groups(sizes: list[int]) -> list[Group]:
    """Return consecutive items of these sizes in groups of at most a million rows, or of one."""
    counts = [len(group) for group in group_by_size(sizes, int, GROUP_ROWS)]
    ends = list(accumulate(counts))
    return list(zip([0, *ends], ends, strict=False))


def damaged(error: DamagedIndexError) -> DamagedIndexError:
    """Return the error with its mend."""
    return DamagedIndexError(f"{error}; `sentence-beam index` makes it again")
