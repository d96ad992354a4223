"""Building one segment: an immutable faiss file with local ids 0..n-1 in the order the rows came.

A segment with lists is written without its quantizer, which is in the file of the trained index.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sentence_beam.transforms.index.checks import SegmentChecks
from sentence_beam.transforms.index.exact import block_top_k
from sentence_beam.transforms.index.faiss_module import use_threads
from sentence_beam.transforms.index.range_file import (
    FIRST_BYTES,
    RangeHeader,
    damaged,
    header_bytes,
    is_range,
    lists_of,
)
from sentence_beam.transforms.index.trained import (
    TrainedIndex,
    flat_rows,
    read_index,
    without_quantizer,
)
from sentence_beam.transforms.index.vectors import (
    as_vectors,
    check_metric,
    faiss_metric,
    metric_name,
)

_ID_BYTES = 8  # of a row's number in a list


@dataclass(frozen=True)
class SegmentFile:
    """A segment to open: a local file and the rows to keep.

    `keep` bool [n] is False for deleted rows (None: no row is deleted). `checks` are the checksums
    of the parts that are read (None: no check).
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

    def __init__(self, trained: bytes, *, threads: int | None = None):
        """`trained` are the bytes that `train` returned."""
        self._threads = threads
        self._scores = 0.0
        self.trained = TrainedIndex.of(trained)  # by which the segment's file can be searched
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
        return sizes_of_lists(self._index)

    def copy(self, segment: SegmentFile, closeness: float | None = None) -> None:
        """Append the codes of another segment's live rows, in order.

        The segment must be of the same training; `closeness` is the segment's. Raises
        DamagedIndexError if its file cannot be read.
        """
        with use_threads(self._threads) as faiss:
            source = read_segment(faiss, segment.path)
            keep = np.ones(source.ntotal, bool)
            if segment.keep is not None:
                keep = np.asarray(segment.keep, bool)
            if hasattr(source, "quantizer"):
                _copy_lists(faiss, source, self._index, keep)
            elif keep.any():
                self._index.add_sa_codes(np.ascontiguousarray(flat_codes(faiss, source)[keep]))
        self._scores += (closeness or 0.0) * int(np.count_nonzero(keep))

    def add(self, block: np.ndarray) -> None:
        """Append rows float32 [n, dim]. Raises OptionError for rows that are not finite or zero."""
        if not len(block):
            return
        with use_threads(self._threads) as faiss:
            block = as_vectors(block, self._index.d, "segment")
            if not hasattr(self._index, "quantizer"):
                self._index.add(block)
                return
            block = self.trained.turned(block)
            scores, lists = nearest_lists(faiss, self._index, block, 1)
            self._index.add_core(len(block), faiss.swig_ptr(block), None, faiss.swig_ptr(lists))
            self._scores += float(scores.sum(dtype=np.float64))

    def by_list(self) -> ListedRows:
        """Return the rows added so far in the order of their lists, then as they came."""
        with use_threads(self._threads) as faiss:
            return listed_rows(faiss, self._index)

    def write(self, file: BinaryIO) -> None:
        """Write the segment to an open binary file."""
        with use_threads(self._threads) as faiss, without_quantizer(faiss, self._index):
            faiss.write_index(self._index, faiss.PyCallbackIOWriter(file.write, 1 << 20))

    def to_bytes(self) -> bytes:
        """Return the bytes of the segment's file."""
        file = BytesIO()
        self.write(file)
        return file.getvalue()

    def finish(self) -> WrittenSegment:
        """Return the segment's file with its checksums."""
        data = self.to_bytes()
        lengths = self.list_sizes * (self.code_size + _ID_BYTES)
        return WrittenSegment(data, SegmentChecks.of(data, lengths.tolist()), self.closeness)


def build_segment(
    trained: bytes, blocks: Iterable[np.ndarray], *, threads: int | None = None
) -> bytes:
    """Return the file of a segment: the trained index with the rows of blocks, float32 [n, dim].

    The bytes depend on the rows, not on the cut into blocks. Raises OptionError for rows that are
    not finite or zero.
    """
    writer = SegmentWriter(trained, threads=threads)
    for block in blocks:
        writer.add(block)
    return writer.to_bytes()


def flat_segment(
    blocks: Iterable[np.ndarray], dim: int, metric: str = "ip", *, threads: int | None = None
) -> bytes:
    """Return the file of a Flat segment (exact vectors).

    Held-out rows use it, and stores too small for lists.
    """
    check_metric(metric)
    with use_threads(threads) as faiss:
        empty = faiss.serialize_index(faiss.IndexFlat(dim, faiss_metric(faiss, metric))).tobytes()
    return build_segment(empty, blocks, threads=threads)


def read_segment(faiss: Any, path: str | Path) -> Any:
    """Return the faiss index in a segment's file, which is mapped and has no quantizer.

    Raises DamagedIndexError if the file holds no index.
    """
    return read_index(faiss, path, "index segment")


