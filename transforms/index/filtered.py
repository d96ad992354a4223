"""Search among some rows of opened segments: exact if they are few, else by lists.

Lists without a wanted row are never visited. The number of lists that a query needs is not known in
advance, so it doubles until the query's results no longer change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from sentence_beam.transforms.index.exact import (
    find_block_top_k,
    gains_to_scores,
    merge_top_k,
    start_results,
)
from sentence_beam.transforms.index.faiss_module import load_faiss
from sentence_beam.transforms.index.index_parts import Coarse, CodedPart, Part, TopK
from sentence_beam.transforms.index.lists import ID_BYTES, ListTable
from sentence_beam.transforms.index.metric_vectors import as_vectors, name_metric
from sentence_beam.transforms.index.segment_search import (
    SearchResult,
    SegmentedIndex,
    find_positions,
    rerank,
    result,
    split,
)
from sentence_beam.transforms.index.trained import TrainedIndex, centroids

# up to this many rows a matrix product is about as fast as visiting many lists, and exact
FEW = 50_000
_NPROBE = 16
_AHEAD = 4  # factor for the lists that are ordered at once: most queries search twice or thrice
_DEEPER = 4  # factor for the candidates of queries whose results changed
_DEEPEST = 64  # largest factor, against the first depth
MOST_BYTES = 256 << 20  # of the copies of a filter; more rows are tested one by one
Vectors = Callable[[np.ndarray, np.ndarray], np.ndarray]


class FilteredIndex:
    """The rows of opened segments that are wanted and not deleted."""

    def __init__(
        self, index: SegmentedIndex, wanted: Sequence[np.ndarray], vectors: Vectors | None = None
    ):
        """`wanted` is bool [n] for each opened file.

        `vectors(segment int32 [m], row int64 [m])` returns the vectors float32 [m, d] of rows in
        lists, which give the final ranking. If it is None, the codes do.
        """
        self._parts = [part.only(wanted) for part in index.parts]
        self._vectors = vectors
        self._index = index
        self._metric = index.metric

    @property
    def rows(self) -> int:
        """The number of wanted rows."""
        return sum(part.live for part in self._parts)

    @property
    def is_exact(self) -> bool:
        """Whether each wanted row is compared with each query."""
        return self._block is not None

    def search(
        self, queries: np.ndarray, k: int, *, nprobe: int | None = None, depth: int | None = None
    ) -> SearchResult:
        """Return the top k of each query float32 [q, d] among the wanted rows.

        The first `nprobe` lists (default 16) are searched first. If `vectors` rank the rows, they
        rank `depth` candidates at first, and more until the results no longer change.
        """
        if not self.rows:
            return result(*start_results(len(queries), k), self._metric)
        queries = as_vectors(queries, self._parts[0].index.d, "queries")
        if self._block is not None:
            positions, vectors = self._block
            gains, rows = find_block_top_k(queries, vectors, k, self._metric)
            return result(gains, np.where(rows >= 0, positions[rows], -1), self._metric)
        nprobe = nprobe or _NPROBE
        if self._vectors is None:
            return result(*self._search_lists(queries, k, nprobe), self._metric)
        return self._rank(queries, k, max(depth or k, k), nprobe)

    def _rank(self, queries: np.ndarray, k: int, depth: int, nprobe: int) -> SearchResult:
        """Return the top k by `vectors`; codes separate rows of similar distance badly."""
        assert self._vectors is not None
        best = result(*start_results(len(queries), k), self._metric)
        pending = np.arange(len(queries))
        most = min(_DEEPEST * depth, self.rows)
        while pending.size:
            rest = queries[pending]
            candidates = result(*self._search_lists(rest, depth, nprobe), self._metric)
            ranked = rerank(rest, candidates, k, self._vectors, self._metric)
            previous = SearchResult(*(column[pending] for column in best))
            changed = (find_positions(ranked) != find_positions(previous)).any(axis=1)
            for column, new in zip(best, ranked, strict=True):
                column[pending] = new
            pending = pending[changed]
            if depth >= most:
                break
            depth = min(_DEEPER * depth, most)
        return best

    @cached_property
    def _block(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Positions int64 [m], ascending, and vectors float32 [m, d] of all wanted rows.

        None if these are more than FEW, or if scores are not computed from vectors.
        """
        if self.rows > FEW:
            return None
        positions = []
        vectors = []
        for part in self._parts:
            if part.live:
                block = self._read_vectors(part)
                if block is None:
                    return None
                positions.append(block[0])
                vectors.append(block[1])
        all_positions = np.concatenate(positions)
        order = np.argsort(all_positions)
        return all_positions[order], np.concatenate(vectors)[order]

    def _read_vectors(self, part: Part) -> tuple[np.ndarray, np.ndarray] | None:
        """Return positions and vectors of a segment's wanted rows; None if it has no vectors."""
        if self._vectors is not None and part.has_lists:
            positions = part.live_positions
            return positions, self._vectors(*split(positions))
        return part.decoded()

    @cached_property
    def _parts_with_lists(self) -> list[Part]:
        return [part for part in self._parts if part.has_lists]

    @cached_property
    def _lists(self) -> tuple[np.ndarray, np.ndarray]:
        """The lists with a wanted row, int64 [l], and their centroids float32 [l, d]."""
        parts = self._parts_with_lists
        if not parts:
            return np.empty(0, np.int64), np.empty((0, 0), np.float32)
        counts = [part.count_matches() for part in parts]
        numbers = np.flatnonzero(sum(counts[1:], counts[0]))
        return numbers, centroids(parts[0].index)[numbers]

    def _search_lists(self, queries: np.ndarray, k: int, nprobe: int) -> TopK:
        """Return gains and positions [q, k] of all parts without lists and of the nearest lists.

        The number of lists doubles until a query's results no longer change.
        """
        lists = len(self._lists[0])
        flat = [part.top_k(queries, k, None) for part in self._parts if not part.has_lists]
        gains, positions = merge_top_k([start_results(len(queries), k), *flat], k)
        queries = self._index.turned(queries)
        pending = np.arange(len(queries))
        last = min(k, self.rows) - 1
        done = 0
        end = min(nprobe, lists)
        ahead = min(_AHEAD * end, lists)
        scores, numbers = start_results(len(queries), 0)
        while pending.size and done < end:
            rest = queries[pending]
            if numbers.shape[1] < end:
                scores, numbers = self._find_nearest(rest, max(ahead, end))
            coarse = Coarse.cut(scores, numbers, done, end)
            new = self._scan_lists(rest, k, coarse)
            best_gains, best = merge_top_k([(gains[pending], positions[pending]), *new], k)
            is_final = (best == positions[pending]).all(axis=1) & (best[:, last] >= 0)
            gains[pending] = best_gains
            positions[pending] = best
            if done:
                pending = pending[~is_final]
                scores = scores[~is_final]
                numbers = numbers[~is_final]
            done = end
            end = min(2 * end, lists)
        return gains, positions

    def _scan_lists(self, queries: np.ndarray, k: int, coarse: Coarse) -> list[TopK]:
        """Return gains and positions [q, k] of the given lists, once or of each part."""
        if self._matched is not None:
            return [self._matched.top_k(queries, k, coarse)]
        return [part.top_k(queries, k, coarse) for part in self._parts_with_lists]

    @cached_property
    def _matched(self) -> MatchedLists | None:
        """Copies of the lists' wanted rows; None if they would take too much memory."""
        assert self._index.trained is not None, "parts with lists have its quantizer"
        return MatchedLists.from_parts(self._parts_with_lists, self._index.trained)

    def _find_nearest(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and numbers [q, count] of each query's nearest lists with wanted rows."""
        numbers, centres = self._lists
        quantizer = load_faiss().downcast_index(self._parts_with_lists[0].index.quantizer)
        metric = name_metric(quantizer)
        gains, places = find_block_top_k(queries, centres, count, metric, margin=1)
        return gains_to_scores(gains, metric), numbers[places]


class MatchedLists(CodedPart):
    """The live rows of several parts, copied when their list is first visited.

    So scans test no row. The ids of its rows are their positions.
    """

    bits = None

    def __init__(self, parts: Sequence[Part], trained: TrainedIndex):
        self._parts = parts
        self._trained = trained  # has the quantizer of the index
        self.index = trained.make_empty_copy()
        self.live = sum(part.live for part in parts)
        self._table = ListTable(self.index)
        self._is_copied = np.zeros(self.index.nlist, bool)
        self._copies: list[np.ndarray] = []
        self._lock = threading.Lock()

    @classmethod
    def from_parts(cls, parts: Sequence[Part], trained: TrainedIndex) -> MatchedLists | None:
        """Return the lists of parts; None if copies of all live rows would take too much memory."""
        rows = sum(part.live for part in parts)
        if rows * (trained.index.code_size + ID_BYTES) > MOST_BYTES:
            return None
        return cls(parts, trained)

    def positions(self, ids: np.ndarray) -> np.ndarray:
        return ids

    def top_k(self, queries: np.ndarray, k: int, coarse: Coarse) -> TopK:
        """Return gains float32 and positions int64 [q, k] of the best rows in the given lists.

        Raises DamagedIndexError if a list is not what was written.
        """
        with self._lock:
            missing = coarse.lists[~self._is_copied[coarse.lists]]
            self._copy(np.unique(missing))
        return self.find_coded_top_k(queries, k, coarse)

    def _copy(self, lists: np.ndarray) -> None:
        """Copy the live rows of lists, int64 ascending."""
        if not len(lists):
            return
        live = [_take_live_rows(part, lists) for part in self._parts]
        places, codes, ids = (np.concatenate(column) for column in zip(*live, strict=True))
        if len(self._parts) > 1:
            order = np.argsort(places, kind="stable")
            codes = codes[order]
            ids = ids[order]
        sizes = np.bincount(places, minlength=len(lists))
        starts = np.cumsum(sizes) - sizes
        data = _arrange_by_list(codes, ids, starts, sizes)
        self._copies.append(data)
        row_bytes = self.index.code_size + ID_BYTES
        self._table.resize(lists, sizes)
        self._table.place(lists, data.ctypes.data + starts * row_bytes)
        self._is_copied[lists] = True


def _arrange_by_list(
    codes: np.ndarray, ids: np.ndarray, starts: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """Return the codes and then the ids of each list, uint8, from those of all their rows."""
    flat = codes.reshape(-1)
    id_bytes = ids.view(np.uint8)
    size = codes.shape[1]
    filled = sizes > 0
    pieces = [np.empty(0, np.uint8)]
    for start, stop in zip(starts[filled].tolist(), (starts + sizes)[filled].tolist(), strict=True):
        pieces.append(flat[start * size : stop * size])
        pieces.append(id_bytes[start * ID_BYTES : stop * ID_BYTES])
    return np.concatenate(pieces)


def _take_live_rows(part: Part, lists: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the live rows of a part in some lists, int64 [m].

    For each row: the place of its list among `lists` int64, its code uint8, its position int64.
    """
    with part.held():
        part.check_lists(lists)
        ids = part.lists.ids(lists)
        live = part.alive(ids)
        codes = part.lists.codes(lists)[live]
    places = np.repeat(np.arange(len(lists)), part.lists.sizes[lists])
    return places[live], codes, part.positions(ids[live])
