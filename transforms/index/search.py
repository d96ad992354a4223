"""Searching segments as if they were one index: one coarse search, each segment's chosen lists, one
merge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from transforms.base.errors import DamagedIndexError, OptionError
from transforms.index.exact import best_first, gains_to_scores, no_results, pair_scores
from transforms.index.faiss_module import load_faiss, use_threads
from transforms.index.parts import Coarse, Found, OpenSegment, coarse_marks, open_segment
from transforms.index.segment import SegmentFile, nearest_lists
from transforms.index.trained import TrainedIndex
from transforms.index.vectors import as_vectors, metric_name

_NPROBE = 16
_WIDER = 4  # times nprobe, where the lists hold too few rows


class SearchResult(NamedTuple):
    """The results of queries, best first; missing ones have segment -1, row -1 and score -inf for
    ip, +inf for l2.
    """

    scores: np.ndarray  # float32 [q, k]
    segment: np.ndarray  # int32 [q, k], place in the list given to `SegmentedIndex.open`
    row: np.ndarray  # int64 [q, k], local row


class SegmentedIndex:
    """Opened segments. Results equal those of one index that holds all their rows, scores and order
    included.

    Ties are broken by (segment, row). Flat segments are always scanned in full.
    """

    def __init__(self, parts: Sequence[OpenSegment], trained: TrainedIndex | None = None):
        self._parts, self._trained = list(parts), trained
        self._lists = next((part.index for part in self._parts if part.has_lists), None)

    @classmethod
    def open(
        cls, segments: Sequence[SegmentFile], trained: TrainedIndex | None = None
    ) -> SegmentedIndex:
        """The index of segments in files, which are mapped into memory without reading their codes.

        `trained` is what they were built from; segments of earlier versions, and those without
        lists, need none. Raises DamagedIndexError for a file that cannot be read, is not what its
        checksums say, or whose length differs from `keep`, and OptionError where segments come from
        different trainings or metrics.
        """
        with use_threads(None) as faiss:
            parts = [
                _open_one(faiss, number, segment, trained)
                for number, segment in enumerate(segments)
            ]
            _check_alike(parts, segments)
        return cls(parts, trained)

    @property
    def parts(self) -> Sequence[OpenSegment]:
        """The opened segments, in the order of their files."""
        return self._parts

    @property
    def rows(self) -> int:
        """The number of rows that are not deleted."""
        return sum(part.live for part in self._parts)

    @property
    def metric(self) -> str:
        """The metric, `ip` or `l2`; `ip` where there are no segments."""
        return metric_name(load_faiss(), self._parts[0].index.metric_type) if self._parts else "ip"

    def turned(self, queries: np.ndarray) -> np.ndarray:
        """Queries float32 [q, d] as the lists have vectors; the same ones where these were built
        without rotation.
        """
        return (
            self._trained.turned(queries) if self._trained and self._lists is not None else queries
        )

    @property
    def nlist(self) -> int:
        """The number of coarse lists; 0 where all segments are flat."""
        return int(self._lists.nlist) if self._lists is not None else 0

    def search(
        self,
        queries: np.ndarray,
        k: int,
        *,
        nprobe: int | None = None,
        least: int | None = None,
        threads: int | None = None,
    ) -> SearchResult:
        """The top k of each query, float32 [q, d], among `nprobe` lists (default 16) and all flat
        segments.

        Where a query's lists hold fewer than `least` rows (default k), more lists are searched, so
        that it gets that many, or all rows there are.
        """
        nprobe, wanted = nprobe or _NPROBE, min(least or k, k, self.rows)
        if wanted == self.rows:
            nprobe = max(nprobe, self.nlist)
        found = self.sweep(queries, k, [nprobe], threads=threads)[0]
        while (
            wanted
            and nprobe < self.nlist
            and (short := np.flatnonzero(found.row[:, wanted - 1] < 0)).size
        ):
            nprobe *= _WIDER
            for mine, wider in zip(
                found, self.sweep(queries[short], k, [nprobe], threads=threads)[0], strict=True
            ):
                mine[short] = wider
        return found

    def sweep(
        self, queries: np.ndarray, k: int, nprobes: Sequence[int], *, threads: int | None = None
    ) -> list[SearchResult]:
        """The results of a search at each of several nprobe, ascending; every list is scanned
        once.
        """
        return [
            result(*best, self.metric)
            for _, best in self.steps(queries, k, nprobes, threads=threads)
        ]

    def steps(
        self, queries: np.ndarray, k: int, nprobes: Sequence[int], *, threads: int | None = None
    ) -> Iterator[tuple[Found, Found]]:
        """For each of several nprobe, ascending: the top k among the lists that it adds, and among
        all lists up to it.

        Both are gains float32 and positions int64 [q, k], best first. Flat segments come with the
        first nprobe.
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
            flat, best = self._scan_flat(faiss, queries, k), no_results(len(queries), k)
            queries = self.turned(queries)
            for step, coarse in enumerate(self._coarse_steps(faiss, queries, nprobes)):
                new = self._scan_lists(
                    faiss, queries, k, coarse, flat if step == 0 else no_results(len(queries), k)
                )
                best = merge([best, new], k) if step else new
                yield new, best

    def _coarse_steps(
        self, faiss: Any, queries: np.ndarray, nprobes: Sequence[int]
    ) -> list[Coarse | None]:
        """For each nprobe the lists that the one before did not have; None where there are none."""
        if self._lists is None:
            return [None] * len(nprobes)
        ends = [min(nprobe, self.nlist) for nprobe in nprobes]
        scores, lists = nearest_lists(faiss, self._lists, queries, ends[-1])
        steps = zip([0, *ends], ends, strict=False)
        return [
            Coarse.cut(scores, lists, start, end) if end > start else None for start, end in steps
        ]

    def _scan_flat(self, faiss: Any, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        found = [part.top_k(faiss, queries, k, None) for part in self._parts if not part.has_lists]
        return merge([no_results(len(queries), k), *found], k)

    def _scan_lists(
        self, faiss: Any, queries: np.ndarray, k: int, coarse: Coarse | None, others: Found
    ) -> Found:
        if coarse is None:
            return others
        return merge(
            [
                others,
                *(part.top_k(faiss, queries, k, coarse) for part in self._parts if part.has_lists),
            ],
            k,
        )


def rerank(
    queries: np.ndarray,
    found: SearchResult,
    k: int,
    vectors: Callable[[np.ndarray, np.ndarray], np.ndarray],
    metric: str,
    *,
    threads: int | None = None,
) -> SearchResult:
    """The best k of `found` by exact score.

    `vectors(segment int32 [m], row int64 [m])` returns their vectors float32 [m, d]; it is asked
    for each row once, in order of (segment, row).
    """
    queries = as_vectors(queries, queries.shape[-1], "queries")
    positions = positions_of(found)
    wanted, place = np.unique(positions[positions >= 0], return_inverse=True)
    rows = np.full(positions.shape, -1, np.int64)
    rows[positions >= 0] = place
    if not wanted.size:
        return result(*no_results(len(queries), k), metric)
    block = as_vectors(vectors(*split(wanted)), queries.shape[1], "rerank")
    with use_threads(threads) as faiss:
        gains = gains_to_scores(pair_scores(faiss, queries, block, rows, metric), metric)
    return result(*merge([(gains, positions), no_results(len(queries), k)], k), metric)


def merge(found: Sequence[Found], k: int) -> Found:
    """The best k of several gains and positions [q, any], ties by position."""
    gains, positions = zip(*found, strict=True)
    return best_first(np.concatenate(gains, axis=1), np.concatenate(positions, axis=1), k)


def positions_of(found: SearchResult) -> np.ndarray:
    """Segment and row in one int64, ordered as (segment, row); -1 for missing."""
    return np.where(found.row >= 0, found.segment.astype(np.int64) << 32 | found.row, -1)


def split(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Segment int32 and row int64 of positions, -1 for missing."""
    return (positions >> 32).astype(np.int32), np.where(positions >= 0, positions & 0xFFFFFFFF, -1)


def result(gains: np.ndarray, positions: np.ndarray, metric: str) -> SearchResult:
    """What a search gives for gains and positions [q, k]."""
    return SearchResult(gains_to_scores(gains, metric), *split(positions))


def _open_one(
    faiss: Any, number: int, segment: SegmentFile, trained: TrainedIndex | None
) -> OpenSegment:
    part = open_segment(faiss, number, segment, trained)
    if segment.keep is not None and len(segment.keep) != part.index.ntotal:
        lengths = f"{part.index.ntotal} rows, but the locator table has {len(segment.keep)}"
        raise DamagedIndexError(f"{segment.path}: {lengths}")
    return part


def _check_alike(parts: Sequence[OpenSegment], segments: Sequence[SegmentFile]) -> None:
    first: dict[str, tuple[object, Path | str]] = {}
    for part, segment in zip(parts, segments, strict=True):
        marks: dict[str, object] = {"dim and metric": (part.index.d, part.index.metric_type)}
        if part.has_lists:
            marks["training"] = coarse_marks(part)
        for what, mark in marks.items():
            seen, path = first.setdefault(what, (mark, segment.path))
            if seen != mark:
                raise OptionError(
                    f"{segment.path} and {path} differ in {what}; build the index again"
                )
