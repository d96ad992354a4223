"""JSON files: an array of objects, or consecutive objects, read value by value."""

import codecs
import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from transforms.base.errors import SentenceBeamError
from transforms.corpus.encoding import encoding_of, errors_of
from transforms.corpus.files import InputFile, decompressed, open_unchanged
from transforms.corpus.lines import whole
from transforms.storage.base import BLOCK

DECODER = json.JSONDecoder()
SPACE = re.compile(r"[ \t\r\n]*")
MOST_CHARACTERS = 1 << 28  # in one value
NEAR_THE_END = 12  # characters; the error about a cut escape has the place of its start
CUT_NUMBER = 2  # characters at most after a number that go on with it, but not alone
VALUES = 8192


def read_json(file: InputFile, offset: int = 0, rows: int | None = None) -> Iterator[list[Any]]:
    """Yield blocks of the values of a JSON file; bytes that are not UTF-8 are lone surrogates.

    `offset` is a byte of UTF-8 from which to read, 0 for all: the comma before a value of the
    array, or the first byte of a consecutive value. `rows` is the number of values (None: all).
    Raises SentenceBeamError for a file that is cut short, corrupt, or not JSON.
    """
    with open_unchanged(file) as raw:
        if offset:
            raw.seek(offset)
        source = _JsonText(_characters(decompressed(file, raw)))
        values = _values(source, begins_inside=offset > 0)
        place = ""
        if offset:
            place = f" after byte {offset}"
        with _fault_placed(file, source, place):
            yield from whole(file, _blocks(source, islice(values, rows)))


@dataclass(frozen=True)
class FirstValues:
    """The first values of a JSON file, and the bytes that they take in it."""

    values: list[Any]
    size: int


def read_first(file: InputFile) -> FirstValues:
    """Return the first block of values of a JSON file. Raises as `read_json`."""
    parts: list[str] = []
    with open_unchanged(file) as raw:
        characters = _characters(decompressed(file, raw))
        source = _JsonText(_noted(characters, parts))
        with _fault_placed(file, source, ""):
            values = next(whole(file, _blocks(source, _values(source, begins_inside=False))), [])
    if not values:
        return FirstValues([], 0)
    taken = "".join(parts)[: source.before + source.place]
    return FirstValues(values, len(taken.encode("utf8", "surrogateescape")))


@contextlib.contextmanager
def _fault_placed(file: InputFile, source: "_JsonText", origin: str) -> Iterator[None]:
    """Turn a fault of JSON into one line with the file and the place; `origin` is a phrase."""
    try:
        yield
    except _NoJsonError as error:
        raise SentenceBeamError(
            f"{file.path} is no JSON at character {source.before + source.place}{origin} ({error});"
            " mend it or leave it out of --input"
        ) from error


class _NoJsonError(SentenceBeamError):
    """The fault of a file, without its name and the place."""


@dataclass
class _JsonText:
    """Text of which values are taken one by one.

    `text` from `place` on is not taken yet. `before` is the number of characters before `text`.
    """

    parts: Iterator[str]
    text: str = ""
    place: int = 0
    before: int = 0

    def more(self) -> bool:
        """Read on, as much as is in memory; return False at the end."""
        rest = self.text[self.place :]
        parts = [rest]
        self.before += self.place
        size = len(rest)
        wanted = 2 * size
        if size > MOST_CHARACTERS:
            raise _NoJsonError(f"a value of more than {MOST_CHARACTERS:,} characters")
        while size <= wanted and (part := next(self.parts, "")):
            parts.append(part)
            size += len(part)
        self.text = "".join(parts)
        self.place = 0
        return len(parts) > 1

    def peek(self) -> str:
        """The next character that is not a blank, "" at the end."""
        while True:
            self.place = SPACE.match(self.text, self.place).end()  # type: ignore[union-attr]
            if self.place < len(self.text):
                return self.text[self.place]
            if not self.more():
                return ""

    def value(self) -> Any:
        """Take the next value."""
        self.peek()
        while True:
            try:
                value, end = DECODER.raw_decode(self.text, self.place)
            except RecursionError as error:
                raise _NoJsonError("brackets too deep") from error
            except json.JSONDecodeError as error:
                is_near_end = error.pos >= len(self.text) - NEAR_THE_END
                is_cut = is_near_end or error.msg.startswith("Unterminated string")
                if is_cut and self.more():
                    continue
                raise _NoJsonError(error.msg) from error
            # more of a number may follow, as of "1.", "1e" and "1e+"
            is_whole = isinstance(value, (dict, list, str)) or end + CUT_NUMBER < len(self.text)
            size = end - self.place
            if is_whole or not self.more():
                self.place += size
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


def _noted(characters: Iterator[str], parts: list[str]) -> Iterator[str]:
    """Yield the text, of which each part is added to `parts`."""
    for part in characters:
        parts.append(part)
        yield part


def _blocks(source: _JsonText, values: Iterator[Any]) -> Iterator[list[Any]]:
    block: list[Any] = []
    begun = 0
    for value in values:
        block.append(value)
        if len(block) == VALUES or source.before + source.place - begun > BLOCK:
            yield block
            block = []
            begun = source.before + source.place
    if block:
        yield block


def _values(source: _JsonText, begins_inside: bool) -> Iterator[Any]:
    """Yield the values of text that begins a file, or inside of a file at a place to cut it."""
    mark = source.peek()
    if mark == "," and begins_inside:
        source.place += 1
        yield from _elements(source)
    elif mark == "[" and not begins_inside:
        source.place += 1
        if source.peek() == "]":
            _take_mark(source)
        else:
            yield from _elements(source)
    else:
        while source.peek():
            yield source.value()


def _elements(source: _JsonText) -> Iterator[Any]:
    """Yield the values of an array from a first one on, each once the mark after it is checked."""
    mark = ","
    while mark == ",":
        value = source.value()
        mark = _take_mark(source)
        yield value


def _take_mark(source: _JsonText) -> str:
    """Take what is after a value of an array: a comma, or the bracket that ends the file."""
    mark = source.peek()
    if not mark:
        raise _NoJsonError("cut short")
    if mark not in ("]", ","):
        raise _NoJsonError("Expecting ',' delimiter")
    source.place += 1
    if mark == "]" and source.peek():
        raise _NoJsonError("something follows the array")
    return mark
