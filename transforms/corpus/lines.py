"""Lines of text files, plain or compressed, by uncompressed byte offset.

A line belongs to the range that holds its first byte, so ranges that tile a file give every line
exactly once. A line ends with LF or CRLF; the empty end after a final newline is no line. Of a line
that is too long for a row only the beginning is held, as a CutLine.
"""

from collections.abc import Iterator
from typing import BinaryIO, TypeVar

from transforms.base.errors import SentenceBeamError, first_line
from transforms.corpus.encoding import BOM, refuse_utf16
from transforms.corpus.files import InputFile, check_unchanged, decompressed, open_unchanged
from transforms.storage.base import BLOCK

MOST_BYTES = 1 << 28  # of a row: what one of more would take, several times over, few machines have
TOO_LONG = f"longer than {MOST_BYTES / 1e6:,.0f} MB"
BEGINNING = 1 << 10  # bytes of a longer one that are held
T = TypeVar("T")


class CutLine(bytes):
    """The beginning of a line of more than MOST_BYTES bytes."""


def read_lines(file: InputFile, start: int, stop: int | None) -> Iterator[list[tuple[int, bytes]]]:
    """Blocks of (byte offset, line without its ending) for the lines that start in [start, stop).

    Raises SentenceBeamError where a compressed file is cut short or corrupt, and for text with a
    mark of UTF-16.
    """
    with open_unchanged(file) as raw:
        if file.compression:
            blocks = whole(file, _blocks_of_lines(decompressed(file, raw), 0, stop))
        else:
            blocks = _blocks_of_lines(raw, _first_line_start(raw, start, stop), stop)
        for block in blocks:
            if block and block[0][0] == 0:
                refuse_utf16(file, block[0][1])
            yield block


def line_starts(file: InputFile, start: int, stop: int | None) -> Iterator[int]:
    """The byte offsets of the lines that start in [start, stop)."""
    for block in read_lines(file, start, stop):
        yield from (offset for offset, _ in block)


def whole(file: InputFile, blocks: Iterator[T]) -> Iterator[T]:
    """The blocks; whatever decompressing or decoding them raises becomes one line that names the
    file.
    """
    try:
        yield from blocks
    except SentenceBeamError:
        raise
    except (
        Exception
    ) as error:  # each decompressor has errors of its own: OSError, EOFError, LZMAError, ZstdError
        check_unchanged(file)  # one that is being written over looks corrupt
        raise SentenceBeamError(
            f"{file.path} is cut short or corrupt ({first_line(error)}); replace it or leave it out"
            " of --input"
        ) from error


def _first_line_start(raw: BinaryIO, start: int, stop: int | None) -> int:
    """Offset of the first line that starts at or after `start`, the reader left there; some offset
    from `stop` on where none starts before it (a line may be longer than many ranges)."""
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


def _blocks_of_lines(
    reader: BinaryIO, offset: int, stop: int | None
) -> Iterator[list[tuple[int, bytes]]]:
    """Cut what the reader still holds, which begins a line at `offset`, into lines; a long one
    comes in parts.
    """
    begun = _BegunLine()
    while stop is None or offset < stop:
        block = reader.read(_read_size(offset + begun.size, stop))
        if not block:
            break
        first = block.find(b"\n")
        if first < 0:
            begun.add(block)
            continue
        if begun.is_long:
            yield [(offset, begun.line())]
            offset, begun, block = offset + begun.size + first + 1, _BegunLine(), block[first + 1 :]
        end = block.rfind(b"\n")
        if end >= 0:
            lines = begun.line() + block[:end]
            yield _within(lines, offset, stop)
            offset, begun = offset + len(lines) + 1, _BegunLine()
        begun.add(block[end + 1 :])
    if begun.size and (stop is None or offset < stop):
        yield [(offset, begun.line())] if begun.is_long else _within(begun.line(), offset, stop)


class _BegunLine:
    """What was read of a line that goes on: all of it, or the beginning if it is too long for a row
    already.
    """

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[bytes] = []

    @property
    def is_long(self) -> bool:
        """Whether the line has more bytes than a row may have."""
        return self.size > MOST_BYTES

    def add(self, part: bytes) -> None:
        """Take what follows."""
        self.size += len(part)
        self._parts.append(part)
        if self.is_long:
            self._parts = [self._parts[0][:BEGINNING]]

    def line(self) -> bytes:
        """What was read, as a CutLine if that is not all."""
        data = b"".join(self._parts)
        return CutLine(data) if self.is_long else data


def _read_size(position: int, stop: int | None) -> int:
    """The size of the next read: not much past the range's end, since storage may be remote."""
    return BLOCK if stop is None else min(BLOCK, max(stop - position, BLOCK // 16))


def _within(text: bytes, offset: int, stop: int | None) -> list[tuple[int, bytes]]:
    lines = []
    for line in text.split(b"\n"):
        if stop is not None and offset >= stop:
            break
        start, offset = offset, offset + len(line) + 1
        if start == 0:
            line = line.removeprefix(BOM)
        lines.append((start, line.removesuffix(b"\r")))
    if len(text) <= MOST_BYTES:
        return lines
    return [
        (start, line if len(line) <= MOST_BYTES else CutLine(line[:BEGINNING]))
        for start, line in lines
    ]
