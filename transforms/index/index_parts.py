"""The parts of an opened index, and the scan of each kind: lists, flat vectors, flat codes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sentence_beam.transforms.index.exact import (
    complete_top_k,
    find_block_top_k,
    gains_to_scores,
    longest_row,
    merge_top_k,
    start_results,
)
from sentence_beam.transforms.index.faiss_module import load_faiss
from sentence_beam.transforms.index.lists import ListMemory
from sentence_beam.transforms.index.metric_vectors import name_metric
from sentence_beam.transforms.index.range_readers import check_keep
from sentence_beam.transforms.index.segment import SegmentFile, read_segment, view_flat_codes
from sentence_beam.transforms.index.segment_checks import make_changed_error
from sentence_beam.transforms.index.trained import (
    TrainedIndex,
    make_missing_trained_error,
    view_flat_rows,
)

_BLOCK_ROWS = 1 << 16
# faiss's parallel mode for lists chosen outside; its default would use one thread then
BY_QUERY = 3
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


class CodedPart:
    """Rows whose codes are in one index of faiss, by ids.

    `live` is the number of rows that are not deleted. `bits` has a bit for each id, set if its row
    is not deleted; None if no row is.
    """

    index: Any
    live: int
    bits: np.ndarray | None

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Return the positions of rows by their ids, int64 of any shape; -1 stays.

        A position is the number of a file << 32, and the row in it.
        """
        raise NotImplementedError

    def find_coded_top_k(self, queries: np.ndarray, k: int, coarse: Coarse | None) -> TopK:
        """Return gains float32 and positions int64 [q, k] of the best rows by their codes."""
        faiss = load_faiss()
        # The selector holds a bare pointer to the bits, which live as long as the part.
        selector = None if self.bits is None else faiss.IDSelectorBitmap(self.bits)
        metric = name_metric(self.index)

        def scan(which: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            some = queries[which] if len(which) < len(queries) else queries
            if coarse is None:
                params = faiss.SearchParameters(sel=selector)
                scores, ids = self.index.search(some, depth, params=params)
            else:
                scores, ids = _scan_lists(self.index, some, depth, coarse.of(which), selector)
            gains = np.where(ids >= 0, gains_to_scores(scores, metric), np.float32(-np.inf))
            return gains, self.positions(ids), gains[:, -1]

        return complete_top_k(scan, len(queries), k, self.live)


class Part(CodedPart):
    """An opened part of an index: a segment, or all ranges.

    `has_lists` says whether a coarse search chooses the lists to scan. Parts without lists override
    what reads `lists`.
    """

    has_lists = True
    lists: ListMemory

    def only(self, wanted: Sequence[np.ndarray]) -> Part:
        """Return the part with only the wanted rows, bool [n] of each file; files are shared."""
        raise NotImplementedError

    @property
    def live_positions(self) -> np.ndarray:
        """The positions of rows that are not deleted, int64 ascending."""
        raise NotImplementedError

    def count_matches(self) -> np.ndarray:
        """Return the number of rows in each list that are not deleted, int64 [nlist]."""
        raise NotImplementedError

    def check_lists(self, lists: np.ndarray) -> None:
        """Have some lists in memory, int64 of any shape; -1 is no list.

        Raises DamagedIndexError if one of them is not what was written.
        """
        raise NotImplementedError

    def held(self) -> AbstractContextManager[Any]:
        """Return the context in which lists, once checked, stay in memory."""
        return nullcontext()

    def alive(self, ids: np.ndarray) -> np.ndarray:
        """Return whether rows are not deleted, bool, by their ids."""
        if self.bits is None:
            return np.ones(len(ids), bool)
        return (self.bits[ids >> 3] >> (ids & 7).astype(np.uint8) & 1).astype(bool)

    def top_k(self, queries: np.ndarray, k: int, coarse: Coarse | None) -> TopK:
        """Return gains float32 and positions int64 [q, k]; `coarse` is None without lists."""
        if not self.live or coarse is None:
            return start_results(len(queries), k)
        with self.held():
            self.check_lists(coarse.lists)
            return self.find_coded_top_k(queries, k, coarse)

    def decoded(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the positions of live rows, int64 ascending, and their vectors, float32 [m, d].

        Returns None if scores are not computed from decoded vectors, as for RaBitQ.
        """
        if hasattr(self.index, "rabitq"):
            return None
        ids = [np.empty(0, np.int64)]
        vectors = [np.empty((0, self.index.d), np.float32)]
        with self.held():
            filled = np.flatnonzero(self.count_matches())
            self.check_lists(filled)
            for number in filled.tolist():
                codes, of_list = self.lists.one(number)
                live = self.alive(of_list)
                ids.append(of_list[live])
                vectors.append(self.decode(number, np.ascontiguousarray(codes[live])))
        positions = self.positions(np.concatenate(ids))
        order = np.argsort(positions)
        return positions[order], np.concatenate(vectors)[order]

    def decode(self, number: int, codes: np.ndarray) -> np.ndarray:
        """Return the vectors float32 [n, d] of codes in a list, contiguous uint8 [n, code size]."""
        vectors = np.empty((len(codes), self.index.d), np.float32)
        lists = np.full(len(codes), number, np.int64)
        pointers = map(load_faiss().swig_ptr, (codes, lists, vectors))
        self.index.decode_vectors(len(codes), *pointers)
        return vectors


class OpenSegment(Part):
    """An opened segment with lists; its index owns the mapped file, and has the trained quantizer.

    A list is checked before it is scanned for the first time, if the file has checksums.
    """

    def __init__(self, number: int, index: Any, file: SegmentFile, trained: TrainedIndex | None):
        self.index = index
        self.lists = ListMemory(index)
        self._number = number
        self._file = file
        self._trained = trained  # lives as long as the index
        self._unchecked = np.full(self.lists.count, file.checks is not None)
        self._keep_only(file.keep)

    def _keep_only(self, keep: np.ndarray | None) -> None:
        """Take rows other than `keep`, bool [n], as deleted; None keeps all."""
        self._keep = keep
        self.live = int(self.index.ntotal)
        self.bits = None
        if keep is not None and not keep.all():
            self.live = int(np.count_nonzero(keep))
            self.bits = np.packbits(keep, bitorder="little")

    @property
    def _is_live(self) -> np.ndarray:
        """bool [n], False if a row is deleted."""
        return np.ones(self.index.ntotal, bool) if self._keep is None else self._keep

    def only(self, wanted: Sequence[np.ndarray]) -> OpenSegment:
        part = copy.copy(self)
        part._keep_only(self._is_live & wanted[self._number])
        return part

    def positions(self, ids: np.ndarray) -> np.ndarray:
        return np.where(ids >= 0, ids | self._number << 32, -1)

    @property
    def live_positions(self) -> np.ndarray:
        return np.flatnonzero(self._is_live) | self._number << 32

    def count_matches(self) -> np.ndarray:
        """Return the number of rows in each list that are not deleted, int64 [nlist].

        Lists are not checked yet. Raises DamagedIndexError if one names a row that is none.
        """
        counts = self.lists.sizes.copy()
        filled = np.flatnonzero(counts)
        if self.bits is None or not len(filled):
            return counts
        try:
            is_live = self._is_live[self.lists.ids(filled)]
        except IndexError as error:
            raise make_changed_error(self._file.path) from error
        starts = np.cumsum(counts[filled]) - counts[filled]
        counts[filled] = np.add.reduceat(is_live, starts, dtype=np.int64)
        return counts

    def check_lists(self, lists: np.ndarray) -> None:
        wanted = np.unique(lists)
        wanted = wanted[wanted >= 0]
        checks = self._file.checks
        for number in wanted[self._unchecked[wanted]].tolist():
            if checks is not None:
                checks.check_list(self._file.path, number, *self.lists.one(number))
            self._unchecked[number] = False


class FlatSegment(OpenSegment):
    """An opened segment without lists, which is scanned whole: exact vectors, or codes."""

    has_lists = False

    @cached_property
    def _longest(self) -> float:
        return longest_row(view_flat_rows(self.index))

    def top_k(self, queries: np.ndarray, k: int, coarse: Coarse | None) -> TopK:
        if not self.live:
            return start_results(len(queries), k)
        if hasattr(self.index, "sq"):
            return self.find_coded_top_k(queries, k, None)
        metric = name_metric(self.index)
        vectors = view_flat_rows(self.index)
        best = start_results(len(queries), k)
        for start in range(0, len(vectors), _BLOCK_ROWS):
            block = vectors[start : start + _BLOCK_ROWS]
            numbers = np.arange(start, start + len(block))
            if self._keep is not None:
                numbers = numbers[self._keep[start : start + _BLOCK_ROWS]]
                block = vectors[numbers]
            if len(block):
                gains, rows = find_block_top_k(queries, block, k, metric, longest=self._longest)
                best = merge_top_k([best, (gains, np.where(rows >= 0, numbers[rows], -1))], k)
        return best[0], self.positions(best[1])

    def decoded(self) -> tuple[np.ndarray, np.ndarray]:
        rows = np.flatnonzero(self._is_live)
        if not hasattr(self.index, "sq"):
            return self.live_positions, view_flat_rows(self.index)[rows]
        codes = np.ascontiguousarray(view_flat_codes(self.index)[rows])
        return self.live_positions, self.index.sa_decode(codes)


def _scan_lists(
    index: Any, queries: np.ndarray, k: int, coarse: Coarse, selector: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and rows [q, k] of the best rows in the given lists.

    Calls the C function, because faiss's Python wrapper takes no selector.
    """
    faiss = load_faiss()
    scores = np.empty((len(queries), k), np.float32)
    rows = np.empty((len(queries), k), np.int64)
    params = faiss.SearchParametersIVF(sel=selector, nprobe=coarse.lists.shape[1])
    arrays = (coarse.lists, coarse.scores, scores, rows)
    pointers = map(faiss.swig_ptr, arrays)
    index.search_preassigned_c(
        len(queries), faiss.swig_ptr(queries), k, *pointers, False, params, None
    )
    return scores, rows


def open_segment(number: int, file: SegmentFile, trained: TrainedIndex | None) -> OpenSegment:
    """Open a segment's file, which is mapped; one with lists gets the trained index's quantizer.

    Raises DamagedIndexError if the file is not what was written, belongs to another trained index,
    or has another number of rows than `keep`.
    """
    if file.checks is not None:
        file.checks.check_head(file.path)
    index = read_segment(file.path)
    check_keep(str(file.path), index.ntotal, file.keep)
    if not hasattr(index, "quantizer"):
        return FlatSegment(number, index, file, None)
    if trained is None:
        raise make_missing_trained_error(file.path)
    trained.give(index, file.path)
    index.parallel_mode = BY_QUERY
    return OpenSegment(number, index, file, trained)
