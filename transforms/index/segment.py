"""Building one segment: an immutable faiss file with local ids 0..n-1 in the order the rows came.

A segment with lists is written without its quantizer, which is in the file of the trained index.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sentence_beam.transforms.index.exact import find_block_top_k, gains_to_scores
from sentence_beam.transforms.index.faiss_module import load_faiss
from sentence_beam.transforms.index.lists import ID_BYTES, ListMemory
from sentence_beam.transforms.index.metric_vectors import as_vectors, find_faiss_metric, name_metric
from sentence_beam.transforms.index.range_file import is_range
from sentence_beam.transforms.index.range_readers import MappedRange
from sentence_beam.transforms.index.segment_checks import SegmentChecks
from sentence_beam.transforms.index.trained import (
    TrainedIndex,
    dump_index,
    read_index,
    view_flat_rows,
)


@dataclass(frozen=True)
class SegmentFile:
    """A segment to open: a local file and the rows to keep.

    `keep` bool [n] is False for deleted rows (None: no row is deleted). `checks` are the checksums
    of the parts that are read (None: the caller has checked the file).
    """

    path: str | Path
    keep: np.ndarray | None = None
    checks: SegmentChecks | None = None


@dataclass(frozen=True)
class WrittenSegment:
    """The bytes of a segment's file and their checksums.

    `closeness` is the mean score of its rows with their nearest centroid.
    """

    data: bytes
    checks: SegmentChecks
    closeness: float | None = None


@dataclass(frozen=True)
class ListedRows:
    """Rows in the order of their lists: `sizes` int64 [nlist] are the rows of each list.

    `codes` uint8 [n, code size], `rows` int64 [n] local rows.
    """

    sizes: np.ndarray
    codes: np.ndarray
    rows: np.ndarray

    def only(self, keep: np.ndarray) -> ListedRows:
        """Return those of the rows for which `keep`, bool by local row, is true."""
        kept = keep[self.rows]
        lists = np.repeat(np.arange(len(self.sizes)), self.sizes)[kept]
        sizes = np.bincount(lists, minlength=len(self.sizes))
        return ListedRows(sizes, self.codes[kept], self.rows[kept])


class SegmentWriter:
    """Builds a segment from a copy of the trained index: codes of other segments, then new rows.

    The bytes depend on the rows, not on how they were cut into blocks.
    """

    def __init__(self, trained: bytes):
        """`trained` are the bytes that `train` returned."""
        self._scores = 0.0
        self.trained = TrainedIndex.from_bytes(
            trained
        )  # by which the segment's file can be searched
        self._index = self.trained.index

    @property
    def rows(self) -> int:
        """The number of rows added so far."""
        return int(self._index.ntotal)

    @property
    def closeness(self) -> float | None:
        """The mean score of the rows with their nearest centroid; None without lists or rows."""
        if not self.rows or not hasattr(self._index, "quantizer"):
            return None
        return self._scores / self.rows

    @property
    def code_size(self) -> int:
        """The bytes of a row's code."""
        return int(self._index.code_size)

    @property
    def list_sizes(self) -> np.ndarray:
        """Rows in each list, int64 [nlist]; empty without lists."""
        return ListMemory(self._index).sizes

    def copy(self, segment: SegmentFile, closeness: float | None = None) -> None:
        """Append the codes of another segment's live rows, in order.

        The segment must be of the same training; `closeness` is the segment's. Raises
        DamagedIndexError if its file cannot be read.
        """
        source = read_segment(segment.path)
        keep = np.ones(source.ntotal, bool) if segment.keep is None else segment.keep
        if hasattr(source, "quantizer"):
            _copy_lists(source, self._index, keep)
        elif keep.any():
            self._index.add_sa_codes(np.ascontiguousarray(view_flat_codes(source)[keep]))
        self._scores += (closeness or 0.0) * int(np.count_nonzero(keep))

    def add(self, block: np.ndarray) -> None:
        """Append rows float32 [n, dim]. Raises OptionError for rows that are not finite or zero."""
        if not len(block):
            return
        block = as_vectors(block, self._index.d, "segment")
        if not hasattr(self._index, "quantizer"):
            self._index.add(block)
            return
        block = self.trained.turned(block)
        scores, lists = find_nearest_lists(self._index, block, 1)
        pointer = load_faiss().swig_ptr
        self._index.add_core(len(block), pointer(block), None, pointer(lists))
        self._scores += float(scores.sum(dtype=np.float64))

    def list_rows(self) -> ListedRows:
        """Return the rows added so far in the order of their lists, then as they came."""
        return _list_rows(self._index)

    def to_bytes(self) -> bytes:
        """Return the bytes of the segment's file."""
        return dump_index(self._index)

    def finish(self) -> WrittenSegment:
        """Return the segment's file with its checksums."""
        data = self.to_bytes()
        lengths = self.list_sizes * (self.code_size + ID_BYTES)
        return WrittenSegment(data, SegmentChecks.from_data(data, lengths.tolist()), self.closeness)


