"""The file of a range on remote storage: its header and some lists, by ranged reads."""

from collections.abc import Sequence
from zlib import crc32

import numpy as np

from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.index.range_file import RangeHeader, count_header_bytes
from sentence_beam.transforms.index.range_readers import check_lists, share_header
from sentence_beam.transforms.storage.bounded_cache import BoundedCache
from sentence_beam.transforms.store.index_entries import SegmentEntry
from sentence_beam.transforms.store.index_files import checked_files as index_files

CACHE = "lists"  # folder of the cache


class RemoteRange:
    """Reads a range's header and lists; what has been read stays in a cache on local disk."""

    stays = False

    def __init__(self, path: str, entry: SegmentEntry, cache: BoundedCache):
        self.path = path
        self._lists = entry.lists or (0, 0)
        self._digest = entry.header_sha256
        self._name = entry.sha256
        self._cache = cache

    def header(self) -> RangeHeader:
        """Return the header, once its digest is right."""
        name = f"{self._digest}.header"
        data = self._cache.get(name)
        if data is not None:
            try:
                return share_header(name, data, self._digest)
            except DamagedIndexError:  # a damaged copy is read again
                pass
        first, stop = self._lists
        data = index_files.part(self.path, 0, count_header_bytes(stop - first))
        header = share_header(self.path, data, self._digest)
        self._cache.put(name, data)
        return header

    def at_hand(self, header: RangeHeader, places: np.ndarray) -> list[np.ndarray | None]:
        """Return the lists that are in the cache and have their checksums."""
        lists: list[np.ndarray | None] = []
        for place in places.tolist():
            data = self._cache.get(self._name_list(place))
            is_whole = data is not None and crc32(data) == header.crcs[place]
            lists.append(np.frombuffer(data, np.uint8) if data is not None and is_whole else None)
        return lists

    def fetch(self, header: RangeHeader, first: int, last: int) -> Sequence[np.ndarray]:
        """Return the lists from place `first` to `last` that are not empty, by one request."""
        start = int(header.offsets[first])
        data = index_files.part(self.path, start, int(header.offsets[last + 1]))
        places = np.arange(first, last + 1)
        places = places[header.sizes[places] > 0]
        lists = []
        for place in places.tolist():
            low = int(header.offsets[place]) - start
            high = int(header.offsets[place + 1]) - start
            # a copy, so that one list does not keep the bytes of all others
            lists.append(np.frombuffer(data, np.uint8)[low:high].copy())
        check_lists(self.path, header, places, lists)
        for place, codes in zip(places.tolist(), lists, strict=True):
            self._cache.put(self._name_list(place), codes.tobytes())
        return lists

    def _name_list(self, place: int) -> str:
        return f"{self._name}-{place}.list"
