"""Checksums of a segment's file and its lists, so that a search checks only what it reads."""

from __future__ import annotations

import base64
import json
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from zlib import compress, crc32, decompress

import numpy as np

from sentence_beam.transforms.base.errors import DamagedIndexError, refuse_damage


@dataclass(frozen=True)
class SegmentChecks:
    """The size of a segment's file, and CRC-32 of its parts.

    `head` is the number of bytes before the lists (all bytes of a segment without lists), and `crc`
    their checksum. `lists` uint32 [nlist] has the checksum of each list: its codes, then its rows'
    numbers, the order in which faiss writes them.
    """

    size: int
    head: int
    crc: int
    lists: np.ndarray

    @classmethod
    def from_data(cls, data: bytes, lengths: Iterable[int] = ()) -> SegmentChecks:
        """The checksums of a file's bytes; `lengths` are those of its lists, in bytes."""
        ends = np.cumsum([0, *lengths], dtype=np.int64)
        head = len(data) - int(ends[-1])
        view = memoryview(data)
        bounds = (head + ends).tolist()
        lists = [crc32(view[start:end]) for start, end in pairwise(bounds)]
        return cls(len(data), head, crc32(view[:head]), np.array(lists, np.uint32))

    def to_text(self) -> str:
        """The checksums as JSON; those of the lists are compressed, in base64.

        Most lists of a delta are empty.
        """
        lists = base64.b64encode(compress(self.lists.astype("<u4").tobytes())).decode()
        return json.dumps({"size": self.size, "head": self.head, "crc": self.crc, "lists": lists})

    @classmethod
    def from_text(cls, text: str) -> SegmentChecks:
        """The checksums that `to_text` wrote.

        Raises DamagedIndexError for other text.
        """
        with refuse_damage(
            "the checksums of a segment are not what was written", kind=DamagedIndexError
        ):
            values = json.loads(text)
            lists = decompress(base64.b64decode(values["lists"]))
            return cls(values["size"], values["head"], values["crc"], np.frombuffer(lists, "<u4"))

    def check_head(self, path: str | Path) -> None:
        """Raise DamagedIndexError if the file is missing, or its size or head differs."""
        if crc32(map_file(path, self.size)[: self.head].data) != self.crc:
            raise make_changed_error(path)

    def check_list(self, path: str | Path, number: int, codes: np.ndarray, ids: np.ndarray) -> None:
        """Raise DamagedIndexError if a list differs: `codes` uint8, `ids` int64, contiguous."""
        if crc32(ids.data, crc32(codes.data)) != self.lists[number]:
            raise make_changed_error(path)


def make_changed_error(path: str | Path) -> DamagedIndexError:
    """The error for a file of an index that was changed."""
    return DamagedIndexError(f"{path} was changed after it was written (checksum differs)")


def map_file(path: str | Path, size: int | None = None) -> np.ndarray:
    """Return the bytes of a local file of an index, uint8, mapped into memory.

    Raises DamagedIndexError if the file is missing or empty, or has not `size` bytes.
    """
    if not os.path.exists(path):
        raise DamagedIndexError(f"{path} is missing")
    on_disk = os.path.getsize(path)
    if not on_disk or (size is not None and on_disk != size):
        raise make_changed_error(path)
    with open(path, "rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
