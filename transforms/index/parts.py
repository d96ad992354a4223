"""An opened segment and the scan of each kind: lists, flat vectors, flat codes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.index.checks import changed
from sentence_beam.transforms.index.exact import (
    block_top_k,
    complete_top_k,
    gains_to_scores,
    longest_row,
    merge_top_k,
    no_results,
)
from sentence_beam.transforms.index.faiss_module import load_faiss
from sentence_beam.transforms.index.list_memory import ListMemory, memory_of, sizes_before
from sentence_beam.transforms.index.segment import (
    SegmentFile,
    flat_codes,
    list_arrays,
    read_segment,
    sizes_of_lists,
)
from sentence_beam.transforms.index.trained import (
    TrainedIndex,
    fingerprint,
    flat_rows,
    lacks_quantizer,
)
from sentence_beam.transforms.index.vectors import metric_name

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
    def bits(self) -> np.ndarray | None:
        """A bit for each row, set if it is not deleted; None if no row is."""
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
            return coded_top_k(faiss, self, queries, k, coarse)
        if hasattr(self.index, "sq"):
            return coded_top_k(faiss, self, queries, k, None)
        gains, rows = self._flat_top_k(faiss, queries, k, metric)
        return gains, self.positions(rows)

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Return the positions of local rows, int64 of any shape; -1 stays."""
        return np.where(ids >= 0, ids | self.number << 32, -1)

    def alive(self, ids: np.ndarray) -> np.ndarray:
        """Return whether local rows are not deleted, bool."""
        return self.is_live[ids]

    @property
    def live_positions(self) -> np.ndarray:
        """The positions of rows that are not deleted, int64 ascending."""
        return np.flatnonzero(self.is_live) | self.number << 32

    def only(self, wanted: np.ndarray) -> OpenSegment:
        """Return the segment with only the wanted rows, bool [n]; both share the open file."""
        keep = wanted
        if self.keep is not None:
            keep = self.keep & wanted
        part = replace(self, keep=keep)
        if self.has_lists:
            # a list that one of them has checked, the other does not check again
            part.__dict__["_unchecked"] = self._unchecked
            part.__dict__["memory"] = self.memory
        return part

    @cached_property
    def list_sizes(self) -> np.ndarray:
        """The rows in each list, int64 [nlist], including deleted rows."""
        return self.memory.sizes

    @cached_property
    def memory(self) -> ListMemory:
        """Where the lists are."""
        sizes = None
        if self.file.checks is not None:
            sizes = sizes_before(self.file.path, self.file.checks.head, self.index)
        if sizes is None:
            sizes = sizes_of_lists(self.index)
        return memory_of(self.index, sizes)

    def matches_of_lists(self, faiss: Any) -> np.ndarray:
        """The number of rows in each list that are not deleted, int64 [nlist].

        Lists are not checked yet. Raises DamagedIndexError if one names a row that is none.
        """
        counts = self.list_sizes.copy()
        filled = np.flatnonzero(counts)
        if self.bits is None or not len(filled):
            return counts
        try:
            is_live = self.is_live[self.memory.ids(filled)]
        except IndexError as error:
            raise changed(self.file.path) from error
        starts = np.cumsum(counts[filled]) - counts[filled]
        counts[filled] = np.add.reduceat(is_live, starts, dtype=np.int64)
        return counts

    @cached_property
    def is_live(self) -> np.ndarray:
        """bool [n], False if a row is deleted."""
        if self.keep is None:
            return np.ones(self.index.ntotal, bool)
        return self.keep

    def decoded(self, faiss: Any) -> tuple[np.ndarray, np.ndarray] | None:
        """The positions of live rows, int64 ascending, and their decoded vectors, float32 [m, d].

        None if scores are not computed from decoded vectors, as for RaBitQ.
        """
        if hasattr(self.index, "rabitq"):
            return None
        if self.has_lists:
            return decoded_lists(faiss, self)
        rows = np.flatnonzero(self.is_live)
        if not hasattr(self.index, "sq"):
            return self.positions(rows), flat_rows(faiss, self.index)[rows]
        return self.positions(rows), self.index.sa_decode(
            np.ascontiguousarray(flat_codes(faiss, self.index)[rows])
        )

    @cached_property
    def _unchecked(self) -> np.ndarray:
        """The lists that are not checked yet, bool [nlist]; `check_lists` updates it."""
        return np.full(self.index.nlist, self.file.checks is not None)

    def held(self) -> AbstractContextManager[Any]:
        """Return the context in which lists, once checked, stay in memory: they always do."""
        return nullcontext()

    def check_lists(self, faiss: Any, lists: np.ndarray) -> None:
        """Raise DamagedIndexError if one of these lists is not what was written; -1 is no list."""
        if self.file.checks is None:
            return
        wanted = np.unique(lists)
        wanted = wanted[wanted >= 0]
        wanted = wanted[self._unchecked[wanted] & (self.list_sizes[wanted] > 0)]
        for number in wanted.tolist():
            codes, rows = list_arrays(faiss, self.index, number)
            self.file.checks.check_list(self.file.path, number, codes, rows)
            self._unchecked[number] = False

    def _flat_top_k(self, faiss: Any, queries: np.ndarray, k: int, metric: str) -> TopK:
        vectors = flat_rows(faiss, self.index)
        best = no_results(len(queries), k)
        for start in range(0, len(vectors), _BLOCK_ROWS):
            block = vectors[start : start + _BLOCK_ROWS]
            numbers = np.arange(start, start + len(block))
            if self.bits is not None and self.keep is not None:
                numbers = numbers[self.keep[start : start + _BLOCK_ROWS]]
                block = vectors[numbers]
            if len(block):
                gains, rows = block_top_k(faiss, queries, block, k, metric, longest=self._longest)
                best = merge_top_k(best, (gains, np.where(rows >= 0, numbers[rows], -1)), k)
        return best


