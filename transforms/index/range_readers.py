"""Readers of the files of ranges: headers, and lists with their checksums."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol
from zlib import crc32

import numpy as np

from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.index.range_file import (
    FIRST_BYTES,
    RangeHeader,
    count_header_bytes,
    read_list_count,
)
from sentence_beam.transforms.index.segment_checks import make_changed_error, map_file

_IDS_AT_ONCE = 8  # ids of a range begin at a whole byte of the bits of all rows
# headers that are in use, by their digest: snapshots share those of ranges that they share
_HEADERS: weakref.WeakValueDictionary[str, RangeHeader] = weakref.WeakValueDictionary()


class RangeReader(Protocol):
    """Reads the file of a range: its header, and lists once they are needed."""

    @property
    def path(self) -> str:
        """The file's name for messages."""

    @property
    def stays(self) -> bool:
        """Whether the memory of a list stays as long as the reader."""

    def header(self) -> RangeHeader:
        """Return the header. Raises DamagedIndexError if it is not what was written."""

    def at_hand(self, header: RangeHeader, places: np.ndarray) -> Sequence[np.ndarray | None]:
        """Return the bytes uint8 of each list that needs no request, by their places; else None.

        Raises DamagedIndexError if they are not what was written.
        """

    def fetch(self, header: RangeHeader, first: int, last: int) -> Sequence[np.ndarray]:
        """Return the bytes uint8 of the lists from place `first` to `last`, by one request.

        Empty lists are left out. Raises DamagedIndexError if they are not what was written.
        """


class MappedRange:
    """The local file of a range, mapped into memory; a list is checked when it is first read."""

    stays = True

    def __init__(self, path: str | Path, digest: str = ""):
        """`digest` is the sha256 of the header; "" if it is not known."""
        self.path = str(path)
        self._digest = digest

    def header(self) -> RangeHeader:
        """Return the header, once its digest and the size of the file are right."""
        data = self._bytes[:FIRST_BYTES].tobytes()
        if len(data) < FIRST_BYTES:
            raise make_changed_error(self.path)
        header = share_header(
            self.path,
            self._bytes[: count_header_bytes(read_list_count(data))].tobytes(),
            self._digest,
        )
        if len(self._bytes) != header.offsets[-1]:
            raise make_changed_error(self.path)
        return header

    def at_hand(self, header: RangeHeader, places: np.ndarray) -> list[np.ndarray]:
        """Return views of the mapped file, each once its checksum is right."""
        starts = header.offsets[places].tolist()
        stops = header.offsets[places + 1].tolist()
        lists = [self._bytes[start:stop] for start, stop in zip(starts, stops, strict=True)]
        check_lists(self.path, header, places, lists)
        return lists

    def fetch(self, header: RangeHeader, first: int, last: int) -> list[np.ndarray]:
        """Return nothing: all lists are at hand."""
        return []

    @cached_property
    def _bytes(self) -> np.ndarray:
        return map_file(self.path)


def share_header(path: str, data: bytes, digest: str) -> RangeHeader:
    """Return the header of some bytes, the same object for the same digest.

    Raises DamagedIndexError, naming the file, if they have another sha256; "" is not compared.
    """
    sha256 = hashlib.sha256(data).hexdigest()
    if digest not in ("", sha256):
        raise make_changed_error(path)
    header = _HEADERS.get(sha256)
    if header is None:
        header = RangeHeader.from_bytes(data, path)
        _HEADERS[sha256] = header
    return header


def check_lists(
    path: str, header: RangeHeader, places: np.ndarray, lists: Sequence[np.ndarray]
) -> None:
    """Raise DamagedIndexError, naming the file, if a list at one of the places was changed."""
    wanted = header.crcs[places].tolist()
    if any(crc32(data.data) != crc for data, crc in zip(lists, wanted, strict=True)):
        raise make_changed_error(path)


@dataclass(frozen=True)
class RangeFile:
    """A range to open: lists `first` to `stop` - 1, its rows, and how many of them are deleted.

    `first_id` is the id of its first row. `keep()` returns bool [rows], False for deleted rows; it
    is called once a list of the range is visited, if rows are deleted.
    """

    reader: RangeReader
    first: int
    stop: int
    rows: int
    first_id: int
    deleted: int = 0
    keep: Callable[[], np.ndarray] | None = None

    @property
    def path(self) -> str:
        """The file's name for messages."""
        return self.reader.path

    @property
    def bits(self) -> slice:
        """The bytes of its rows among the bits of all rows."""
        start = self.first_id // _IDS_AT_ONCE
        return slice(start, start + -(-self.rows // _IDS_AT_ONCE))

    @classmethod
    def local(cls, path: str | Path, keep: np.ndarray | None = None) -> RangeFile:
        """Return the range in a local file, by its header.

        Raises DamagedIndexError if that is not what was written, or `keep` has another length.
        """
        reader = MappedRange(path)
        header = reader.header()
        reader_of_range = cls(reader, header.first, header.stop, header.rows, header.first_id)
        if keep is None:
            return reader_of_range
        check_keep(reader_of_range.path, reader_of_range.rows, keep)
        return replace(reader_of_range, deleted=int(np.count_nonzero(~keep)), keep=lambda: keep)


def check_keep(path: str, rows: int, keep: np.ndarray | None) -> None:
    """Raise DamagedIndexError, naming the file, if `keep` has another length than its rows."""
    if keep is not None and len(keep) != rows:
        raise DamagedIndexError(f"{path}: {rows} rows, but the locator table has {len(keep)}")
