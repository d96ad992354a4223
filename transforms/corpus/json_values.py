"""JSON files: an array of objects, or objects one after the other, read a value at a time."""

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from transforms.base.errors import SentenceBeamError
from transforms.corpus.encoding import encoding_of, errors_of
from transforms.corpus.files import InputFile, decompressed, open_unchanged
from transforms.corpus.lines import whole
from transforms.storage.base import BLOCK

DECODER = json.JSONDecoder()
SPACE = re.compile(r"[ \t\r\n]*")
MOST_CHARACTERS = 1 << 28  # in one value
NEAR_THE_END = 12  # characters: an escape that is cut is complained about where it begins
VALUES = 8192


def read_json(file: InputFile) -> Iterator[list[Any]]:
    """Blocks of the values of a JSON file; bytes that are no UTF-8 are lone surrogates in them.

    Raises SentenceBeamError for a file that is cut short, corrupt, or no JSON.
    """
    with open_unchanged(file) as raw:
        source = _JsonText(_characters(decompressed(file, raw)))
        try:
            yield from whole(file, _blocks(source))
        except _NoJsonError as error:
            raise SentenceBeamError(
                f"{file.path} is no JSON at character {source.before + source.place} ({error});"
                " mend it or leave it out of --input"
            ) from error


class _NoJsonError(SentenceBeamError):
    """What is wrong, without the file and the place."""


@dataclass
class _JsonText:
    """Text as it comes: `text` from `place` on is not taken yet, and `before` characters came
    before `text`.
    """

    parts: Iterator[str]
    text: str = ""
    place: int = 0
    before: int = 0

    def more(self) -> bool:
        """Read on, as much again as is held; False at the end."""
        held, self.before = [self.text[self.place :]], self.before + self.place
        size, wanted = len(held[0]), 2 * len(held[0])
        if size > MOST_CHARACTERS:
            raise _NoJsonError(f"a value of more than {MOST_CHARACTERS:,} characters")
        while size <= wanted and (part := next(self.parts, "")):
            held.append(part)
            size += len(part)
        self.text, self.place = "".join(held), 0
        return len(held) > 1

    def peek(self) -> str:
        """The next character that is no space, or "" at the end."""
        while True:
            self.place = SPACE.match(self.text, self.place).end()  # type: ignore[union-attr]
            if self.place < len(self.text):
                return self.text[self.place]
            if not self.more():
                return ""

    def value(self) -> Any:
        """The value that comes next."""
        self.peek()
        while True:
            try:
                value, end = DECODER.raw_decode(self.text, self.place)
            except RecursionError as error:
                raise _NoJsonError("brackets too deep") from error
            except json.JSONDecodeError as error:
                cut = (
                    error.msg.startswith("Unterminated string")
                    or error.pos >= len(self.text) - NEAR_THE_END
                )
                if cut and self.more():
                    continue
                raise _NoJsonError(error.msg) from error
            # a number may go on
            if end < len(self.text) or isinstance(value, (dict, list, str)) or not self.more():
                self.place = end
                return value


def _characters(reader: Any) -> Iterator[str]:
    block = reader.read(BLOCK)
    encoding = encoding_of(block)
    decoder = codecs.getincrementaldecoder(encoding)(errors_of(encoding))
    while block:
        text = decoder.decode(block)
        block = reader.read(BLOCK)
        if text:
            yield text
    yield decoder.decode(b"", final=True)


def _blocks(source: _JsonText) -> Iterator[list[Any]]:
    block: list[Any] = []
    begun = 0
    for value in _values(source):
        block.append(value)
        if len(block) == VALUES or source.before + source.place - begun > BLOCK:
            yield block
            block, begun = [], source.before + source.place
    if block:
        yield block


def _values(source: _JsonText) -> Iterator[Any]:
    if source.peek() != "[":
        while source.peek():
            yield source.value()
        return
    source.place += 1
    mark = source.peek()
    source.place += mark == "]"
    while mark != "]":
        yield source.value()
        mark = source.peek()
        if mark not in ("]", ","):
            raise _NoJsonError("cut short" if not mark else "Expecting ',' delimiter")
        source.place += 1
    if source.peek():
        raise _NoJsonError("something follows the array")
