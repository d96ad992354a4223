"""A hash table of words, which finds many at once by numpy, outside Python's lock."""

import os
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from sentence_beam.transforms.tokens.split_texts import SplitTexts

_CHUNK = 16  # bytes of a key
_MOST_FOLDED = 256  # bytes; longer words, which are data rather than text, are hashed one by one
_SLOTS_FOR_A_WORD = 4
# The bytes of a chunk that belong to a word of 0 to 16 bytes, as two integers.
_MASKS = np.tri(_CHUNK + 1, _CHUNK, -1, np.uint8) * np.uint8(255)
_FIRST_MASKS, _SECOND_MASKS = _MASKS.view(np.uint64).T.copy()
# Words of ASCII have no such bit: the key of a longer word is no short word.
_IS_LONG = np.uint64(0x80 << 56)
# Drawn for each process, so that nobody can make words that share a key.
_FIRST_FACTOR, _SECOND_FACTOR = np.frombuffer(os.urandom(16), np.uint64) | np.uint64(1)
_HALF = np.uint64(32)


@dataclass(frozen=True)
class WordKeys:
    """The keys of `W` words of ASCII: two integers each, `first` and `second` [W] uint64.

    They are the bytes of a word of up to 16. Those of a longer one are folded into them; two such
    words share a key with a chance of about 2**-127.
    """

    first: np.ndarray
    second: np.ndarray

    @classmethod
    def from_split(cls, split: SplitTexts) -> "WordKeys":
        """The keys of the words of texts."""
        padded = np.zeros(len(split.data) + _CHUNK, np.uint8)
        padded[: len(split.data)] = split.data
        chunks = np.ndarray(len(split.data) + 1, f"V{_CHUNK}", padded, strides=(1,))
        lengths = split.ends - split.starts
        first, second = _take_chunk(chunks, split.starts, lengths)
        is_long = lengths > _CHUNK
        rows = np.flatnonzero(is_long)
        done = _CHUNK
        while len(rows) and done < _MOST_FOLDED:
            chunk = _take_chunk(chunks, split.starts[rows] + done, lengths[rows] - done)
            first[rows], second[rows] = _fold(first[rows], second[rows], chunk)
            done += _CHUNK
            rows = rows[lengths[rows] > done]
        for row in rows.tolist():
            word = split.data[split.starts[row] : split.ends[row]].tobytes()
            digest = blake2b(word, digest_size=_CHUNK).digest()
            first[row], second[row] = np.frombuffer(digest, np.uint64)
        second[is_long] |= _IS_LONG
        return cls(first, second)

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: np.ndarray) -> "WordKeys":
        """Select the keys at these places, in this order."""
        return WordKeys(self.first.take(rows), self.second.take(rows))

    def hashes(self) -> np.ndarray:
        """Return a number of each key whose upper bits vary, [W] uint64."""
        mixed = (self.first ^ self.second * _SECOND_FACTOR) * _FIRST_FACTOR
        return (mixed ^ mixed >> _HALF) * _SECOND_FACTOR


@dataclass(frozen=True)
class WordTable:
    """A table of distinct words, numbered from 1; it does not change.

    `keys`: those of all words, [count + 1], of which number 0 is no word's; `slots`: numbers of
    words, 0 for none, int32 [a power of two]. A word is in the slot that its hash tells, or in one
    of the next, with no empty slot before it.
    """

    keys: WordKeys
    slots: np.ndarray

    @property
    def count(self) -> int:
        """The number of words in the table."""
        return len(self.keys) - 1

    def find(self, keys: WordKeys) -> np.ndarray:
        """Return the number of each word, 0 if the table does not have it, [W] int32."""
        slots = self._find_first_slots(keys)
        numbers = self.slots.take(slots)
        rows = np.flatnonzero(self._is_other(numbers, keys))
        while len(rows):
            slots[rows] = (slots[rows] + 1) % len(self.slots)
            numbers[rows] = self.slots.take(slots[rows])
            rows = rows[self._is_other(numbers[rows], keys.take(rows))]
        return numbers

    def add_words(self, keys: WordKeys) -> "WordTable":
        """Add distinct words that the table does not have."""
        first = np.concatenate([self.keys.first, keys.first])
        second = np.concatenate([self.keys.second, keys.second])
        larger = WordTable(WordKeys(first, second), self.slots.copy())
        rows = np.arange(self.count + 1, larger.count + 1, dtype=np.int32)
        if _SLOTS_FOR_A_WORD * larger.count > len(self.slots):
            size = 1 << (2 * _SLOTS_FOR_A_WORD * larger.count).bit_length()
            larger = WordTable(larger.keys, np.zeros(size, np.int32))
            rows = np.arange(1, larger.count + 1, dtype=np.int32)
        larger._fill(rows)
        return larger

    def _fill(self, numbers: np.ndarray) -> None:
        """Put words into the first empty slot of theirs."""
        slots = self._find_first_slots(self.keys.take(numbers))
        while len(numbers):
            is_free = self.slots[slots] == 0
            self.slots[slots[is_free]] = numbers[is_free]  # of several words one gets the slot
            left = np.flatnonzero(self.slots[slots] != numbers)
            numbers = numbers[left]
            slots = (slots[left] + 1) % len(self.slots)

    def _find_first_slots(self, keys: WordKeys) -> np.ndarray:
        shift = np.uint64(64 - (len(self.slots).bit_length() - 1))
        return (keys.hashes() >> shift).view(np.int64)

    def _is_other(self, numbers: np.ndarray, keys: WordKeys) -> np.ndarray:
        """Return which slots with these numbers have another word than these, [W] bool."""
        known_keys = self.keys.take(numbers)
        is_other = (known_keys.first != keys.first) | (known_keys.second != keys.second)
        return is_other & (numbers != 0)


_NO_KEYS = WordKeys(np.zeros(1, np.uint64), np.zeros(1, np.uint64))
EMPTY_TABLE = WordTable(_NO_KEYS, np.zeros(2, np.int32))


def find_first_of_each(keys: WordKeys, rows: np.ndarray) -> np.ndarray:
    """Return the first of these places, ascending, of each distinct word, in no order."""
    chosen = keys.take(rows)
    order = np.lexsort((chosen.first, chosen.second))
    ordered = chosen.take(order)
    is_new = np.ones(len(rows), bool)
    is_new[1:] = (np.diff(ordered.first) != 0) | (np.diff(ordered.second) != 0)
    return rows[order[is_new]]


def _take_chunk(
    chunks: np.ndarray, starts: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return up to 16 bytes from each start, no more than the length; two uint64 [W]."""
    both = chunks[starts].view(np.uint64).reshape(-1, 2)
    shown = np.minimum(lengths, _CHUNK)
    return both[:, 0] & _FIRST_MASKS.take(shown), both[:, 1] & _SECOND_MASKS.take(shown)


def _fold(
    first: np.ndarray, second: np.ndarray, chunk: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Mix a further chunk into keys; different keys or chunks give different ones."""
    mixed_first = (first ^ chunk[0]) * _FIRST_FACTOR
    mixed_second = ((second ^ chunk[1]) + (mixed_first ^ mixed_first >> _HALF)) * _SECOND_FACTOR
    return mixed_first + (mixed_second ^ mixed_second >> _HALF), mixed_second
