"""Vectors of a segment's rows for candidates: mapped if local, else read by a few ranges."""

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np

from sentence_beam.transforms import storage
from sentence_beam.transforms.index.exact_vectors import check_rows, decode_rows, row_type
from sentence_beam.transforms.index.segment_checks import map_file
from sentence_beam.transforms.store.index_files import checked_files as index_files

GAP = 32 << 10  # bytes between rows: a smaller gap is read, not skipped
REQUESTS = 16  # at once


class RefineFile:
    """The file of a segment with `rows` rows of `dim` components."""

    def __init__(self, path: str, dim: int, rows: int):
        self._path = path
        self._type = row_type(dim)
        self._checked = np.zeros(rows, bool)

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """Return vectors float32 [m, dim] of rows int64 [m], ascending and distinct.

        Raises DamagedIndexError if the file is missing, or what is read of it is not what was
        written.
        """
        codes = self._mapped[rows] if storage.is_local(self._path) else self._read_ranges(rows)
        new = ~self._checked[rows]
        check_rows(codes[new], rows[new], self._path)
        # what is fetched again may be changed by then
        self._checked[rows] = storage.is_local(self._path)
        return decode_rows(codes)

    @cached_property
    def _mapped(self) -> np.ndarray:
        size = len(self._checked) * self._type.itemsize
        return map_file(self._path, size).view(self._type)

    def _read_ranges(self, rows: np.ndarray) -> np.ndarray:
        size = self._type.itemsize
        cuts = np.flatnonzero(np.diff(rows) > GAP // size + 1) + 1
        runs = np.split(rows, cuts) if len(rows) else []

        def fetch(run: np.ndarray) -> np.ndarray:
            data = index_files.part(self._path, int(run[0]) * size, (int(run[-1]) + 1) * size)
            return np.frombuffer(data, self._type)[run - run[0]]

        with ThreadPoolExecutor(REQUESTS) as pool:
            return np.concatenate([np.empty(0, self._type), *pool.map(fetch, runs)])
