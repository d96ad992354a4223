"""The lists of an index in memory: views of one, copies of many, and a table that callers fill."""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any

import numpy as np

from sentence_beam.transforms.index.faiss_module import load_faiss

ID_BYTES = 8
_SIZE, _, _ADDRESS = range(3)  # of an entry in a table of faiss; between them its capacity


class ListMemory:
    """The lists of a faiss index: the codes of their rows, and the rows' ids.

    faiss takes half a microsecond to return the size of a list, and one for its addresses. Both are
    read once, so the index must not change.
    """

    def __init__(self, index: Any):
        """`index` may have no lists."""
        self._index = index  # owns the memory
        self.count = int(index.nlist) if hasattr(index, "quantizer") else 0
        self._lists: Any = index.invlists if self.count else None
        self._code_size = int(index.code_size)

    @cached_property
    def sizes(self) -> np.ndarray:
        """The rows in each list, int64 [nlist]."""
        return np.array([self._lists.list_size(number) for number in range(self.count)], np.int64)

    @cached_property
    def _addresses(self) -> np.ndarray:
        """The addresses of codes and ids, int64 [nlist, 2]; 0 for lists without rows."""
        addresses = np.zeros((self.count, 2), np.int64)
        for number in np.flatnonzero(self.sizes).tolist():
            addresses[number] = int(self._lists.get_codes(number)), int(self._lists.get_ids(number))
        return addresses

    def _find_addresses(self, lists: np.ndarray) -> np.ndarray:
        """Return the addresses of codes and ids of some lists, int64 [l, 2]."""
        return self._addresses[lists]

    def codes(self, lists: np.ndarray) -> np.ndarray:
        """Return a copy of the codes in some lists, int64 [l], one after the other.

        They are uint8 [m, code size].
        """
        data = _copy(self._find_addresses(lists)[:, 0], self.sizes[lists] * self._code_size)
        return data.reshape(-1, self._code_size)

    def ids(self, lists: np.ndarray) -> np.ndarray:
        """Return a copy of the ids in some lists, int64 [l], one after the other: int64 [m]."""
        data = _copy(self._find_addresses(lists)[:, 1], self.sizes[lists] * ID_BYTES)
        return data.view(np.int64)

    def one(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return views of the codes uint8 [n, code size] and the ids int64 [n] in a list.

        They are valid as long as the index.
        """
        faiss = load_faiss()
        size = self._lists.list_size(number)
        if not size:
            return np.empty((0, self._code_size), np.uint8), np.empty(0, np.int64)
        codes = faiss.rev_swig_ptr(self._lists.get_codes(number), size * self._code_size)
        ids = faiss.rev_swig_ptr(self._lists.get_ids(number), size)
        return codes.reshape(size, self._code_size), ids


class ListTable(ListMemory):
    """The lists of an index whose codes may be anywhere, in mapped files or in buffers.

    The codes of a list are followed by its ids. The caller keeps that memory alive, and sets the
    size and the address of a list before a search visits it.
    """

    def __init__(self, index: Any):
        """`index` has quantizer and codec; its own lists are replaced."""
        # faiss adds the offset of a list to the start of its one mapped file, which is 0 here.
        lists = load_faiss().OnDiskInvertedLists()
        lists.nlist = index.nlist
        lists.code_size = index.code_size
        lists.prefetch_nthread = 0
        lists.read_only = True
        lists.lists.resize(index.nlist)
        values = ctypes.c_int64 * (3 * index.nlist)
        address = int(lists.lists.data().this)
        self._entries = np.ctypeslib.as_array(values.from_address(address)).reshape(-1, 3)
        self._entries[:] = 0
        index.replace_invlists(lists, False)
        super().__init__(index)
        self._lists = lists  # the index does not own it
        self.sizes = self._entries[:, _SIZE]

    def _find_addresses(self, lists: np.ndarray) -> np.ndarray:
        at_codes = self._entries[lists, _ADDRESS]
        return np.stack([at_codes, at_codes + self.sizes[lists] * self._code_size], axis=1)

    def resize(self, lists: slice | np.ndarray, sizes: np.ndarray) -> None:
        """Set the rows of lists, int64 [m]."""
        self._entries[lists, :_ADDRESS] = sizes[:, None]

    def place(self, lists: np.ndarray, addresses: np.ndarray) -> None:
        """Set the addresses of lists, both int64 [m]."""
        self._entries[lists, _ADDRESS] = addresses


def _copy(addresses: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the bytes at some addresses, one after the other, uint8."""
    data = np.empty(int(lengths.sum()), np.uint8)
    at = data.ctypes.data
    for address, length in zip(addresses.tolist(), lengths.tolist(), strict=True):
        ctypes.memmove(at, address, length)
        at += length
    return data
