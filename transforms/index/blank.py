"""Files of an index in which some rows' codes are zeros; everything else stays bit for bit.

The rows keep their places, so that no other row gets another number. They are deleted, so no search
scores them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.index.checks import SegmentChecks, changed
from sentence_beam.transforms.index.faiss_module import use_threads
from sentence_beam.transforms.index.range_file import RangeHeader, range_bytes
from sentence_beam.transforms.index.refine import checksums, row_type
from sentence_beam.transforms.index.segment import (
    flat_codes,
    list_arrays,
    read_segment,
    rows_by_list,
    sizes_of_lists,
)

_ID_BYTES = 8


def blank_segment(path: str | Path, blank: np.ndarray) -> tuple[bytes, SegmentChecks]:
    """Return a segment's file with zeros as the codes of some rows, bool [n], and its checksums.

    Raises DamagedIndexError if the file is no segment.
    """
    data = bytearray(Path(path).read_bytes())
    with use_threads(None) as faiss:
        index = read_segment(faiss, path)
        size = int(index.code_size)
        if not hasattr(index, "quantizer"):
            start = len(data) - int(index.ntotal) * size
            _zero(data, start, flat_codes(faiss, index), blank, path)
            return bytes(data), SegmentChecks.of(bytes(data))
        lengths = (sizes_of_lists(index) * (size + _ID_BYTES)).tolist()
        start = len(data) - sum(lengths)
        for number, length in enumerate(lengths):
            if length:
                codes, rows = list_arrays(faiss, index, number)
                _zero(data, start, codes, blank[rows], path)
            start += length
    return bytes(data), SegmentChecks.of(bytes(data), lengths)


def _zero(
    data: bytearray, start: int, codes: np.ndarray, blank: np.ndarray, path: str | Path
) -> None:
    """Zero some rows' codes, uint8 [n, size], which begin at a byte of the file."""
    size = codes.shape[1]
    for row in np.flatnonzero(blank).tolist():
        place = slice(start + row * size, start + (row + 1) * size)
        if data[place] != codes[row].tobytes():
            raise changed(path)
        data[place] = bytes(size)


def blank_range(
    path: str | Path, first: int, first_id: int, blank: np.ndarray
) -> tuple[bytes, RangeHeader]:
    """Return a range's file with zeros as the codes of some rows, bool [n], and its header.

    Raises DamagedIndexError if the file is no range.
    """
    listed = rows_by_list(path)
    codes = listed.codes.copy()
    codes[blank] = 0
    return range_bytes(first, first_id, listed.sizes, codes)


def blank_refine(data: bytes, dim: int, blank: np.ndarray, path: str) -> bytes:
    """Return the file of a segment's vectors with zeros in place of some rows, bool [n].

    Raises DamagedIndexError if it has another number of rows.
    """
    kind = row_type(dim)
    if len(data) != kind.itemsize * len(blank):
        raise DamagedIndexError(f"{path} has another number of rows than its segment")
    rows = np.frombuffer(data, kind).copy()
    numbers = np.flatnonzero(blank)
    rows[numbers] = np.zeros(len(numbers), kind)
    rows["crc"][numbers] = checksums(rows[numbers], numbers)
    return rows.tobytes()
