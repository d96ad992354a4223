"""JSON files: an array of objects, or consecutive objects, read value by value."""

import codecs
import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite
from sentence_beam.transforms.corpus.files import InputFile, open_decompressed, open_unchanged
from sentence_beam.transforms.corpus.formats.encoding import choose_errors, find_encoding
from sentence_beam.transforms.corpus.formats.text_lines import report_faults
from sentence_beam.transforms.storage.base import BLOCK


def read_whole_number(digits: str) -> int | str:
    """Return the number; its digits if they are more than Python reads (4,300)."""
    try:
        return int(digits)
    except ValueError:
        return digits


DECODER = json.JSONDecoder(parse_int=read_whole_number)
SPACE = re.compile(r"[ \t\r\n]*")
MOST_CHARACTERS = 1 << 28  # in one value
NEAR_THE_END = 12  # characters; the error about a cut escape has the place of its start
CUT_NUMBER = 2  # characters at most after a number that go on with it, but not alone
VALUES = 8192


def read_json(file: InputFile) -> Iterator[list[Any]]:
    """Yield blocks of the rows of a JSON file; bytes that are not UTF-8 are lone surrogates.

    The rows are the values of its array or its consecutive values; if `--json-rows` names an array,
    the values of that. Raises SentenceBeamError for a file that is cut short, corrupt, not JSON, or
    without the array.
    """
    with open_unchanged(file) as raw:
        source = _JsonText(_decode_text(open_decompressed(file, raw)))
        name = file.syntax.json_rows
        with _placing_faults(file, source):
            values = _read_named(source, name) if name else _read_values(source)
            yield from report_faults(file, _collect_blocks(source, values))


@contextlib.contextmanager
def _placing_faults(file: InputFile, source: "_JsonText") -> Iterator[None]:
    """Turn a fault of JSON into one line with the file and the place."""
    try:
        yield
    except _NoArrayError as error:
        raise OptionError(f"{file.path} {error.message}") from error
    except _NoJsonError as error:
        raise SentenceBeamError(
            f"{file.path} is no JSON at character {source.before + source.place} ({error});"
            f" mend it or leave it out of {cite('input')}"
        ) from error


class _NoArrayError(SentenceBeamError):
    """The file has no array of the requested name."""


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

    def read_on(self) -> bool:
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
            if not self.read_on():
                return ""

    def take_value(self) -> Any:
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
                if is_cut and self.read_on():
                    continue
                raise _NoJsonError(error.msg) from error
            # more of a number may follow, as of "1.", "1e" and "1e+"
            is_whole = isinstance(value, (dict, list, str)) or end + CUT_NUMBER < len(self.text)
            size = end - self.place
            if is_whole or not self.read_on():
                self.place += size
                return value


def _decode_text(reader: Any) -> Iterator[str]:
    block = reader.read(BLOCK)
    encoding = find_encoding(block)
    decoder = codecs.getincrementaldecoder(encoding)(choose_errors(encoding))
    while block:
        text = decoder.decode(block)
        block = reader.read(BLOCK)
        if text:
            yield text
    yield decoder.decode(b"", final=True)


def _collect_blocks(source: _JsonText, values: Iterator[Any]) -> Iterator[list[Any]]:
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


def _read_values(source: _JsonText) -> Iterator[Any]:
    """Yield the values of a file: those of its array, or consecutive ones."""
    if source.peek() == "[":
        yield from _read_array(source)
        if source.peek():
            raise _NoJsonError("something follows the array")
    else:
        while source.peek():
            yield source.take_value()


def _read_named(source: _JsonText, name: str) -> Iterator[Any]:
    """Yield the values of the array of this name in each of a file's objects."""
    arrays_seen = _ArraysFound()
    while source.peek():
        yield from _read_named_in(source, name, arrays_seen)
    if arrays_seen.keys is not None and not arrays_seen.arrays:
        keys = ", ".join(map(repr, arrays_seen.keys)) or "none"
        raise _NoArrayError(f"has no array {name} ({cite('json_rows')}); keys: {keys}")


@dataclass
class _ArraysFound:
    """The arrays that were found so far, and the keys of the first object without one."""

    arrays: int = 0
    keys: list[str] | None = None


def _read_named_in(source: _JsonText, name: str, arrays_seen: _ArraysFound) -> Iterator[Any]:
    """Yield the values of the array of this name in an object."""
    if source.peek() != "{":
        raise _NoArrayError(f"has another value than an object around {name} ({cite('json_rows')})")
    source.place += 1
    keys = []
    mark = ","
    if source.peek() == "}":
        source.place += 1
        mark = "}"
    while mark == ",":
        key = _take_key(source)
        keys.append(key)
        if key == name:
            if source.peek() != "[":
                raise _NoArrayError(f"has no array in {name} ({cite('json_rows')})")
            arrays_seen.arrays += 1
            yield from _read_array(source)
        elif name.startswith(f"{key}.") and source.peek() == "{":
            yield from _read_named_in(source, name.removeprefix(f"{key}."), arrays_seen)
        else:
            source.take_value()
        mark = _take_mark(source, "}")
    if arrays_seen.keys is None and not arrays_seen.arrays:
        arrays_seen.keys = keys


def _take_key(source: _JsonText) -> str:
    """Take a key and the colon after it."""
    if source.peek() != '"':
        raise _NoJsonError("Expecting property name enclosed in double quotes")
    key: str = source.take_value()
    if source.peek() != ":":
        raise _NoJsonError("Expecting ':' delimiter")
    source.place += 1
    return key


def _read_array(source: _JsonText) -> Iterator[Any]:
    """Yield the values of an array, each once the mark after it is checked."""
    source.place += 1
    if source.peek() == "]":
        source.place += 1
        return
    mark = ","
    while mark == ",":
        value = source.take_value()
        mark = _take_mark(source, "]")
        yield value


def _take_mark(source: _JsonText, end: str) -> str:
    """Take what is after a value: a comma, or the bracket that ends the values."""
    mark = source.peek()
    if not mark:
        raise _NoJsonError("cut short")
    if mark not in (end, ","):
        raise _NoJsonError("Expecting ',' delimiter")
    source.place += 1
    return mark
