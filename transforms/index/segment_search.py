"""Search over segments as over one index: a coarse search, the lists of each segment, a merge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.index.exact import (
    gains_to_scores,
    merge_top_k,
    score_pairs,
    start_results,
)
from sentence_beam.transforms.index.index_parts import Coarse, Part, TopK, open_segment
from sentence_beam.transforms.index.metric_vectors import as_vectors, name_metric
from sentence_beam.transforms.index.range_readers import RangeFile
from sentence_beam.transforms.index.ranges import OpenRanges
from sentence_beam.transforms.index.segment import SegmentFile, find_nearest_lists
from sentence_beam.transforms.index.trained import TrainedIndex, make_missing_trained_error

_NPROBE = 16
_WIDER = 4  # factor for nprobe if the lists hold too few rows


class SearchResult(NamedTuple):
    """The results of queries, best first.

    Missing results have segment -1, row -1, and score -inf for ip, +inf for l2.
    """

    scores: np.ndarray  # float32 [q, k]
    segment: np.ndarray  # int32 [q, k], place in the list given to `SegmentedIndex.open`
    row: np.ndarray  # int64 [q, k], local row


class SegmentedIndex:
    """Opened segments, with the scores and the order of one index that holds all their rows.

    Ties are broken by (segment, row). Flat segments are always scanned in full. `parts` are in the
    order of their files; all ranges are the first part. `trained` is the index that segments share;
    None if it was not given.
    """

    def __init__(self, parts: Sequence[Part], trained: TrainedIndex | None = None):
        self.parts = list(parts)
        self.trained = trained
        self._lists = next((part.index for part in self.parts if part.has_lists), None)

    @classmethod
    def open(
        cls, segments: Sequence[SegmentFile | RangeFile], trained: TrainedIndex | None = None
    ) -> SegmentedIndex:
        """Open segments' files, which are mapped into memory without reading their codes.

        `trained` is the index that they were built from; those without lists need none. All ranges
        are one part.

        Raises DamagedIndexError if a file cannot be read, differs from its checksums, has another
        length than `keep`, or was built from another index.
        """
        places = [place for place, file in enumerate(segments) if isinstance(file, RangeFile)]
        ranges = [file for file in segments if isinstance(file, RangeFile)]
        parts: list[Part] = []
        if ranges:
            if trained is None:
                raise make_missing_trained_error(ranges[0].path)
            parts.append(OpenRanges(places, ranges, trained))
        for place, file in enumerate(segments):
            if isinstance(file, SegmentFile):
                parts.append(open_segment(place, file, trained))
        return cls(parts, trained)

    @property
    def rows(self) -> int:
        """The number of rows that are not deleted."""
        return sum(part.live for part in self.parts)

    @property
    def metric(self) -> str:
        """The metric, `ip` or `l2`; `ip` without segments."""
        if not self.parts:
            return "ip"
        return name_metric(self.parts[0].index)

    def turned(self, queries: np.ndarray) -> np.ndarray:
        """Return queries float32 [q, d] rotated as the lists were built; unchanged without lists.

        Lists that were built without rotation leave them unchanged too.
        """
        if self.trained is None or self._lists is None:
            return queries
        return self.trained.turned(queries)

    @property
    def nlist(self) -> int:
        """The number of coarse lists; 0 if all segments are flat."""
        return int(self._lists.nlist) if self._lists is not None else 0

    def search(
        self, queries: np.ndarray, k: int, *, nprobe: int | None = None, least: int | None = None
    ) -> SearchResult:
        """Return the top k of each query, float32 [q, d], among `nprobe` lists and flat segments.

        `nprobe` is 16 by default. If a query's lists hold fewer than `least` rows (default k), more
        lists are searched, until it has that many or all rows.
        """
        nprobe = nprobe or _NPROBE
        wanted = min(least or k, k, self.rows)
        if wanted == self.rows:
            nprobe = max(nprobe, self.nlist)
        best = self.sweep(queries, k, [nprobe])[0]
        while wanted and nprobe < self.nlist:
            short = np.flatnonzero(best.row[:, wanted - 1] < 0)
            if not short.size:
                break
            nprobe *= _WIDER
            wider = self.sweep(queries[short], k, [nprobe])[0]
            for column, new in zip(best, wider, strict=True):
                column[short] = new
        return best

    def search_ties(
        self, queries: np.ndarray, k: int, *, nprobe: int | None = None, least: int | None = None
    ) -> SearchResult:
        """Return the top k of each query, and all other rows with the score of the k-th."""
        results = self.search(queries, k + 1, nprobe=nprobe, least=least)
        pending = np.flatnonzero(_has_more_ties(results, k))
        depth = k + 1
        while len(pending):
            depth *= _WIDER
            wider = self.search(queries[pending], depth, nprobe=nprobe, least=least)
            missing = result(
                *start_results(len(queries), depth - results.row.shape[1]), self.metric
            )
            results = SearchResult(
                *(np.concatenate(pair, axis=1) for pair in zip(results, missing, strict=True))
            )
            for column, new in zip(results, wider, strict=True):
                column[pending] = new
            pending = pending[_has_more_ties(wider, k)]
        results.row[:, k:][results.scores[:, k:] != results.scores[:, k - 1 : k]] = -1
        return results

    def sweep(self, queries: np.ndarray, k: int, nprobes: Sequence[int]) -> list[SearchResult]:
        """Return the results at each of several nprobe, ascending; every list is scanned once."""
        return [result(*best, self.metric) for _, best in self.steps(queries, k, nprobes)]

    def steps(
        self, queries: np.ndarray, k: int, nprobes: Sequence[int]
    ) -> Iterator[tuple[TopK, TopK]]:
        """Yield for each nprobe, ascending, the top k of its new lists and of all lists so far.

        Both are gains float32 and positions int64 [q, k], best first. Flat segments count as lists
        of the first nprobe.
        """
        if k < 1 or list(nprobes) != sorted(set(nprobes)) or nprobes[0] < 1:
            raise OptionError(
                f"search: k={k} and nprobe={list(nprobes)} have to be positive, nprobe ascending"
            )
        if not self.parts:
            yield from [(start_results(len(queries), k),) * 2] * len(nprobes)
            return
        queries = as_vectors(queries, self.parts[0].index.d, "queries")
        flat = [part.top_k(queries, k, None) for part in self.parts if not part.has_lists]
        others = merge_top_k([start_results(len(queries), k), *flat], k)
        best: TopK | None = None
        queries = self.turned(queries)
        for coarse in self._choose_lists(queries, nprobes):
            new = self._scan_lists(queries, k, coarse, others)
            best = new if best is None else merge_top_k([best, new], k)
            yield new, best
            others = start_results(len(queries), k)

    def _choose_lists(self, queries: np.ndarray, nprobes: Sequence[int]) -> list[Coarse | None]:
        """Return the lists that each nprobe adds to the previous one; None if it adds none."""
        if self._lists is None:
            return [None] * len(nprobes)
        ends = [min(nprobe, self.nlist) for nprobe in nprobes]
        scores, lists = find_nearest_lists(self._lists, queries, ends[-1])
        steps: list[Coarse | None] = []
        start = 0
        for end in ends:
            step = Coarse.cut(scores, lists, start, end) if end > start else None
            steps.append(step)
            start = end
        return steps

    def _scan_lists(self, queries: np.ndarray, k: int, coarse: Coarse | None, others: TopK) -> TopK:
        if coarse is None:
            return others
        best = [part.top_k(queries, k, coarse) for part in self.parts if part.has_lists]
        return merge_top_k([others, *best], k)


def rerank(
    queries: np.ndarray,
    candidates: SearchResult,
    k: int,
    vectors: Callable[[np.ndarray, np.ndarray], np.ndarray],
    metric: str,
) -> SearchResult:
    """Return the best k candidates by exact score.

    `vectors(segment int32 [m], row int64 [m])` returns the vectors float32 [m, d] of rows. It gets
    each row once, in order of (segment, row).
    """
    queries = as_vectors(queries, queries.shape[-1], "queries")
    positions = find_positions(candidates)
    wanted, place = np.unique(positions[positions >= 0], return_inverse=True)
    rows = np.full(positions.shape, -1, np.int64)
    rows[positions >= 0] = place
    if not wanted.size:
        return result(*start_results(len(queries), k), metric)
    block = as_vectors(vectors(*split(wanted)), queries.shape[1], "rerank")
    gains = gains_to_scores(score_pairs(queries, block, rows, metric), metric)
    return result(*merge_top_k([(gains, positions), start_results(len(queries), k)], k), metric)


def find_positions(results: SearchResult) -> np.ndarray:
    """Return segment and row in one int64, ordered as (segment, row); -1 for missing."""
    return np.where(results.row >= 0, results.segment.astype(np.int64) << 32 | results.row, -1)


def split(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return segment int32 and row int64 of positions, -1 for missing."""
    return (positions >> 32).astype(np.int32), np.where(positions >= 0, positions & 0xFFFFFFFF, -1)


def result(gains: np.ndarray, positions: np.ndarray, metric: str) -> SearchResult:
    """Return gains and positions [q, k] as the result of a search."""
    return SearchResult(gains_to_scores(gains, metric), *split(positions))


def _has_more_ties(results: SearchResult, k: int) -> np.ndarray:
    """Return whether rows that were not found may have the score of the k-th, bool [q]."""
    return (results.row[:, -1] >= 0) & (results.scores[:, -1] == results.scores[:, k - 1])
