"""The wanted rows of lists, copied when a list is first visited, so that scans test no row."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from sentence_beam.transforms.index.list_table import ListTable
from sentence_beam.transforms.index.parts import BY_QUERY, Coarse, TopK, coded_top_k
from sentence_beam.transforms.index.ranges import Part
from sentence_beam.transforms.index.trained import TrainedIndex

MOST_BYTES = 256 << 20  # of the copies of a filter; more rows are tested one by one
_ID_BYTES = 8


class MatchedLists:
    """An index with the live rows of several parts; the ids of its rows are their positions."""

    bits = None

    def __init__(self, faiss: Any, parts: Sequence[Part], trained: TrainedIndex):
        self._parts = parts
        self._table = ListTable(faiss, trained.empty_copy())
        self.index = self._table.index
        self.index.parallel_mode = BY_QUERY
        self._trained = trained  # has the quantizer of the index
        self._is_copied = np.zeros(self.index.nlist, bool)
        self._copies: list[np.ndarray] = []
        self._lock = threading.Lock()

    @classmethod
    def of(
        cls, faiss: Any, parts: Sequence[Part], trained: TrainedIndex | None
    ) -> MatchedLists | None:
        """Return the lists of parts; None if copies of all live rows would take too much memory.

        None also for segments of earlier versions, which have a quantizer of their own.
        """
        if trained is None or any(part.trained is None for part in parts):
            return None
        rows = sum(part.live for part in parts)
        if rows * (parts[0].index.code_size + _ID_BYTES) > MOST_BYTES:
            return None
        return cls(faiss, parts, trained)

    @property
    def live(self) -> int:
        """The number of rows."""
        return sum(part.live for part in self._parts)

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Return the positions of rows, which are their ids; -1 stays."""
        return ids

    def top_k(self, faiss: Any, queries: np.ndarray, k: int, coarse: Coarse) -> TopK:
        """Return gains float32 and positions int64 [q, k] of the best rows in the given lists.

        Raises DamagedIndexError if a list is not what was written.
        """
        with self._lock:
            missing = coarse.lists[~self._is_copied[coarse.lists]]
            self._copy(faiss, np.unique(missing))
        return coded_top_k(faiss, self, queries, k, coarse)

    def _copy(self, faiss: Any, lists: np.ndarray) -> None:
        """Copy the live rows of lists, int64 ascending."""
        if not len(lists):
            return
        found = [_live_rows(faiss, part, lists) for part in self._parts]
        places, codes, ids = (np.concatenate(column) for column in zip(*found, strict=True))
        if len(self._parts) > 1:
            order = np.argsort(places, kind="stable")
            codes = codes[order]
            ids = ids[order]
        sizes = np.bincount(places, minlength=len(lists))
        starts = np.cumsum(sizes) - sizes
        data = _by_list(codes, ids, starts, sizes)
        self._copies.append(data)
        row_bytes = self.index.code_size + _ID_BYTES
        self._table.fill(lists, sizes, data.ctypes.data + starts * row_bytes)
        self._is_copied[lists] = True


def _by_list(
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
        pieces.append(id_bytes[start * _ID_BYTES : stop * _ID_BYTES])
    return np.concatenate(pieces)


def _live_rows(
    faiss: Any, part: Part, lists: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the live rows of a part in some lists, int64 [m].

    For each row: the place of its list among `lists` int64, its code uint8, its position int64.
    """
    with part.held():
        part.check_lists(faiss, lists)
        memory = part.memory
        ids = memory.ids(lists)
        live = part.alive(ids)
        codes = memory.codes(lists)[live]
    places = np.repeat(np.arange(len(lists)), memory.sizes[lists])
    return places[live], codes, part.positions(ids[live])