class DecodedPart(Protocol):
    """A part of an index with lists, whose codes decode to vectors."""

    @property
    def index(self) -> Any: ...

    def matches_of_lists(self, faiss: Any) -> np.ndarray: ...

    def check_lists(self, faiss: Any, lists: np.ndarray) -> None: ...

    def alive(self, ids: np.ndarray) -> np.ndarray: ...

    def positions(self, ids: np.ndarray) -> np.ndarray: ...


def decoded_lists(faiss: Any, part: DecodedPart) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of live rows, int64 ascending, and their vectors, float32 [m, d]."""
    lists = np.flatnonzero(part.matches_of_lists(faiss))
    part.check_lists(faiss, lists)
    found = [_decoded_list(faiss, part, number) for number in lists.tolist()]
    ids = np.concatenate([np.empty(0, np.int64), *(one[0] for one in found)])
    vectors = np.concatenate([np.empty((0, part.index.d), np.float32), *(one[1] for one in found)])
    positions = part.positions(ids)
    order = np.argsort(positions)
    return positions[order], vectors[order]


def _decoded_list(faiss: Any, part: DecodedPart, number: int) -> tuple[np.ndarray, np.ndarray]:
    codes, ids = list_arrays(faiss, part.index, number)
    live = part.alive(ids)
    codes = np.ascontiguousarray(codes[live])
    ids = ids[live]
    vectors = np.empty((len(ids), part.index.d), np.float32)
    lists = np.full(len(ids), number, np.int64)
    part.index.decode_vectors(len(ids), *map(faiss.swig_ptr, (codes, lists, vectors)))
    return ids, vectors


class CodedPart(Protocol):
    """A part of an index whose codes faiss scores.

    `bits` has a bit for each id, set if its row is not deleted; None if no row is.
    """

    @property
    def index(self) -> Any: ...

    @property
    def live(self) -> int: ...

    @property
    def bits(self) -> np.ndarray | None: ...

    def positions(self, ids: np.ndarray) -> np.ndarray: ...


def coded_top_k(
    faiss: Any, part: CodedPart, queries: np.ndarray, k: int, coarse: Coarse | None
) -> TopK:
    """Return gains float32 and positions int64 [q, k] of the best rows of a part by their codes."""
    # The selector holds a bare pointer to the bits, which live as long as the part.
    if part.bits is None:
        selector = None
    else:
        selector = faiss.IDSelectorBitmap(part.bits)
    metric = metric_name(faiss, part.index.metric_type)

    def scan(which: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        some = queries
        if len(which) < len(queries):
            some = queries[which]
        if coarse is None:
            scores, ids = part.index.search(
                some, depth, params=faiss.SearchParameters(sel=selector)
            )
        else:
            scores, ids = _scan_lists(faiss, part.index, some, depth, coarse.of(which), selector)
        gains = np.where(ids >= 0, gains_to_scores(scores, metric), np.float32(-np.inf))
        return gains, part.positions(ids), gains[:, -1]

    return complete_top_k(scan, len(queries), k, part.live)


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
        index.parallel_mode = BY_QUERY
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