def flat_segment(blocks: Iterable[np.ndarray], dim: int, metric: str = "ip") -> bytes:
    """Return the file of a Flat segment (exact vectors), of rows float32 [n, dim] in blocks.

    Held-out rows use it, and stores too small for lists.
    """
    faiss = load_faiss()
    empty = faiss.serialize_index(faiss.IndexFlat(dim, find_faiss_metric(metric)))
    writer = SegmentWriter(empty.tobytes())
    for block in blocks:
        writer.add(block)
    return writer.to_bytes()


def read_segment(path: str | Path) -> Any:
    """Return the faiss index in a segment's file, which is mapped and has no quantizer.

    Raises DamagedIndexError if the file holds no index.
    """
    return read_index(path, "index segment")


def list_sizes(path: str | Path) -> np.ndarray:
    """Return the rows in each list of a segment's or a range's file, int64 [lists].

    Deleted rows are among them. Empty for a segment without lists.
    """
    if is_range(path):
        return MappedRange(path).header().sizes.astype(np.int64)
    return ListMemory(read_segment(path)).sizes


def _list_rows(index: Any) -> ListedRows:
    """Return the rows of an index with lists, list by list."""
    lists = ListMemory(index)
    every = np.arange(lists.count)
    return ListedRows(lists.sizes, lists.codes(every), lists.ids(every))


def read_rows_by_list(path: str | Path) -> ListedRows:
    """Return the rows of a segment's file or a range's, list by list.

    Raises DamagedIndexError if it is neither.
    """
    if is_range(path):
        return _list_rows_of_range(MappedRange(path))
    return _list_rows(read_segment(path))


def _list_rows_of_range(reader: MappedRange) -> ListedRows:
    """Return the rows of a range; the sizes are those of its lists alone."""
    header = reader.header()
    codes = [np.empty(0, np.uint8)]
    every = np.arange(len(header.sizes))
    for rows, data in zip(header.sizes.tolist(), reader.at_hand(header, every), strict=True):
        codes.append(data[: rows * header.code_size])
    joined = np.concatenate(codes).reshape(-1, header.code_size)
    return ListedRows(header.sizes.astype(np.int64), joined, np.arange(header.rows))


def read_flat_vectors(path: str | Path) -> np.ndarray:
    """Return all vectors of a Flat segment's file, float32 [n, d]."""
    index = read_segment(path)  # held: the rows are a view of it
    return view_flat_rows(index).copy()


def _copy_lists(source: Any, target: Any, keep: np.ndarray) -> None:
    pointer = load_faiss().swig_ptr
    numbers = np.cumsum(keep) - 1 + target.ntotal  # the live rows' new local ids
    lists = ListMemory(source)
    for number in np.flatnonzero(lists.sizes).tolist():
        codes, ids = lists.one(number)
        live = keep[ids]
        moved = np.ascontiguousarray(numbers[ids[live]])
        kept = np.ascontiguousarray(codes[live])
        target.invlists.add_entries(number, len(moved), pointer(moved), pointer(kept))
    target.ntotal += int(np.count_nonzero(keep))


def view_flat_codes(index: Any) -> np.ndarray:
    """Return the codes of a segment without lists, uint8 [n, code size].

    This is a view that is valid as long as the index.
    """
    if not index.ntotal:
        return np.empty((0, index.code_size), np.uint8)
    codes = load_faiss().rev_swig_ptr(index.codes.data(), index.ntotal * index.code_size)
    return codes.reshape(index.ntotal, -1)


def find_nearest_lists(
    index: Any, vectors: np.ndarray, nprobe: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return scores float32 and numbers int64 [n, nprobe] of each vector's nearest lists.

    They do not depend on the other vectors of the batch.
    """
    faiss = load_faiss()
    quantizer = faiss.downcast_index(index.quantizer)
    if hasattr(quantizer, "hnsw"):
        depth = max(quantizer.hnsw.efSearch, 2 * nprobe)
        return quantizer.search(vectors, nprobe, params=faiss.SearchParametersHNSW(efSearch=depth))
    metric = name_metric(quantizer)
    gains, lists = find_block_top_k(vectors, view_flat_rows(quantizer), nprobe, metric, margin=1)
    return gains_to_scores(gains, metric), lists
