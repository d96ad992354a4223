"""Search over segments as over one index: a coarse search, the lists of each segment, a merge."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sentence_beam.transforms.base.errors import DamagedIndexError, OptionError
from sentence_beam.transforms.index.exact import (
    best_first,
    gains_to_scores,
    no_results,
    pair_scores,
)
from sentence_beam.transforms.index.faiss_module import load_faiss, use_threads
from sentence_beam.transforms.index.parts import (
    Coarse,
    OpenSegment,
    TopK,
    coarse_marks,
    open_segment,
)
from sentence_beam.transforms.index.range_file import FIRST_BYTES, is_range
from sentence_beam.transforms.index.range_readers import RangeFile, check_keep
from sentence_beam.transforms.index.ranges import OpenRanges, Part
from sentence_beam.transforms.index.segment import SegmentFile, nearest_lists
from sentence_beam.transforms.index.trained import TrainedIndex
from sentence_beam.transforms.index.vectors import as_vectors, metric_name

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

    Ties are broken by (segment, row). Flat segments are always scanned in full.
    """

    def __init__(self, parts: Sequence[Part], trained: TrainedIndex | None = None):
        self._parts = list(parts)
        self._trained = trained
        self._lists = next((part.index for part in self._parts if part.has_lists), None)

    @classmethod
    def open(
        cls, segments: Sequence[SegmentFile | RangeFile], trained: TrainedIndex | None = None
    ) -> SegmentedIndex:
        """Open segments' files, which are mapped into memory without reading their codes.

        `trained` is the index that they were built from; segments of earlier versions or without
        lists need none, ranges do. All ranges are one part.

        Raises DamagedIndexError if a file cannot be read, differs from its checksums or has another
        length than `keep`. Raises OptionError if segments have different trainings or metrics.
        """
        files = [_range_or_segment(file) for file in segments]
        places = [place for place, file in enumerate(files) if isinstance(file, RangeFile)]
        ranges = [file for file in files if isinstance(file, RangeFile)]
        with use_threads(None) as faiss:
            parts = [
                _open_one(faiss, place, file, trained)
                for place, file in enumerate(files)
                if isinstance(file, SegmentFile)
            ]
            _check_alike(parts)
            if not ranges:
                return cls(parts, trained)
            if trained is None:
                raise DamagedIndexError(
                    f"{ranges[0].path}: a range whose quantizer is another file's, which is not"
                    " known"
                )
            return cls([OpenRanges(faiss, places, ranges, trained), *parts], trained)

    @property
    def parts(self) -> Sequence[Part]:
        """The opened segments, in the order of their files; all ranges are the first part."""
        return self._parts

    @property
    def trained(self) -> TrainedIndex | None:
        """The trained index that segments share; None if it was not given."""
        return self._trained

    def parts_of(self, wanted: Sequence[np.ndarray]) -> list[Part]:
        """Return the parts with only the wanted rows, bool [n] of each opened file."""
        found: list[Part] = []
        for part in self._parts:
            if isinstance(part, OpenRanges):
                found.append(part.only([wanted[place] for place in part.places]))
            else:
                found.append(part.only(wanted[part.number]))
        return found

    @property
    def rows(self) -> int:
        """The number of rows that are not deleted."""
        return sum(part.live for part in self._parts)

    @property
    def metric(self) -> str:
        """The metric, `ip` or `l2`; `ip` without segments."""
        if not self._parts:
            return "ip"
        return metric_name(load_faiss(), self._parts[0].index.metric_type)

    def turned(self, queries: np.ndarray) -> np.ndarray:
        """Return queries float32 [q, d] rotated as the lists were built; unchanged without lists.

        Lists that were built without rotation leave them unchanged too.
        """
        if self._trained is None or self._lists is None:
            return queries
        return self._trained.turned(queries)

    @property
    def nlist(self) -> int:
        """The number of coarse lists; 0 if all segments are flat."""
        if self._lists is None:
            return 0
        return int(self._lists.nlist)

    def search(
        self,
        queries: np.ndarray,
        k: int,
        *,
        nprobe: int | None = None,
        least: int | None = None,
        threads: int | None = None,
    ) -> SearchResult:
        """Return the top k of each query, float32 [q, d], among `nprobe` lists and flat segments.

        `nprobe` is 16 by default. If a query's lists hold fewer than `least` rows (default k), more
        lists are searched, until it has that many or all rows.
        """
        nprobe = nprobe or _NPROBE
        wanted = min(least or k, k, self.rows)
        if wanted == self.rows:
            nprobe = max(nprobe, self.nlist)
        best = self.sweep(queries, k, [nprobe], threads=threads)[0]
        while wanted and nprobe < self.nlist:
            short = np.flatnonzero(best.row[:, wanted - 1] < 0)
            if not short.size:
                break
            nprobe *= _WIDER
            wider = self.sweep(queries[short], k, [nprobe], threads=threads)[0]
            for column, new in zip(best, wider, strict=True):
                column[short] = new
        return best

    def search_ties(
        self, queries: np.ndarray, k: int, *, nprobe: int | None = None, least: int | None = None
    ) -> SearchResult:
        """Return the top k of each query, and all other rows with the score of the k-th."""
        found = self.search(queries, k + 1, nprobe=nprobe, least=least)
        pending = np.flatnonzero(_goes_on(found, k))
        depth = k + 1
        while len(pending):
            depth *= _WIDER
            wider = self.search(queries[pending], depth, nprobe=nprobe, least=least)
            missing = result(*no_results(len(queries), depth - found.row.shape[1]), self.metric)
            found = SearchResult(
                *(np.concatenate(pair, axis=1) for pair in zip(found, missing, strict=True))
            )
            for column, new in zip(found, wider, strict=True):
                column[pending] = new
            pending = pending[_goes_on(wider, k)]
        found.row[:, k:][found.scores[:, k:] != found.scores[:, k - 1 : k]] = -1
        return found

    def sweep(
        self, queries: np.ndarray, k: int, nprobes: Sequence[int], *, threads: int | None = None
    ) -> list[SearchResult]:
        """Return the results at each of several nprobe, ascending; every list is scanned once."""
        return [
            result(*best, self.metric)
            for _, best in self.steps(queries, k, nprobes, threads=threads)
        ]

    def steps(
        self, queries: np.ndarray, k: int, nprobes: Sequence[int], *, threads: int | None = None
    ) -> Iterator[tuple[TopK, TopK]]:
        """Yield for each nprobe, ascending, the top k of its new lists and of all lists so far.

        Both are gains float32 and positions int64 [q, k], best first. Flat segments count as lists
        of the first nprobe.
        """
        if k < 1 or list(nprobes) != sorted(set(nprobes)) or nprobes[0] < 1:
            raise OptionError(
                f"search: k={k} and nprobe={list(nprobes)} have to be positive, nprobe ascending"
            )
        if not self._parts:
            yield from [(no_results(len(queries), k),) * 2] * len(nprobes)
            return
        with use_threads(threads) as faiss:
            queries = as_vectors(queries, self._parts[0].index.d, "queries")
            others = self._scan_flat(faiss, queries, k)
            best: TopK | None = None
            queries = self.turned(queries)
            for coarse in self._coarse_steps(faiss, queries, nprobes):
                new = self._scan_lists(faiss, queries, k, coarse, others)
                if best is None:
                    best = new
                else:
                    best = merge([best, new], k)
                yield new, best
                others = no_results(len(queries), k)

    def _coarse_steps(
        self, faiss: Any, queries: np.ndarray, nprobes: Sequence[int]
    ) -> list[Coarse | None]:
        """Return the lists that each nprobe adds to the previous one; None if it adds none."""
        if self._lists is None:
            return [None] * len(nprobes)
        ends = [min(nprobe, self.nlist) for nprobe in nprobes]
        scores, lists = nearest_lists(faiss, self._lists, queries, ends[-1])
        steps: list[Coarse | None] = []
        start = 0
        for end in ends:
            step = None
            if end > start:
                step = Coarse.cut(scores, lists, start, end)
            steps.append(step)
            start = end
        return steps

    def _scan_flat(self, faiss: Any, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        best = [part.top_k(faiss, queries, k, None) for part in self._parts if not part.has_lists]
        return merge([no_results(len(queries), k), *best], k)

    def _scan_lists(
        self, faiss: Any, queries: np.ndarray, k: int, coarse: Coarse | None, others: TopK
    ) -> TopK:
        if coarse is None:
            return others
        best = [part.top_k(faiss, queries, k, coarse) for part in self._parts if part.has_lists]
        return merge([others, *best], k)


def rerank(
    queries: np.ndarray,
    candidates: SearchResult,
    k: int,
    vectors: Callable[[np.ndarray, np.ndarray], np.ndarray],
    metric: str,
    *,
    threads: int | None = None,
) -> SearchResult:
    """Return the best k candidates by exact score.

    `vectors(segment int32 [m], row int64 [m])` returns the vectors float32 [m, d] of rows. It gets
    each row once, in order of (segment, row).
    """
    queries = as_vectors(queries, queries.shape[-1], "queries")
    positions = positions_of(candidates)
    wanted, place = np.unique(positions[positions >= 0], return_inverse=True)
    rows = np.full(positions.shape, -1, np.int64)
    rows[positions >= 0] = place
    if not wanted.size:
        return result(*no_results(len(queries), k), metric)
    block = as_vectors(vectors(*split(wanted)), queries.shape[1], "rerank")
    with use_threads(threads) as faiss:
        gains = gains_to_scores(pair_scores(faiss, queries, block, rows, metric), metric)
    return result(*merge([(gains, positions), no_results(len(queries), k)], k), metric)


def merge(parts: Sequence[TopK], k: int) -> TopK:
    """Return the best k of several gains and positions [q, any], ties by position."""
    gains, positions = zip(*parts, strict=True)
    return best_first(np.concatenate(gains, axis=1), np.concatenate(positions, axis=1), k)


def positions_of(results: SearchResult) -> np.ndarray:
    """Return segment and row in one int64, ordered as (segment, row); -1 for missing."""
    return np.where(results.row >= 0, results.segment.astype(np.int64) << 32 | results.row, -1)


def split(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return segment int32 and row int64 of positions, -1 for missing."""
    return (positions >> 32).astype(np.int32), np.where(positions >= 0, positions & 0xFFFFFFFF, -1)


def result(gains: np.ndarray, positions: np.ndarray, metric: str) -> SearchResult:
    """Return gains and positions [q, k] as the result of a search."""
    return SearchResult(gains_to_scores(gains, metric), *split(positions))


def _goes_on(found: SearchResult, k: int) -> np.ndarray:
    """Return whether rows that were not found may have the score of the k-th, bool [q]."""
    return (found.row[:, -1] >= 0) & (found.scores[:, -1] == found.scores[:, k - 1])


def _open_one(
    faiss: Any, number: int, segment: SegmentFile, trained: TrainedIndex | None
) -> OpenSegment:
    part = open_segment(faiss, number, segment, trained)
    check_keep(str(segment.path), part.index.ntotal, segment.keep)
    return part


def _range_or_segment(file: SegmentFile | RangeFile) -> SegmentFile | RangeFile:
    """Return a range in place of a segment whose file is that of a range."""
    if isinstance(file, SegmentFile) and os.path.exists(file.path):
        with open(file.path, "rb") as opened:
            begins = opened.read(FIRST_BYTES)
        if is_range(begins):
            return RangeFile.local(file.path, file.keep)
    return file


def _check_alike(parts: Sequence[OpenSegment]) -> None:
    first: dict[str, tuple[object, Path | str]] = {}
    for part in parts:
        path = part.file.path
        marks: dict[str, object] = {"dim and metric": (part.index.d, part.index.metric_type)}
        if part.has_lists:
            marks["training"] = coarse_marks(part)
        for what, mark in marks.items():
            seen, other = first.setdefault(what, (mark, path))
            if seen != mark:
                raise OptionError(f"{path} and {other} differ in {what}; build the index again")
