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

import numpy as np

from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.index.index_parts import Part
from sentence_beam.transforms.index.lists import ListTable
from sentence_beam.transforms.index.range_file import RangeHeader, cut_blocks
from sentence_beam.transforms.index.range_readers import RangeFile, check_keep
from sentence_beam.transforms.index.segment_checks import make_changed_error
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
        """Hold the bytes of a list."""
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


class OpenRanges(Part):
    """The opened ranges of an index, as one part of it.

    `places` are those of the ranges among the files to open.
    """

    lists: ListTable

    def __init__(self, places: Sequence[int], ranges: Sequence[RangeFile], trained: TrainedIndex):
        self.places = np.array(places, np.int64)
        self._ranges = list(ranges)
        self._trained = trained  # has the quantizer of the index
        self.index = trained.make_empty_copy()
        self.lists = ListTable(self.index)
        self._headers: list[RangeHeader | None] = [None] * len(ranges)
        self.ready = np.zeros(self.index.nlist, bool)
        self._held = HeldLists()
        self._stays = all(part.reader.stays for part in ranges)
        # a list that does not stay is held until the search that needs it ends
        self._lock = threading.RLock()
        self._bytes = max(part.bits.stop for part in ranges)  # of the bits of all rows
        self.bits = None
        if any(part.deleted for part in ranges):
            self.bits = np.zeros(self._bytes, np.uint8)
        self.live = sum(part.rows - part.deleted for part in ranges)
        self._by_id = np.argsort([part.first_id for part in ranges], kind="stable")
        self._first_ids = np.array([part.first_id for part in ranges], np.int64)[self._by_id]
        self._by_list = np.argsort([part.first for part in ranges], kind="stable")
        self._firsts = np.array([part.first for part in ranges], np.int64)[self._by_list]

    def only(self, wanted: Sequence[np.ndarray]) -> OpenRanges:
        self._read_headers()
        chosen = copy.copy(self)
        chosen.bits = np.zeros(self._bytes, np.uint8)
        chosen.live = 0
        for number, place in enumerate(self.places.tolist()):
            kept = wanted[place] & self._unpack_kept(number)
            chosen.bits[self._ranges[number].bits] = np.packbits(kept, bitorder="little")
            chosen.live += int(np.count_nonzero(kept))
        return chosen

    def _unpack_kept(self, number: int) -> np.ndarray:
        """Return bool [rows] of a range whose header has been read, False for rows not wanted."""
        part = self._ranges[number]
        if self.bits is None:
            return np.ones(part.rows, bool)
        bits = self.bits[part.bits]
        return np.unpackbits(bits, count=part.rows, bitorder="little").astype(bool)

    def positions(self, ids: np.ndarray) -> np.ndarray:
        at = np.searchsorted(self._first_ids, ids, "right") - 1
        places = self.places[self._by_id]
        return np.where(ids >= 0, places[at] << 32 | ids - self._first_ids[at], -1)

    @property
    def live_positions(self) -> np.ndarray:
        self._read_headers()
        positions = [np.empty(0, np.int64)]
        for number, place in enumerate(self.places.tolist()):
            positions.append(np.flatnonzero(self._unpack_kept(number)) | place << 32)
        return np.concatenate(positions)

    def count_matches(self) -> np.ndarray:
        self._read_headers()
        counts = self.lists.sizes.copy()
        if self.bits is None:
            return counts
        for number, (part, header) in enumerate(zip(self._ranges, self._headers, strict=True)):
            if header is not None:
                kept = np.concatenate([[0], np.cumsum(self._unpack_kept(number))])
                counts[part.first : part.stop] = np.diff(kept[header.starts])
        return counts

    @contextmanager
    def held(self) -> Iterator[None]:
        if self._stays:
            yield
            return
        with self._lock:
            try:
                yield
            finally:
                self.ready[self._held.drop(HELD_BYTES)] = False

    def check_lists(self, lists: np.ndarray) -> None:
        wanted = np.unique(lists)
        wanted = wanted[wanted >= 0]
        missing = wanted[~self.ready[wanted]]
        if not self._stays:
            self._held.use(wanted.tolist())
        if not len(missing):
            return
        with self._lock:
            owner = np.searchsorted(self._firsts, missing, "right") - 1
            self._read_headers(np.unique(self._by_list[owner[owner >= 0]]).tolist())
            self._read_lists(missing)

    def _read_headers(self, numbers: Sequence[int] | None = None) -> None:
        """Read headers, of all ranges if None, and which of their rows are deleted."""
        if numbers is None:
            numbers = range(len(self._ranges))
        missing = [number for number in numbers if self._headers[number] is None]
        if not missing:
            return
        at_once = 1 if self._stays else AT_ONCE
        with self._lock, ThreadPoolExecutor(at_once) as pool:
            headers = pool.map(self._read_header, missing)
            for number, header in zip(missing, headers, strict=True):
                part = self._ranges[number]
                if self.bits is not None:
                    self.bits[part.bits] = _pack_kept(part)
                self.lists.resize(slice(part.first, part.stop), header.sizes)
                self._headers[number] = header

    def _read_header(self, number: int) -> RangeHeader:
        part = self._ranges[number]
        header = part.reader.header()
        recorded = (header.first, header.stop, header.rows, header.first_id)
        if recorded != (part.first, part.stop, part.rows, part.first_id):
            raise make_changed_error(part.path)
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
            lists_at_hand = part.reader.at_hand(header, here)
            at_hand = np.array([data is not None for data in lists_at_hand], bool)
            self._put(
                part.first + here[at_hand], [data for data in lists_at_hand if data is not None]
            )
            spare = 0.0 if part.reader.stays else SPARE
            runs += [(part, header, *run) for run in cut_blocks(header, here[~at_hand], spare)]
        if runs:
            with ThreadPoolExecutor(min(AT_ONCE, len(runs))) as pool:
                fetched = list(pool.map(_fetch_lists, runs))
            for (part, header, first, last), data in zip(runs, fetched, strict=True):
                places = np.arange(first, last + 1)
                lists = part.first + places[header.sizes[places] > 0]
                self._put(lists, data)
                self.ready[lists] = True
        self.ready[missing] = True

    def _put(self, lists: np.ndarray, data_of_lists: Sequence[np.ndarray]) -> None:
        """Put the bytes of lists that are not empty into the table."""
        self.lists.place(lists, np.array([data.ctypes.data for data in data_of_lists], np.int64))
        if not self._stays:
            for number, data in zip(lists.tolist(), data_of_lists, strict=True):
                self._held.put(number, data)


def _fetch_lists(run: tuple[RangeFile, RangeHeader, int, int]) -> Sequence[np.ndarray]:
    part, header, first, last = run
    return part.reader.fetch(header, first, last)


def _pack_kept(part: RangeFile) -> np.ndarray:
    """Return a bit for each row of a range, set if it is not deleted."""
    kept = np.ones(part.rows, bool)
    if part.deleted and part.keep is not None:
        kept = part.keep()
        check_keep(part.path, part.rows, kept)
    return np.packbits(kept, bitorder="little")
