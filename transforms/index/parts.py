"""An opened segment and the scan of each kind: lists, flat vectors, flat codes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from transforms.base.errors import DamagedIndexError
from transforms.index.exact import (
    block_top_k,
    complete_top_k,
    gains_to_scores,
    longest_row,
    merge_top_k,
    no_results,
)
from transforms.index.faiss_module import load_faiss
from transforms.index.segment import SegmentFile, flat_codes, list_arrays, read_segment
from transforms.index.trained import TrainedIndex, fingerprint, flat_rows, lacks_quantizer
from transforms.index.vectors import metric_name

_BLOCK_ROWS = 1 << 16
# faiss's parallel mode for lists chosen outside; its default would use one thread then
_BY_QUERY = 3
TopK = tuple[np.ndarray, np.ndarray]  # gains float32 and positions int64 [q, k]


@dataclass(frozen=True)
class Coarse:
    """The lists to scan, nearest first: scores float32 and numbers int64 [q, nprobe].

    Both arrays are contiguous.
    """

    scores: np.ndarray
    lists: np.ndarray

    @classmethod
    def cut(cls, scores: np.ndarray, lists: np.ndarray, start: int, end: int) -> Coarse:
        """Return the lists at places start to end-1 of each query's order."""
        return cls(
            np.ascontiguousarray(scores[:, start:end]), np.ascontiguousarray(lists[:, start:end])
        )

    def of(self, which: np.ndarray) -> Coarse:
        """Return the lists of some queries; the same object if these are all queries."""
        if len(which) == len(self.lists):
            return self
        return Coarse(self.scores[which], self.lists[which])


