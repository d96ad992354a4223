"""Lines of text files, plain or compressed, by uncompressed byte offset.

A line belongs to the range that holds its first byte, so ranges that tile a file give every line exactly once.
A line ends with LF or CRLF; the empty end after a final newline is no line.
"""

from collections.abc import Iterator
from typing import BinaryIO, TypeVar

from transforms.corpus.files import InputFile, check_unchanged, decompressed, open_unchanged
from transforms.errors import SentenceBeamError, first_line
from transforms.storage.base import BLOCK

BOM = b"\xef\xbb\xbf"
UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
T = TypeVar("T")


def read_lines(file: InputFile, start: int, stop: int | None) -> Iterator[list[tuple[int, bytes]]]:
    """Blocks of (byte offset, line without its ending) for the lines that start in [start, stop).

    Raises SentenceBeamError where a compressed file is cut short or corrupt, and for text with a mark of UTF-16.
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


def refuse_utf16(file: InputFile, head: bytes) -> None:
    """Raise SentenceBeamError for a mark of UTF-16: most of such text would pass for UTF-8 with NUL bytes."""
    if head.startswith(UTF16_BOMS):
        raise SentenceBeamError(f"{file.path} is UTF-16 (by its byte order mark); convert it to UTF-8")


def line_starts(file: InputFile, start: int, stop: int | None) -> Iterator[int]:
    """The byte offsets of the lines that start in [start, stop)."""
    for block in read_lines(file, start, stop):
        yield from (offset for offset, _ in block)


def whole(file: InputFile, blocks: Iterator[T]) -> Iterator[T]:
    """The blocks; whatever decompressing or decoding them raises becomes one line that names the file."""
    try:
        yield from blocks
    except SentenceBeamError:
        raise
    except Exception as error:  # each decompressor has errors of its own: OSError, EOFError, LZMAError, ZstdError
        check_unchanged(file)  # one that is being written over looks corrupt
        raise SentenceBeamError(
            f"{file.path} is cut short or corrupt ({first_line(error)}); replace it or leave it out of --input"
        ) from error


def encoding_of(head: bytes) -> str:
    """The encoding that a byte order mark at the head of a file says; UTF-8 where there is none."""
    if head.startswith(BOM):
        return "utf-8-sig"
    return "utf-16" if head.startswith(UTF16_BOMS) else "utf-8"


def _first_line_start(raw: BinaryIO, start: int, stop: int | None) -> int:
    """Offset of the first line that starts at or after `start`, the reader left there; some offset from `stop` on
    where none starts before it (a line may be longer than many ranges)."""
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


def _blocks_of_lines(reader: BinaryIO, offset: int, stop: int | None) -> Iterator[list[tuple[int, bytes]]]:
    """Cut what the reader still holds, which begins a line at `offset`, into lines; a long one comes in parts."""
    parts: list[bytes] = []
    while stop is None or offset < stop:
        block = reader.read(_read_size(offset + sum(map(len, parts)), stop))
        if not block:
            break
        end = block.rfind(b"\n")
        if end < 0:
            parts.append(block)
            continue
        whole = b"".join([*parts, block[:end]])
        parts = [block[end + 1 :]] if end + 1 < len(block) else []
        yield _within(whole, offset, stop)
        offset += len(whole) + 1
    last = b"".join(parts)
    if last and (stop is None or offset < stop):
        yield _within(last, offset, stop)


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
    return lines
