"""The file of a range: the codes and ids of some consecutive lists, behind a header.

The header has the rows and the checksum of each list, so that a list can be read and checked
without the others. The codes of a list are followed by the ids of its rows, which count from the
range's first id in the order of the file.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from zlib import crc32

import numpy as np

from sentence_beam.transforms.index.segment_checks import make_changed_error

ID_BYTES = 8
LIST_BYTES = 8  # of a list in the header: its rows and its checksum
HEADER_BYTES = 128  # at most, without the lists
FIRST_BYTES = 48  # of the file, which say how long the header is
_MAGIC = b"SBRANGE1"
_FIXED = struct.Struct("<8s5q")
_ALIGNED = 64


@dataclass(frozen=True)
class RangeHeader:
    """The lists from `first` on: rows uint32 [lists] and CRC-32 uint32 [lists] of each.

    `first_id` is the id of the first row, a multiple of 8.
    """

    first: int
    code_size: int
    first_id: int
    sizes: np.ndarray
    crcs: np.ndarray

    @property
    def stop(self) -> int:
        """The list after the last."""
        return self.first + len(self.sizes)

    @property
    def length(self) -> int:
        """The bytes of the header, after which the lists begin."""
        return count_header_bytes(len(self.sizes))

    @cached_property
    def starts(self) -> np.ndarray:
        """The first row of each list, and the number of all rows: int64 [lists + 1]."""
        return np.concatenate([[0], np.cumsum(self.sizes, dtype=np.int64)])

    @cached_property
    def offsets(self) -> np.ndarray:
        """The first byte of each list in the file, and the file's size: int64 [lists + 1]."""
        return self.length + self.starts * (self.code_size + ID_BYTES)

    @property
    def rows(self) -> int:
        """The rows of all its lists."""
        return int(self.starts[-1])

    @cached_property
    def sha256(self) -> str:
        """The digest of the header's bytes."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the bytes of the header."""
        fixed = _FIXED.pack(
            _MAGIC, self.first, len(self.sizes), self.code_size, self.first_id, self.rows
        )
        lists = self.sizes.astype("<u4").tobytes() + self.crcs.astype("<u4").tobytes()
        return (fixed + lists).ljust(self.length, b"\0")

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> RangeHeader:
        """Return the header that `to_bytes` wrote.

        Raises DamagedIndexError, naming the file, for other bytes.
        """
        if len(data) < _FIXED.size or data[:8] != _MAGIC:
            raise make_changed_error(path)
        _, first, lists, code_size, first_id, rows = _FIXED.unpack_from(data)
        if lists < 0 or len(data) != count_header_bytes(lists):
            raise make_changed_error(path)
        sizes, crcs = np.frombuffer(data, "<u4", 2 * lists, _FIXED.size).reshape(2, lists)
        header = cls(first, code_size, first_id, sizes, crcs)
        if header.rows != rows:
            raise make_changed_error(path)
        return header


def is_range(path: str | Path) -> bool:
    """Return whether a local file is that of a range."""
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def read_list_count(data: bytes) -> int:
    """Return the number of lists of a range's file by its first bytes."""
    return int(_FIXED.unpack_from(data)[2])


def count_header_bytes(lists: int) -> int:
    """Return the bytes of a header of so many lists."""
    size = _FIXED.size + LIST_BYTES * lists
    return -(-size // _ALIGNED) * _ALIGNED


def range_bytes(
    first: int, first_id: int, sizes: np.ndarray, codes: np.ndarray
) -> tuple[bytes, RangeHeader]:
    """Return the file of a range, and its header.

    `sizes` int64 [lists] are the rows of its lists, `codes` uint8 [rows, code size] all rows' codes
    in the order of the lists.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)])
    ids = np.arange(first_id, first_id + len(codes)).astype("<i8")
    parts = []
    for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        parts.append(codes[start:stop].tobytes() + ids[start:stop].tobytes())
    crcs = np.array([crc32(part) for part in parts], np.uint32)
    header = RangeHeader(first, codes.shape[1], first_id, sizes.astype(np.uint32), crcs)
    return b"".join([header.to_bytes(), *parts]), header


def cut_blocks(
    header: RangeHeader, lists: np.ndarray, spare: float = 0.0
) -> Iterator[tuple[int, int]]:
    """Yield the places of some ascending lists of a range, cut into runs to read at once.

    A run is its first and its last place. Empty lists between two others do not part them. Other
    lists between two are read too, smallest first, up to the share `spare` of the wanted bytes: a
    request takes longer than some more bytes.
    """
    having = lists[header.sizes[lists] > 0]
    if not len(having):
        return
    between = header.offsets[having[1:]] - header.offsets[having[:-1] + 1]
    wanted = int((header.offsets[having + 1] - header.offsets[having]).sum())
    order = np.argsort(between, kind="stable")
    parting = np.ones(len(between), bool)
    parting[order[np.cumsum(between[order]) <= spare * wanted]] = False
    gaps = np.flatnonzero(parting)
    firsts = np.concatenate([[0], gaps + 1])
    lasts = np.concatenate([gaps, [len(having) - 1]])
    yield from zip(having[firsts].tolist(), having[lasts].tolist(), strict=True)
