"""A table of lists for faiss whose codes lie anywhere in memory: in mapped files or in buffers."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from sentence_beam.transforms.index.list_memory import ListMemory

_SIZE, _CAPACITY, _ADDRESS = range(3)


class ListTable:
    """An index of faiss with lists of which the caller says size and address, 24 bytes a list.

    The codes of a list are followed by the ids of its rows. The caller keeps the memory alive and
    fills in a list before a search visits it.
    """

    def __init__(self, faiss: Any, index: Any):
        """`index` has quantizer and codec; its own lists are replaced."""
        self.index = index
        # faiss adds the offset of a list to the start of its one mapped file, which is 0 here.
        self._lists = faiss.OnDiskInvertedLists()
        self._lists.nlist = index.nlist
        self._lists.code_size = index.code_size
        self._lists.prefetch_nthread = 0
        self._lists.read_only = True
        self._lists.lists.resize(index.nlist)
        values = ctypes.c_int64 * (3 * index.nlist)
        address = int(self._lists.lists.data().this)
        self._entries = np.ctypeslib.as_array(values.from_address(address)).reshape(-1, 3)
        self._entries[:] = 0
        index.replace_invlists(self._lists, False)

    @property
    def sizes(self) -> np.ndarray:
        """The rows in each list, int64 [nlist]: a view."""
        return self._entries[:, _SIZE]

    @property
    def memory(self) -> ListMemory:
        """Where the lists are: a view."""
        at_codes = self._entries[:, _ADDRESS]
        code_size = self.index.code_size
        return ListMemory(self.sizes, at_codes, at_codes + self.sizes * code_size, code_size)

    def resize(self, first: int, sizes: np.ndarray) -> None:
        """Set the rows of consecutive lists, int64 [lists]."""
        stop = first + len(sizes)
        self._entries[first:stop, _SIZE] = sizes
        self._entries[first:stop, _CAPACITY] = sizes

    def fill(self, lists: np.ndarray, sizes: np.ndarray, addresses: np.ndarray) -> None:
        """Set rows and addresses of lists, all int64 [m]."""
        self._entries[lists, _SIZE] = sizes
        self._entries[lists, _CAPACITY] = sizes
        self._entries[lists, _ADDRESS] = addresses

    def place(self, lists: np.ndarray, addresses: np.ndarray) -> None:
        """Set the addresses of lists, both int64 [m]."""
        self._entries[lists, _ADDRESS] = addresses
