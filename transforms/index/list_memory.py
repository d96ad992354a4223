"""Lists in memory, read many at once: faiss has only a call for each list, some 20 microseconds.

faiss writes the sizes of all lists before the first list, and a list's ids behind its codes.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ID_BYTES = 8
_NUMBER = 8  # bytes of a size or a count in a file of faiss
_KIND = 4  # bytes that say how sizes are written


@dataclass(frozen=True)
class ListMemory:
    """Where the lists of an index are: rows, and addresses of codes and ids, int64 [nlist] each.

    The memory belongs to the index or to its reader.
    """

    sizes: np.ndarray
    at_codes: np.ndarray
    at_ids: np.ndarray
    code_size: int

    def codes(self, lists: np.ndarray) -> np.ndarray:
        """Return the codes of all rows of some lists, uint8 [m, code size]."""
        data = _copied(self.at_codes[lists], self.sizes[lists] * self.code_size)
        return np.frombuffer(data, np.uint8).reshape(-1, self.code_size)

    def ids(self, lists: np.ndarray) -> np.ndarray:
        """Return the ids of all rows of some lists, int64 [m]."""
        return np.frombuffer(_copied(self.at_ids[lists], self.sizes[lists] * ID_BYTES), np.int64)


def memory_of(index: Any, sizes: np.ndarray) -> ListMemory:
    """Return where the lists of an index are, which has so many rows in each, int64 [nlist]."""
    lists = index.invlists
    at_codes = (np.cumsum(sizes) - sizes) * (index.code_size + ID_BYTES)
    filled = np.flatnonzero(sizes)
    first_and_last = filled[[0, -1][: len(filled)]].tolist()
    if first_and_last:
        at_codes += _addresses(lists, first_and_last[0])[0]
    at_ids = at_codes + sizes * index.code_size
    if any(_addresses(lists, one) != (at_codes[one], at_ids[one]) for one in first_and_last):
        # not mapped from one file
        for number in filled.tolist():
            at_codes[number], at_ids[number] = _addresses(lists, number)
    return ListMemory(sizes, at_codes, at_ids, index.code_size)


def _addresses(lists: Any, number: int) -> tuple[int, int]:
    return int(lists.get_codes(number)), int(lists.get_ids(number))


def sizes_before(path: str | Path, head: int, index: Any) -> np.ndarray | None:
    """Return the rows in each list of an index, int64 [nlist], from its file.

    `head` is the number of bytes before the first list. Returns None if sizes and lists do not fill
    the file as faiss writes them.
    """
    nlist = index.nlist
    start = max(0, head - _NUMBER * (nlist + 1) - _KIND)
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(start)
        data = file.read(head - start)
    sizes = _all_sizes(data, nlist)
    if sizes is None:
        sizes = _sizes_of_few(data, nlist)
    if sizes is None or head + int(sizes.sum()) * (index.code_size + ID_BYTES) != size:
        return None
    return sizes


def _all_sizes(data: bytes, nlist: int) -> np.ndarray | None:
    """Return the sizes at the end of some bytes, if all lists have one there."""
    marked = b"full" + nlist.to_bytes(_NUMBER, "little")
    if not data.startswith(marked):
        return None
    return np.frombuffer(data, "<i8", nlist, len(marked)).astype(np.int64)


def _sizes_of_few(data: bytes, nlist: int) -> np.ndarray | None:
    """Return the sizes at the end of some bytes, if only lists with rows have one there."""
    at = data.rfind(b"sprs")
    while at >= 0:
        start = at + _KIND + _NUMBER
        count = int.from_bytes(data[at + _KIND : start], "little")
        if start + count * _NUMBER == len(data) and count % 2 == 0:
            numbers, rows = np.frombuffer(data, "<i8", count, start).reshape(-1, 2).T
            sizes = np.zeros(nlist, np.int64)
            sizes[numbers] = rows
            return sizes
        at = data.rfind(b"sprs", 0, at)
    return None


def _copied(addresses: np.ndarray, lengths: np.ndarray) -> bytes:
    """Return the bytes at some addresses, one after the other."""
    places = zip(addresses.tolist(), lengths.tolist(), strict=True)
    return b"".join([ctypes.string_at(address, length) for address, length in places])
