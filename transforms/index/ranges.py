"""The opened ranges of an index: all lists in one table, which one call of faiss scans.

A range's header is read when one of its lists is first visited, and a list is checked then.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.index.exact import no_results
from sentence_beam.transforms.index.list_memory import ListMemory
from sentence_beam.transforms.index.list_table import ListTable
from sentence_beam.transforms.index.parts import (
    BY_QUERY,
    Coarse,
    OpenSegment,
    TopK,
    coded_top_k,
    decoded_lists,
)
from sentence_beam.transforms.index.range_file import RangeHeader, blocks_of, damaged
from sentence_beam.transforms.index.range_readers import RangeFile, check_keep
from sentence_beam.transforms.index.trained import TrainedIndex

SPARE = 0.25  # of the bytes of wanted lists that a request may read beside them, elsewhere
AT_ONCE = 16  # requests to the storage of ranges
HELD_BYTES = 256 << 20  # of lists that came from elsewhere, between searches


class HeldLists:
    """Lists in memory that came from elsewhere, the least recently used first."""

    def __init__(self) -> None:
        self._lists: OrderedDict[int, np.ndarray] = OrderedDict()
        self._bytes = 0

    def put(self, number: int, data: np.ndarray) -> None:
        """Hold a list."""
        self._lists[number] = data
        self._bytes += len(data)

    def use(self, numbers: Iterable[int]) -> None:
        """Mark lists as used last; those that are not held are skipped."""
        for number in numbers:
            if number in self._lists:
                self._lists.move_to_end(number)

    def drop(self, most: int) -> list[int]:
        """Let lists go until at most so many bytes are held, and return them."""
        gone = []
        while self._bytes > most:
            number, data = self._lists.popitem(last=False)
            self._bytes -= len(data)
            gone.append(number)
        return gone


class OpenRanges:
    """The opened ranges of an index, as one part of it.

    `places` are those of the ranges among the files to open. A position has the place of the range
    and the row in it.
    """

    has_lists = True

    def __init__(
        self, faiss: Any, places: Sequence[int], ranges: Sequence[RangeFile], trained: TrainedIndex
    ):
        self.places = np.array(places, np.int64)
        self.trained = trained
        self._ranges = list(ranges)
        self._table = ListTable(faiss, trained.empty_copy())
        self.index = self._table.index
        self.index.parallel_mode = BY_QUERY
        self._headers: list[RangeHeader | None] = [None] * len(ranges)
        self.ready = np.zeros(self.index.nlist, bool)
        self._held = HeldLists()
        self._stays = all(part.reader.stays for part in ranges)
        # a list that does not stay is held until the search that needs it ends
        self._lock = threading.RLock()
        self._lives = [part.rows - part.deleted for part in ranges]
        self._bits: np.ndarray | None = None
        if any(part.deleted for part in ranges):
            self._bits = np.zeros(max(part.bits.stop for part in ranges), np.uint8)
        self._by_id = np.argsort([part.first_id for part in ranges], kind="stable")
        self._first_ids = np.array([part.first_id for part in ranges], np.int64)[self._by_id]
        self._by_list = np.argsort([part.first for part in ranges], kind="stable")
        self._firsts = np.array([part.first for part in ranges], np.int64)[self._by_list]

    @property
    def live(self) -> int:
        """The number of rows that are not deleted."""
        return sum(self._lives)

    @property
    def bits(self) -> np.ndarray | None:
        """A bit for each id, set if its row is not deleted; None if no row is."""
        return self._bits

    @property
    def list_sizes(self) -> np.ndarray:
        """The rows in each list, int64 [nlist], including deleted rows."""
        self._read_headers(np.arange(len(self._ranges)))
        return self._table.sizes

    def only(self, wanted: Sequence[np.ndarray]) -> OpenRanges:
        """Return the ranges with only the wanted rows, bool [rows] of each; lists are shared."""
        self._read_headers(np.arange(len(self._ranges)))
        found = copy.copy(self)
        found._bits = np.zeros(max(part.bits.stop for part in self._ranges), np.uint8)
        found._lives = []
        for number, (part, rows) in enumerate(zip(self._ranges, wanted, strict=True)):
            kept = rows & self._kept(number)
            found._bits[part.bits] = np.packbits(kept, bitorder="little")
            found._lives.append(int(np.count_nonzero(kept)))
        return found

    def _kept(self, number: int) -> np.ndarray:
        """Return bool [rows] of a range whose header has been read, False for rows not wanted."""
        part = self._ranges[number]
        if self._bits is None:
            return np.ones(part.rows, bool)
        bits = self._bits[part.bits]
        return np.unpackbits(bits, count=part.rows, bitorder="little").astype(bool)

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Return the positions of rows by their ids, int64 of any shape; -1 stays."""
        at = np.searchsorted(self._first_ids, ids, "right") - 1
        places = self.places[self._by_id]
        return np.where(ids >= 0, places[at] << 32 | ids - self._first_ids[at], -1)

    def alive(self, ids: np.ndarray) -> np.ndarray:
        """Return whether rows are not deleted, bool, by their ids."""
        if self._bits is None:
            return np.ones(len(ids), bool)
        return (self._bits[ids >> 3] >> (ids & 7).astype(np.uint8) & 1).astype(bool)

    @property
    def live_positions(self) -> np.ndarray:
        """The positions of rows that are not deleted, int64 ascending."""
        self._read_headers(np.arange(len(self._ranges)))
        found = [np.empty(0, np.int64)]
        for number, place in enumerate(self.places.tolist()):
            found.append(np.flatnonzero(self._kept(number)) | place << 32)
        return np.concatenate(found)

    def matches_of_lists(self, faiss: Any) -> np.ndarray:
        """The number of rows in each list that are not deleted, int64 [nlist]."""
        counts = self.list_sizes.copy()
        if self._bits is None:
            return counts
        for number, (part, header) in enumerate(zip(self._ranges, self._headers, strict=True)):
            if header is not None and self._lives[number] < part.rows:
                kept = np.concatenate([[0], np.cumsum(self._kept(number))])
                counts[part.first : part.stop] = np.diff(kept[header.starts])
        return counts

    def top_k(self, faiss: Any, queries: np.ndarray, k: int, coarse: Coarse | None) -> TopK:
        """Return gains float32 and positions int64 [q, k] of the best rows in the given lists."""
        if not self.live or coarse is None:
            return no_results(len(queries), k)
        with self.held():
            self.check_lists(faiss, coarse.lists)
            return coded_top_k(faiss, self, queries, k, coarse)

    def decoded(self, faiss: Any) -> tuple[np.ndarray, np.ndarray] | None:
        """The positions of live rows, int64 ascending, and their decoded vectors, float32 [m, d].

        None if scores are not computed from decoded vectors, as for RaBitQ.
        """
        if hasattr(self.index, "rabitq"):
            return None
        with self.held():
            return decoded_lists(faiss, self)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep all lists in memory that are checked in the block."""
        if self._stays:
            yield
            return
        with self._lock:
            try:
                yield
            finally:
                self.ready[self._held.drop(HELD_BYTES)] = False

    @property
    def memory(self) -> ListMemory:
        """Where lists are that have been checked and are held."""
        return self._table.memory

    def check_lists(self, faiss: Any, lists: np.ndarray) -> None:
        """Have these lists in memory; -1 is no list.

        Raises DamagedIndexError if one of them is not what was written.
        """
        wanted = np.unique(lists)
        wanted = wanted[wanted >= 0]
        missing = wanted[~self.ready[wanted]]
        if not self._stays:
            self._held.use(wanted.tolist())
        if not len(missing):
            return
        with self._lock:
            owner = np.searchsorted(self._firsts, missing, "right") - 1
            self._read_headers(np.unique(self._by_list[owner[owner >= 0]]))
            self._read_lists(missing)

    def _read_headers(self, numbers: np.ndarray) -> None:
        """Read headers that have not been read, and the deleted rows of their ranges."""
        missing = [number for number in numbers.tolist() if self._headers[number] is None]
        if not missing:
            return
        at_once = AT_ONCE
        if self._stays:
            at_once = 1
        with self._lock, ThreadPoolExecutor(at_once) as pool:
            headers = pool.map(self._header, missing)
            for number, header in zip(missing, headers, strict=True):
                part = self._ranges[number]
                if self._bits is not None:
                    self._bits[part.bits] = _bits_of(part)
                self._table.resize(part.first, header.sizes)
                self._headers[number] = header

    def _header(self, number: int) -> RangeHeader:
        part = self._ranges[number]
        header = part.reader.header()
        said = (header.first, header.stop, header.rows, header.first_id)
        if said != (part.first, part.stop, part.rows, part.first_id):
            raise damaged(part.path)
        if header.code_size != self.index.code_size:
            raise DamagedIndexError(
                f"{part.path}: its lists are not of the index's quantizer; build the index again"
            )
        return header

    def _read_lists(self, missing: np.ndarray) -> None:
        """Read lists, int64 ascending."""
        runs = []
        for part, header in zip(self._ranges, self._headers, strict=True):
            here = missing[(missing >= part.first) & (missing < part.stop)] - part.first
            if header is None or not len(here):
                continue
            here = here[header.sizes[here] > 0]
            found = part.reader.at_hand(header, here)
            at_hand = np.array([data is not None for data in found], bool)
            self._put(part.first + here[at_hand], [data for data in found if data is not None])
            spare = 0.0 if part.reader.stays else SPARE
            runs += [(part, header, *run) for run in blocks_of(header, here[~at_hand], spare)]
        if runs:
            with ThreadPoolExecutor(min(AT_ONCE, len(runs))) as pool:
                fetched = list(pool.map(_fetched, runs))
            for (part, header, first, last), data in zip(runs, fetched, strict=True):
                places = np.arange(first, last + 1)
                lists = part.first + places[header.sizes[places] > 0]
                self._put(lists, data)
                self.ready[lists] = True
        self.ready[missing] = True

    def _put(self, lists: np.ndarray, found: Sequence[np.ndarray]) -> None:
        """Put the bytes of lists that are not empty into the table."""
        self._table.place(lists, np.array([data.ctypes.data for data in found], np.int64))
        if not self._stays:
            for number, data in zip(lists.tolist(), found, strict=True):
                self._held.put(number, data)


def _fetched(run: tuple[RangeFile, RangeHeader, int, int]) -> Sequence[np.ndarray]:
    part, header, first, last = run
    return part.reader.fetch(header, first, last)


def _bits_of(part: RangeFile) -> np.ndarray:
    """Return a bit for each row of a range, set if it is not deleted."""
    kept = np.ones(part.rows, bool)
    if part.deleted and part.keep is not None:
        kept = part.keep()
        check_keep(part.path, part.rows, kept)
    return np.packbits(kept, bitorder="little")


Part = OpenSegment | OpenRanges
