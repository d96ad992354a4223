"""Checksums of a segment's file, so that a search that reads a few of its lists can check just
these.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from zlib import compress, crc32, decompress

import numpy as np

from transforms.base.errors import DamagedIndexError, refuse_damage

_BLOCK = 1 << 20


@dataclass(frozen=True)
class SegmentChecks:
    """The size of a segment's file, and CRC-32 of its parts.

    `head` counts the bytes before its lists (all bytes, where it has no lists) and `crc` is theirs;
    `lists` uint32 [nlist] are those of the lists, each its codes and then its rows' numbers, which
    is how faiss writes them.
    """

    size: int
    head: int
    crc: int
    lists: np.ndarray

    @classmethod
    def of(cls, data: bytes, lengths: Iterable[int] = ()) -> SegmentChecks:
        """The checksums of a file's bytes; `lengths` are those of its lists, in bytes."""
        ends = np.cumsum([0, *lengths], dtype=np.int64)
        head, view = len(data) - int(ends[-1]), memoryview(data)
        bounds = (head + ends).tolist()
        lists = [crc32(view[start:end]) for start, end in pairwise(bounds)]
        return cls(len(data), head, crc32(view[:head]), np.array(lists, np.uint32))

    def to_text(self) -> str:
        """The checksums as JSON, with those of the lists compressed (most lists of a delta are
        empty), in base64.
        """
        lists = base64.b64encode(compress(self.lists.astype("<u4").tobytes())).decode()
        return json.dumps({"size": self.size, "head": self.head, "crc": self.crc, "zlib": lists})

    @classmethod
    def from_text(cls, text: str) -> SegmentChecks:
        """The checksums that `to_text` gave, here or in an earlier version, which compressed
        nothing.

        Raises DamagedIndexError for other text.
        """
        with refuse_damage(
            "the checksums of a segment are not what was written", kind=DamagedIndexError
        ):
            values = json.loads(text)
            is_packed = "zlib" in values
            packed = base64.b64decode(values["zlib" if is_packed else "lists"])
            lists = decompress(packed) if is_packed else packed
            return cls(values["size"], values["head"], values["crc"], np.frombuffer(lists, "<u4"))

    def check_head(self, path: str | Path) -> None:
        """Raise DamagedIndexError where the file is missing or of another size, or differs before
        its lists.
        """
        if not os.path.exists(path):
            raise DamagedIndexError(f"{path} is missing")
        left, found = self.head, 0
        with open(path, "rb") as file:
            whole = os.fstat(file.fileno()).st_size == self.size
            while whole and left:
                block = file.read(min(left, _BLOCK))
                whole, left, found = bool(block), left - len(block), crc32(block, found)
        if not whole or found != self.crc:
            raise changed(path)

    def check_list(self, path: str | Path, number: int, codes: np.ndarray, ids: np.ndarray) -> None:
        """Raise DamagedIndexError where a list of the file differs: `codes` uint8 and `ids` int64,
        contiguous.
        """
        if crc32(ids.data, crc32(codes.data)) != self.lists[number]:
            raise changed(path)


def changed(path: str | Path) -> DamagedIndexError:
    """The error for a file of an index that is not what was written."""
    return DamagedIndexError(f"{path} was changed after it was written (checksum differs)")
