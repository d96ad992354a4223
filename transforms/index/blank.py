"""Files of an index in which some rows' codes are zeros; everything else stays bit for bit.

The rows keep their places, so that no other row gets another number. They are deleted, so no search
scores them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.index.checks import SegmentChecks
from sentence_beam.transforms.index.lists import ListMemory
from sentence_beam.transforms.index.range_file import RangeHeader, range_bytes
from sentence_beam.transforms.index.refine import checksums, row_type
from sentence_beam.transforms.index.segment import (
    checked_bytes,
    flat_codes,
    read_segment,
    rows_by_list,
)


def blank_segment(path: str | Path, blank: np.ndarray) -> tuple[bytes, SegmentChecks]:
    """Return a segment's file with zeros as the codes of some rows, bool [n], and its checksums.

    Raises DamagedIndexError if the file is no segment.
    """
    index = read_segment(path, mapped=False)
    if not hasattr(index, "quantizer"):
        flat_codes(index)[blank] = 0
        return checked_bytes(index)
    lists = ListMemory(index)
    for number in np.flatnonzero(lists.sizes).tolist():
        codes, rows = lists.one(number)
        codes[blank[rows]] = 0
    return checked_bytes(index)


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