def list_sizes(path: str | Path) -> np.ndarray:
    """Return the rows in each list of a segment's or a range's file, int64 [lists].

    Deleted rows are among them. Empty for a segment without lists.
    """
    with open(path, "rb") as file:
        begins = file.read(FIRST_BYTES)
        if is_range(begins):
            file.seek(0)
            data = file.read(header_bytes(lists_of(begins)))
            return RangeHeader.from_bytes(data, str(path)).sizes.astype(np.int64)
    with use_threads(None) as faiss:
        return sizes_of_lists(read_segment(faiss, path))


def sizes_of_lists(index: Any) -> np.ndarray:
    """Return the rows in each list of an index, int64 [nlist]; empty without lists."""
    nlist = index.nlist if hasattr(index, "quantizer") else 0
    return np.array([index.invlists.list_size(number) for number in range(nlist)], np.int64)


def list_arrays(faiss: Any, index: Any, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return codes uint8 [n, code size] and local rows int64 [n] of a list.

    Both are views that are valid as long as the index.
    """
    lists = index.invlists  # every look at it costs more than the rest
    code_size = index.code_size
    size = lists.list_size(number)
    if not size:
        return np.empty((0, code_size), np.uint8), np.empty(0, np.int64)
    codes = faiss.rev_swig_ptr(lists.get_codes(number), size * code_size)
    return codes.reshape(size, code_size), faiss.rev_swig_ptr(lists.get_ids(number), size)


def listed_rows(faiss: Any, index: Any) -> ListedRows:
    """Return the rows of an index with lists, list by list."""
    sizes = sizes_of_lists(index)
    codes = np.empty((int(sizes.sum()), index.code_size), np.uint8)
    rows = np.empty(len(codes), np.int64)
    end = 0
    for number in np.flatnonzero(sizes).tolist():
        start = end
        end += int(sizes[number])
        codes[start:end], rows[start:end] = list_arrays(faiss, index, number)
    return ListedRows(sizes, codes, rows)


def rows_by_list(path: str | Path) -> ListedRows:
    """Return the rows of a segment's file or a range's, list by list.

    Raises DamagedIndexError if it is neither.
    """
    data = Path(path).read_bytes()
    if is_range(data):
        return _rows_of_range(data, str(path))
    with use_threads(None) as faiss:
        return listed_rows(faiss, read_segment(faiss, path))


def _rows_of_range(data: bytes, path: str) -> ListedRows:
    """Return the rows of a range; the sizes are those of its lists alone."""
    header = RangeHeader.from_bytes(data[: header_bytes(lists_of(data))], path)
    codes = np.empty((header.rows, header.code_size), np.uint8)
    if len(data) != header.offsets[-1]:
        raise damaged(path)
    for place in np.flatnonzero(header.sizes).tolist():
        here = slice(header.starts[place], header.starts[place + 1])
        size = int(header.sizes[place]) * header.code_size
        found = np.frombuffer(data, np.uint8, size, int(header.offsets[place]))
        codes[here] = found.reshape(-1, header.code_size)
    return ListedRows(header.sizes.astype(np.int64), codes, np.arange(header.rows))


def flat_vectors(path: str | Path) -> np.ndarray:
    """Return all vectors of a Flat segment's file, float32 [n, d]."""
    with use_threads(None) as faiss:
        index = read_segment(faiss, path)  # held: the rows are a view of it
        return flat_rows(faiss, index).copy()


def _copy_lists(faiss: Any, source: Any, target: Any, keep: np.ndarray) -> None:
    numbers = np.cumsum(keep) - 1 + target.ntotal  # the live rows' new local ids
    for number in range(source.nlist):
        codes, ids = list_arrays(faiss, source, number)
        if not len(ids):
            continue
        live = keep[ids]
        moved = np.ascontiguousarray(numbers[ids[live]])
        kept = np.ascontiguousarray(codes[live])
        target.invlists.add_entries(number, len(moved), faiss.swig_ptr(moved), faiss.swig_ptr(kept))
    target.ntotal += int(np.count_nonzero(keep))


def flat_codes(faiss: Any, index: Any) -> np.ndarray:
    """Return the codes of a segment without lists, uint8 [n, code size].

    This is a view that is valid as long as the index.
    """
    if not index.ntotal:
        return np.empty((0, index.code_size), np.uint8)
    return faiss.rev_swig_ptr(index.codes.data(), index.ntotal * index.code_size).reshape(
        index.ntotal, -1
    )


def nearest_lists(
    faiss: Any, index: Any, vectors: np.ndarray, nprobe: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return scores float32 and numbers int64 [n, nprobe] of each vector's nearest lists.

    They do not depend on the other vectors of the batch.
    """
    quantizer = faiss.downcast_index(index.quantizer)
    if hasattr(quantizer, "hnsw"):
        depth = max(quantizer.hnsw.efSearch, 2 * nprobe)
        return quantizer.search(vectors, nprobe, params=faiss.SearchParametersHNSW(efSearch=depth))
    centroids = flat_rows(faiss, quantizer)
    metric = metric_name(faiss, quantizer.metric_type)
    gains, lists = block_top_k(faiss, vectors, centroids, nprobe, metric, margin=1)
    if metric != "ip":
        gains = -gains
    return gains, lists
