"""Places in a JSON file where values begin, found without parsing it, for several workers.

The file is read once, at some 300 MB/s. Outside of strings, its brackets tell how deep each byte
is. In an array, a place is a comma between two of its values; of consecutive objects, the bracket
that opens one. If a file is valid JSON, these places are right. If it is not, the text between two
of them is not valid either, and its reader raises the error. No place is found in a file that is
cut short, that has text after its array, or consecutive values other than objects and arrays: one
worker reads it.
"""

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from transforms.corpus.encoding import BOM
from transforms.corpus.files import InputFile, open_unchanged
from transforms.corpus.places import Place, Places, first_places

AT_ONCE = 1 << 20  # bytes that are read
BLOCK = 1 << 17  # bytes that are scanned: few, to remain in the processor's cache
QUOTE, COMMA, BACKSLASH = b'",\\'
PAIR = b"\\\\"  # an escaped backslash
ESCAPED = b"\0\0"  # replaces it
BLANKS = b" \t\r\n"
OPENING, CLOSING = b"[{", b"]}"
IN_LOWER_CASE = 0x20  # this bit makes a square bracket a curly one
SHORT = 2  # bytes between two values that are checked as the first and the last one


def _is_one_of(characters: bytes) -> np.ndarray:
    """Whether a byte is one of these, bool [256]."""
    table = np.zeros(256, bool)
    table[list(characters)] = True
    return table


IS_BLANK = _is_one_of(BLANKS)
STEPS = _is_one_of(OPENING).astype(np.int8) - _is_one_of(CLOSING).astype(np.int8)


def find_json_places(file: InputFile, cut: int) -> Places | None:
    """Find the first value in each `cut` bytes of a file; None if values cannot be told apart.

    Raises InputChangedError if the file changed.
    """
    with open_unchanged(file) as raw:
        try:
            return _find(raw, cut)
        except _UnclearValuesError:
            return None


class _UnclearValuesError(Exception):
    """Values cannot be told apart by counting brackets."""


def _find(raw: BinaryIO, cut: int) -> Places:
    begins = [Place(0, 0, 0)]
    rows = 0
    offset = 0
    head = raw.read(AT_ONCE)
    if head.startswith(BOM):
        offset = len(BOM)
        head = head[offset:]
    scan = _Scan(head)
    for block in _blocks(head, raw):
        starts = scan.read(block) + offset
        if not rows:
            starts[:1] = 0  # the first part has what is before the first value, too
        begins += first_places(starts, rows, cut, begins)
        rows += len(starts)
        offset += len(block)
    scan.end()
    return Places(begins, rows)


def _blocks(head: bytes, raw: BinaryIO) -> Iterator[bytes]:
    """Yield the head and the rest of a file in blocks to scan."""
    data = head
    while data:
        for start in range(0, len(data), BLOCK):
            yield data[start : start + BLOCK]
        data = raw.read(AT_ONCE)


class _Scan:
    """The structure of a JSON text that is read block by block: quotes and open brackets so far.

    An array has its values at depth 1, text with consecutive objects at depth 0.
    """

    def __init__(self, head: bytes):
        first = head.lstrip(BLANKS)[:1]
        if not first or first not in OPENING:
            raise _UnclearValuesError
        self._is_array = first == b"["
        self._arrays = 0
        self._is_quoted = False
        self._is_escaped = False
        self._depth = 0

    def read(self, data: bytes) -> np.ndarray:
        """Return the places of a block at which values begin, int64 [n].

        In an array these are its bracket and its commas.
        """
        marks = self._marks(data)
        values = np.frombuffer(data, np.uint8)
        kinds = values[marks]
        steps = STEPS[kinds]
        depths = self._depth + np.cumsum(steps, dtype=np.int64)
        opens = marks[(steps > 0) & (depths == 1)]
        closes = marks[(steps < 0) & (depths == 0)]
        if (depths < 0).any():
            raise _UnclearValuesError
        depth = self._depth + int(steps.sum())
        self._check_outside(data, opens, closes, depth)
        self._depth = depth
        if not self._is_array:
            return opens
        self._arrays += len(opens)
        if self._arrays > 1:
            raise _UnclearValuesError
        return np.concatenate([opens, marks[(kinds == COMMA) & (depths == 1)]])

    def end(self) -> None:
        """Raise _UnclearValuesError if the text ends within a value or its array."""
        if self._depth or self._is_quoted:
            raise _UnclearValuesError

    def _marks(self, data: bytes) -> np.ndarray:
        """The places of the brackets and commas of a block that are in no string, int64 [n]."""
        if self._is_escaped:
            data = ESCAPED[:1] + data[1:]
        values = np.frombuffer(data, np.uint8)
        is_slash = values == BACKSLASH
        if (is_slash[1:] & is_slash[:-1]).any():
            data = data.replace(PAIR, ESCAPED)
            values = np.frombuffer(data, np.uint8)
            is_slash = values == BACKSLASH
        self._is_escaped = bool(is_slash[-1])
        is_quote = values == QUOTE
        is_quote[1:] &= ~is_slash[:-1]
        is_quote[0] ^= self._is_quoted
        is_quoted = _are_odd(is_quote)
        self._is_quoted = bool(is_quoted[-1])
        lower = values | IN_LOWER_CASE
        is_mark = (lower == OPENING[1]) | (lower == CLOSING[1]) | (values == COMMA)
        return np.flatnonzero(is_mark & ~is_quoted)

    def _check_outside(
        self, data: bytes, opens: np.ndarray, closes: np.ndarray, depth: int
    ) -> None:
        """Raise _UnclearValuesError unless all bytes outside of brackets are blanks.

        `opens` and `closes` are the outermost brackets of a block, which ends at this depth.
        """
        begins = closes + 1
        ends = opens
        if not self._depth:
            begins = np.concatenate([[0], begins])
        if not depth:
            ends = np.concatenate([ends, [len(data)]])
        lengths = ends - begins
        values = np.frombuffer(data, np.uint8)
        for edge in (begins[lengths > 0], ends[lengths > 0] - 1):
            if not IS_BLANK[values[edge]].all():
                raise _UnclearValuesError
        for place in np.flatnonzero(lengths > SHORT).tolist():
            if data[begins[place] : ends[place]].strip(BLANKS):
                raise _UnclearValuesError


def _are_odd(mask: np.ndarray) -> np.ndarray:
    """Whether up to each place of a mask [n] the number of true values is odd, bool [n].

    This is `np.logical_xor.accumulate`, by words of 64 bits, in a quarter of its time.
    """
    bits = np.packbits(mask, bitorder="little")
    words = np.zeros(len(bits) // 8 + 1, np.uint64)
    words.view(np.uint8)[: len(bits)] = bits
    for shift in (1, 2, 4, 8, 16, 32):
        words ^= words << np.uint64(shift)
    totals = words >> np.uint64(63)
    before = np.bitwise_xor.accumulate(totals) ^ totals
    words ^= np.uint64(0) - before
    return np.unpackbits(words.view(np.uint8), count=len(mask), bitorder="little").view(bool)
