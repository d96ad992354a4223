"""The file of a segment's vectors beside its codes, with which candidates are scored again.

A row is its vector as float16, scaled so that its largest component is 1; the scale; and a CRC-32
of both, which begins with the row's number. So each row can be read and checked alone, and rows of
any length keep their precision.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np

from sentence_beam.transforms.index.faiss_module import load_faiss
from sentence_beam.transforms.index.segment_checks import make_changed_error

_AT_ONCE = 512  # rows that stay in a core's cache


def row_type(dim: int) -> np.dtype[Any]:
    """The type of a row in the file."""
    return np.dtype([("vector", "<f2", (dim,)), ("scale", "<f4"), ("crc", "<u4")])


class RefineWriter:
    """The file of a segment being built, whose rows come in the order of the segment's."""

    def __init__(self, dim: int):
        self._type = row_type(dim)
        self._parts: list[np.ndarray] = []
        self._rows = 0

    def add(self, block: np.ndarray) -> None:
        """Append rows float32 [n, dim]."""
        rows = np.zeros(len(block), self._type)
        rows["scale"] = np.abs(block).max(axis=1, initial=0)
        rows["vector"] = block / np.where(rows["scale"] > 0, rows["scale"], 1)[:, None]
        self.copy(rows)

    def copy(self, rows: np.ndarray) -> None:
        """Append rows of another file, of `row_type`, with new numbers."""
        rows = rows.copy()
        rows["crc"] = compute_checksums(rows, np.arange(self._rows, self._rows + len(rows)))
        self._parts.append(rows)
        self._rows += len(rows)

    def rows(self) -> np.ndarray:
        """The rows added so far, of `row_type`."""
        return np.concatenate([np.empty(0, self._type), *self._parts])

    def to_bytes(self) -> bytes:
        """The bytes of the file."""
        return b"".join(part.tobytes() for part in self._parts)


def compute_checksums(rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The checksum uint32 [n] of each row of `row_type` that has one of these numbers."""
    size = rows.dtype.itemsize
    view = memoryview(rows.tobytes())
    covered = size - 4
    starts = range(0, len(rows) * size, size)
    sums = [
        crc32(view[start : start + covered], number & 0xFFFFFFFF)
        for start, number in zip(starts, numbers.tolist(), strict=True)
    ]
    return np.array(sums, np.uint32)


def decode_rows(rows: np.ndarray) -> np.ndarray:
    """The vectors float32 [n, dim] of rows of `row_type`.

    faiss decodes them, in half of numpy's time.
    """
    faiss = load_faiss()
    dim = rows.dtype["vector"].shape[0]
    out = np.empty((len(rows), dim), np.float32)
    codec = faiss.ScalarQuantizer(dim, faiss.ScalarQuantizer.QT_fp16)
    for start in range(0, len(rows), _AT_ONCE):
        part = rows[start : start + _AT_ONCE]
        vectors = codec.decode(np.ascontiguousarray(part["vector"]).view(np.uint8))
        np.multiply(vectors, part["scale"][:, None], out=out[start : start + _AT_ONCE])
    return out


def check_rows(rows: np.ndarray, numbers: np.ndarray, path: str) -> None:
    """Raise DamagedIndexError naming the file if a row was changed."""
    if not np.array_equal(compute_checksums(rows, numbers), rows["crc"]):
        raise make_changed_error(path)
