"""Samples of a CSV file: its head, and of a large file also the middle and the end."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from sentence_beam.transforms.corpus.files import InputFile, open_decompressed, open_unchanged
from sentence_beam.transforms.corpus.formats.encoding import (
    UTF16_BOMS,
    choose_errors,
    find_encoding,
)
from sentence_beam.transforms.corpus.formats.text_lines import report_faults

SAMPLE = 1 << 18  # bytes
SAMPLES = 3


@dataclass(frozen=True)
class Sample:
    """Text of a file; `begins` and `ends` say whether it has the file's first and last byte."""

    text: str
    begins: bool
    ends: bool


@dataclass(frozen=True)
class Samples:
    """Samples of a file in order, and its encoding. The first one is the head."""

    parts: tuple[Sample, ...]
    encoding: str

    @property
    def head(self) -> str:
        """The text at the head."""
        return self.parts[0].text

    @property
    def are_whole(self) -> bool:
        """Whether the head is the whole file."""
        return self.parts[0].ends

    def has(self, text: str) -> bool:
        """Whether a sample has this text."""
        return any(text in part.text for part in self.parts)

    @property
    def line_end(self) -> str:
        """The end of lines, as in `Dialect.line_end`."""
        return "" if "\r" in self.head and "\n" not in self.head else "\n"


def read_samples(file: InputFile) -> Samples:
    """Read the samples of a file. Raises SentenceBeamError if it is cut short or corrupt."""
    with open_unchanged(file) as raw:
        if file.compression or file.size <= SAMPLES * SAMPLE:
            return _read_head(file, raw)
        return _read_parts(file, raw)


def _read_head(file: InputFile, raw: BinaryIO) -> Samples:
    most = SAMPLES * SAMPLE if not file.compression else SAMPLE
    data = b"".join(report_faults(file, _read_blocks(open_decompressed(file, raw), most + 1)))
    ends = len(data) <= most
    encoding = find_encoding(data)
    text = data[:most].decode(encoding, errors=_choose_errors(encoding))
    return Samples((Sample(_cut_to_lines(text, ends), True, ends),), encoding)


def _read_parts(file: InputFile, raw: BinaryIO) -> Samples:
    parts = []
    encoding = ""
    last = SAMPLES - 1
    for number in range(SAMPLES):
        start = (file.size - SAMPLE) * number // last
        start -= start % 2  # a place in UTF-16
        raw.seek(start)
        data = b"".join(_read_blocks(raw, SAMPLE + 1))
        if number == 0:
            encoding = find_encoding(data)
            inside = UTF16_BOMS.get(data[:2], encoding.removesuffix("-sig"))
            text = data.decode(encoding, errors=_choose_errors(encoding))
        else:
            text = data.decode(inside, errors="replace")
        ends = number == last
        parts.append(Sample(_cut_to_lines(text, ends), number == 0, ends))
    return Samples(tuple(parts), encoding)


def _choose_errors(encoding: str) -> str:
    """Python's word for decoding a head, whose last character may be cut."""
    errors = choose_errors(encoding)
    return "replace" if errors == "strict" else errors


def _read_blocks(reader: Any, size: int) -> Iterator[bytes]:
    while size > 0 and (block := reader.read(size)):
        yield block[:size]
        size -= len(block)


def _cut_to_lines(text: str, ends: bool) -> str:
    """Return the whole lines of text, unless it ends the file."""
    if ends:
        return text
    line_end = "\n" if "\n" in text else "\r"
    return text[: text.rfind(line_end) + 1] or text
