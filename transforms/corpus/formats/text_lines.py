"""Lines of text files, plain or compressed, by uncompressed byte offset.

A line belongs to the range that holds its first byte, so ranges that tile a file give every line
exactly once. A line ends with LF or CRLF. The empty string after a final newline is not a line. Of
a line that is too long for a row, only the beginning is kept, as a CutLine.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, TypeVar

from sentence_beam.transforms.base.errors import SentenceBeamError, cite, first_line
from sentence_beam.transforms.corpus.files import (
    InputFile,
    check_unchanged,
    open_decompressed,
    open_unchanged,
)
from sentence_beam.transforms.corpus.formats.encoding import BOM, refuse_utf16
from sentence_beam.transforms.storage.base import BLOCK

MOST_BYTES = 1 << 28  # of a row; a longer one takes several times its size in memory
TOO_LONG = f"longer than {MOST_BYTES / 1e6:,.0f} MB"
LINES_OF_HEAD = 16  # that show the encoding
BEGINNING = 1 << 10  # bytes that are kept of a longer one
ROWS = 8192  # in a block of parsed rows
T = TypeVar("T")


class CutLine(bytes):
    """The beginning of a line of more than MOST_BYTES bytes."""


def read_lines(file: InputFile, start: int, stop: int | None) -> Iterator[list[tuple[int, bytes]]]:
    """Yield blocks of (byte offset, line without its ending) for lines that start in [start, stop).

    Raises SentenceBeamError if a compressed file is cut short or corrupt, and for text with a byte
    order mark of UTF-16.
    """
    with open_unchanged(file) as raw:
        if file.compression:
            blocks = report_faults(file, _read_blocks(open_decompressed(file, raw), 0, stop))
        else:
            blocks = _read_blocks(raw, _find_line_start(raw, start, stop), stop)
        for block in blocks:
            if block and block[0][0] == 0:
                refuse_utf16(file, b"\n".join(line for _, line in block[:LINES_OF_HEAD]))
            yield block


def find_line_starts(file: InputFile, start: int, stop: int | None) -> Iterator[int]:
    """Yield the byte offsets of the lines that start in [start, stop)."""
    for block in read_lines(file, start, stop):
        yield from (offset for offset, _ in block)


def report_faults(file: InputFile, blocks: Iterator[T]) -> Iterator[T]:
    """Yield the blocks; an error of decompressing or decoding becomes one line with the file."""
    try:
        yield from blocks
    except SentenceBeamError:
        raise
    except Exception as error:  # decompressors raise OSError, EOFError, LZMAError, ZstdError
        check_unchanged(file)  # a file that is being overwritten looks corrupt
        raise SentenceBeamError(
            f"{file.path} is cut short or corrupt ({first_line(error)}); replace it or leave it out"
            f" of {cite('input')}"
        ) from error


def gather_blocks(rows: Iterable[T], measure: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield blocks of at most ROWS rows; `measure` says how much of BLOCK a row takes."""
    block: list[T] = []
    size = 0
    for row in rows:
        block.append(row)
        size += measure(row)
        if len(block) == ROWS or size > BLOCK:
            yield block
            block = []
            size = 0
    if block:
        yield block


def _find_line_start(raw: BinaryIO, start: int, stop: int | None) -> int:
    """The offset of the first line that starts at or after `start`; leaves the reader there.

    If none starts before `stop`, because a line is longer than the range, this is some offset from
    `stop` on.
    """
    if start == 0:
        return 0
    raw.seek(start - 1)
    position = start - 1
    while (stop is None or position < stop) and (block := raw.read(BLOCK)):
        newline = block.find(b"\n")
        if newline >= 0:
            position += newline + 1
            raw.seek(position)
            return position
        position += len(block)
    return position


def _read_blocks(
    reader: BinaryIO, offset: int, stop: int | None
) -> Iterator[list[tuple[int, bytes]]]:
    """Yield the lines of the rest of a reader, which starts a line at `offset`.

    A long line is read in parts.
    """
    begun = _BegunLine()
    while stop is None or offset < stop:
        block = reader.read(_choose_size(offset + begun.size, stop))
        if not block:
            break
        first = block.find(b"\n")
        if first < 0:
            begun.add(block)
            continue
        if begun.is_long:
            yield [(offset, begun.line())]
            offset += begun.size + first + 1
            begun = _BegunLine()
            block = block[first + 1 :]
        end = block.rfind(b"\n")
        if end >= 0:
            lines = begun.line() + block[:end]
            yield _cut_lines(lines, offset, stop)
            offset += len(lines) + 1
            begun = _BegunLine()
        begun.add(block[end + 1 :])
    if begun.size and (stop is None or offset < stop):
        if begun.is_long:
            yield [(offset, begun.line())]
        else:
            yield _cut_lines(begun.line(), offset, stop)


class _BegunLine:
    """The first part of a line; only its beginning if it is already too long for a row."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[bytes] = []

    @property
    def is_long(self) -> bool:
        """Whether the line has more bytes than a row may have."""
        return self.size > MOST_BYTES

    def add(self, part: bytes) -> None:
        """Append the next part of the line."""
        self.size += len(part)
        self._parts.append(part)
        if self.is_long:
            self._parts = [self._parts[0][:BEGINNING]]

    def line(self) -> bytes:
        """The line so far, as a CutLine if parts are missing."""
        data = b"".join(self._parts)
        return CutLine(data) if self.is_long else data


def _choose_size(position: int, stop: int | None) -> int:
    """The size of the next read: not far beyond the range's end, since storage may be remote."""
    return min(BLOCK, max(stop - position, BLOCK // 16)) if stop is not None else BLOCK


def _cut_lines(text: bytes, offset: int, stop: int | None) -> list[tuple[int, bytes]]:
    lines = []
    for line in text.split(b"\n"):
        if stop is not None and offset >= stop:
            break
        start = offset
        offset += len(line) + 1
        if start == 0:
            line = line.removeprefix(BOM)
        lines.append((start, line.removesuffix(b"\r")))
    if len(text) <= MOST_BYTES:
        return lines
    return [
        (start, line if len(line) <= MOST_BYTES else CutLine(line[:BEGINNING]))
        for start, line in lines
    ]
