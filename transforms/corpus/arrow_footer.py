"""The places and rows of record batches in an Arrow IPC file, from its footer and their headers.

pyarrow tells the rows of a record batch only when it reads the batch. The layouts are those of
`File.fbs` and `Message.fbs` in Arrow's format; numbers are little-endian.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

MAGIC = b"ARROW1"
CONTINUATION = b"\xff\xff\xff\xff"
BATCHES = 3  # fields of the tables Footer, Message and RecordBatch
HEADER = 2
LENGTH = 0
BLOCK = struct.Struct("<qi4xq")  # place of a message, bytes of its metadata and of its body
MOST_METADATA = 1 << 28  # bytes


@dataclass(frozen=True)
class FlatTable:
    """A table of a flatbuffer, which begins at `place` of `data`."""

    data: bytes
    place: int

    @classmethod
    def root(cls, data: bytes) -> "FlatTable":
        """The outermost table of a flatbuffer."""
        return cls(data, _number("<I", data, 0))

    def field(self, number: int) -> int | None:
        """The place of a field's value; None if the table does not have it."""
        layout = self.place - _number("<i", self.data, self.place)
        entry = 4 + 2 * number
        if entry >= _number("<H", self.data, layout):
            return None
        offset = _number("<H", self.data, layout + entry)
        if not offset:
            return None
        return self.place + offset

    def behind(self, number: int) -> int | None:
        """The place to which a field's offset points."""
        place = self.field(number)
        if place is None:
            return None
        return place + _number("<I", self.data, place)


def batch_rows_of(raw: BinaryIO) -> Iterator[int]:
    """Yield the rows of each record batch of a file, whose bodies are not read.

    Raises ValueError for a file that is damaged.
    """
    footer = _footer(raw)
    try:
        for place, size in _messages(footer):
            raw.seek(place)
            yield _rows(raw.read(size))
    except struct.error as error:
        raise ValueError("its footer is damaged") from error


def _footer(raw: BinaryIO) -> bytes:
    """The flatbuffer at the end of a file; the number of its bytes and `MAGIC` follow it."""
    end = 4 + len(MAGIC)
    total = raw.seek(0, os.SEEK_END)
    raw.seek(max(0, total - end))
    tail = raw.read(end)
    if len(tail) < end or tail[4:] != MAGIC:
        raise ValueError("its footer is missing: it was cut short")
    size = int.from_bytes(tail[:4], "little")
    if size > total - end:
        raise ValueError("its footer is damaged")
    raw.seek(total - end - size)
    return raw.read(size)


def _messages(footer: bytes) -> Iterator[tuple[int, int]]:
    """Yield the place of each record batch's message, and the bytes of its metadata."""
    start = FlatTable.root(footer).behind(BATCHES)
    if start is None:
        return
    for number in range(_number("<I", footer, start)):
        place, size, _ = BLOCK.unpack_from(footer, start + 4 + number * BLOCK.size)
        if not 0 < size < MOST_METADATA or place < 0:
            raise ValueError("its footer is damaged")
        yield place, size


def _rows(metadata: bytes) -> int:
    """The rows of the record batch that a message's metadata is of."""
    skipped = 4  # the number of bytes that follow
    if metadata.startswith(CONTINUATION):
        skipped += len(CONTINUATION)
    data = metadata[skipped:]
    batch = FlatTable.root(data).behind(HEADER)
    if batch is None:
        raise ValueError("a record batch is damaged")
    length = FlatTable(data, batch).field(LENGTH)
    if length is None:
        return 0
    rows = _number("<q", data, length)
    if rows < 0:
        raise ValueError("a record batch is damaged")
    return rows


def _number(layout: str, data: bytes, place: int) -> int:
    if place < 0:
        raise struct.error("outside of the metadata")
    number: int
    (number,) = struct.unpack_from(layout, data, place)
    return number