@dataclass(frozen=True)
class OpenSegment:
    """An opened segment: number, faiss index that owns the mapped file, rows that are not deleted.

    If `file` has checksums, a list is checked before it is scanned for the first time. `trained`
    has the segment's quantizer; None if the segment's own file has it.
    """

    number: int
    index: Any
    keep: np.ndarray | None
    file: SegmentFile
    trained: TrainedIndex | None = None

    @property
    def has_lists(self) -> bool:
        """Whether the segment has lists, of which a coarse search chooses those to scan."""
        return hasattr(self.index, "quantizer")

    @cached_property
    def live(self) -> int:
        """The number of rows that are not deleted."""
        if self.keep is None:
            return int(self.index.ntotal)
        return int(np.count_nonzero(self.keep))

    @cached_property
    def _bits(self) -> np.ndarray | None:
        if self.keep is None or self.keep.all():
            return None
        return np.packbits(self.keep, bitorder="little")

    @cached_property
    def _longest(self) -> float:
        return longest_row(flat_rows(load_faiss(), self.index))

    def top_k(self, faiss: Any, queries: np.ndarray, k: int, coarse: Coarse | None) -> TopK:
        """Return gains float32 and positions int64 [q, k]; `coarse` is None without lists."""
        metric = metric_name(faiss, self.index.metric_type)
        if not self.live:
            return no_results(len(queries), k)
        if coarse is not None:
            self.check_lists(faiss, coarse.lists)
            gains, rows = self._coded_top_k(faiss, queries, k, coarse)
        elif hasattr(self.index, "sq"):
            gains, rows = self._coded_top_k(faiss, queries, k, None)
        else:
            gains, rows = self._flat_top_k(faiss, queries, k, metric)
        return gains, np.where(rows >= 0, rows | self.number << 32, -1)

    def only(self, wanted: np.ndarray) -> OpenSegment:
        """Return the segment with only the wanted rows, bool [n]; both share the open file."""
        keep = wanted
        if self.keep is not None:
            keep = self.keep & wanted
        part = replace(self, keep=keep)
        if self.has_lists:
            # a list that one of them has checked, the other does not check again
            part.__dict__["_unchecked"] = self._unchecked
        return part

    def matches_of_lists(self, faiss: Any) -> np.ndarray:
        """The number of rows in each list that are not deleted, int64 [nlist]."""
        counts = np.zeros(self.index.nlist, np.int64)
        for number in range(self.index.nlist):
            counts[number] = np.count_nonzero(
                self.is_live[list_arrays(faiss, self.index, number)[1]]
            )
        return counts

    @cached_property
    def is_live(self) -> np.ndarray:
        """bool [n], False if a row is deleted."""
        if self.keep is None:
            return np.ones(self.index.ntotal, bool)
        return self.keep

    def decoded(self, faiss: Any) -> tuple[np.ndarray, np.ndarray] | None:
        """The live rows, int64 [m] ascending, and their decoded vectors, float32 [m, d].

        None if scores are not computed from decoded vectors, as for RaBitQ.
        """
        if hasattr(self.index, "rabitq"):
            return None
        if not self.has_lists:
            rows = np.flatnonzero(self.is_live)
            if not hasattr(self.index, "sq"):
                return rows, flat_rows(faiss, self.index)[rows]
            return rows, self.index.sa_decode(
                np.ascontiguousarray(flat_codes(faiss, self.index)[rows])
            )
        lists = np.flatnonzero(self.matches_of_lists(faiss))
        self.check_lists(faiss, lists)
        found = [self._decoded_list(faiss, number) for number in lists.tolist()]
        rows = np.concatenate([np.empty(0, np.int64), *(part[0] for part in found)])
        vectors = np.concatenate(
            [np.empty((0, self.index.d), np.float32), *(part[1] for part in found)]
        )
        order = np.argsort(rows)
        return rows[order], vectors[order]

    def _decoded_list(self, faiss: Any, number: int) -> tuple[np.ndarray, np.ndarray]:
        codes, rows = list_arrays(faiss, self.index, number)
        live = self.is_live[rows]
        codes = np.ascontiguousarray(codes[live])
        rows = rows[live]
        vectors = np.empty((len(rows), self.index.d), np.float32)
        lists = np.full(len(rows), number, np.int64)
        self.index.decode_vectors(len(rows), *map(faiss.swig_ptr, (codes, lists, vectors)))
        return rows, vectors

    @cached_property
    def _unchecked(self) -> np.ndarray:
        """The lists that are not checked yet, bool [nlist]; `check_lists` updates it."""
        return np.full(self.index.nlist, self.file.checks is not None)

    def check_lists(self, faiss: Any, lists: np.ndarray) -> None:
        """Raise DamagedIndexError if one of these lists is not what was written; -1 is no list."""
        if self.file.checks is None or not self._unchecked.any():
            return
        wanted = np.zeros_like(self._unchecked)
        wanted[lists[lists >= 0]] = True
        for number in np.flatnonzero(wanted & self._unchecked).tolist():
            codes, rows = list_arrays(faiss, self.index, number)
            self.file.checks.check_list(self.file.path, number, codes, rows)
            self._unchecked[number] = False

    def _flat_top_k(self, faiss: Any, queries: np.ndarray, k: int, metric: str) -> TopK:
        vectors = flat_rows(faiss, self.index)
        best = no_results(len(queries), k)
        for start in range(0, len(vectors), _BLOCK_ROWS):
            block = vectors[start : start + _BLOCK_ROWS]
            numbers = np.arange(start, start + len(block))
            if self._bits is not None and self.keep is not None:
                numbers = numbers[self.keep[start : start + _BLOCK_ROWS]]
                block = vectors[numbers]
            if len(block):
                gains, rows = block_top_k(faiss, queries, block, k, metric, longest=self._longest)
                best = merge_top_k(best, (gains, np.where(rows >= 0, numbers[rows], -1)), k)
        return best

    def _coded_top_k(self, faiss: Any, queries: np.ndarray, k: int, coarse: Coarse | None) -> TopK:
        # The selector holds a bare pointer to the bits, which live as long as this segment.
        if self._bits is None:
            selector = None
        else:
            selector = faiss.IDSelectorBitmap(self._bits)
        metric = metric_name(faiss, self.index.metric_type)

        def scan(which: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            part = queries
            if len(which) < len(queries):
                part = queries[which]
            if coarse is None:
                scores, rows = self.index.search(
                    part, depth, params=faiss.SearchParameters(sel=selector)
                )
            else:
                scores, rows = _scan_lists(
                    faiss, self.index, part, depth, coarse.of(which), selector
                )
            gains = np.where(rows >= 0, gains_to_scores(scores, metric), np.float32(-np.inf))
            return gains, rows, gains[:, -1]

        return complete_top_k(scan, len(queries), k, self.live)


def _scan_lists(
    faiss: Any, index: Any, queries: np.ndarray, k: int, coarse: Coarse, selector: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and rows [q, k] of the best rows in the given lists.

    Calls the C function, because faiss's Python wrapper takes no selector.
    """
    scores = np.empty((len(queries), k), np.float32)
    rows = np.empty((len(queries), k), np.int64)
    params = faiss.SearchParametersIVF(sel=selector, nprobe=coarse.lists.shape[1])
    pointer = faiss.swig_ptr
    index.search_preassigned_c(
        len(queries),
        pointer(queries),
        k,
        pointer(coarse.lists),
        pointer(coarse.scores),
        pointer(scores),
        pointer(rows),
        False,
        params,
        None,
    )
    return scores, rows


def open_segment(
    faiss: Any, number: int, segment: SegmentFile, trained: TrainedIndex | None
) -> OpenSegment:
    """Open a segment's file, which is mapped, with its own quantizer or the trained index's.

    Raises DamagedIndexError if the file is not what was written, or belongs to another trained
    index.
    """
    if segment.checks is not None:
        segment.checks.check_head(segment.path)
    index = read_segment(faiss, segment.path)
    if lacks_quantizer(index):
        if trained is None:
            raise DamagedIndexError(
                f"{segment.path}: a segment whose quantizer is another file's, which is not known"
            )
        trained.give(index, segment.path)
    elif hasattr(index, "precompute_table"):
        index.precompute_table()
    if hasattr(index, "parallel_mode"):
        index.parallel_mode = _BY_QUERY
    shared = None
    if hasattr(index, "own_fields") and not index.own_fields:
        shared = trained
    keep = None
    if segment.keep is not None:
        keep = np.asarray(segment.keep, dtype=bool)
    return OpenSegment(number, index, keep, segment, shared)


def coarse_marks(part: OpenSegment) -> tuple[object, ...]:
    """Return the properties that segments with the same lists share; the centroids as a digest."""
    if part.trained:
        digest = part.trained.fingerprint
    else:
        digest = fingerprint(part.index)
    return type(part.index).__name__, part.index.nlist, part.index.code_size, digest
