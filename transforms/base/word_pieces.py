"""Token ids of ASCII texts from a cache of words, so that the tokenizer reads each word once.

BERT's normalizer and pre-tokenizer read one character at a time and split at blanks and around
punctuation. Therefore the ids of a text are the ids of its words, joined in order. The words are
found in the bytes of all texts at once. The tokenizer itself must read texts with other characters
or with special tokens.
"""

import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer, Lowercase
from tokenizers.normalizers import Sequence as NormalizerSequence
from tokenizers.pre_tokenizers import BertPreTokenizer

# Most words in the cache, about 100 MB: text of random letters would fill it without end.
MOST_WORDS = 500_000
_BLANK, _PUNCTUATION, _LETTER, _OTHER = range(4)


def _kinds_of_bytes() -> np.ndarray:
    """Return the kind of every byte for BERT's pre-tokenizer, [256] uint8."""
    kinds = np.full(256, _OTHER, np.uint8)
    kinds[33:127] = _PUNCTUATION
    for letters in (b"0123456789", b"abcdefghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"):
        kinds[list(letters)] = _LETTER
    kinds[list(b" \t\n\r")] = _BLANK
    return kinds


_KINDS = _kinds_of_bytes()


@dataclass(frozen=True)
class SplitTexts:
    """The words of `B` texts, joined in order.

    `words`: a string array [W]; `offsets`: the index of each text's first word, [B + 1] int64.
    """

    words: pa.StringArray
    offsets: np.ndarray


@dataclass(frozen=True)
class OwnTokens:
    """The token ids of `B` texts, joined in order: `ids` [N] int32, `offsets` [B + 1] int64."""

    ids: np.ndarray
    offsets: np.ndarray


def is_split_at_words(tokenizer: Tokenizer) -> bool:
    """Return whether the ids of any ASCII text are the ids of its words, joined in order."""
    steps: list[Any] = [tokenizer.normalizer]
    if isinstance(tokenizer.normalizer, NormalizerSequence):
        steps = list(cast("Iterable[Any]", tokenizer.normalizer))
    return (
        isinstance(tokenizer.model, WordPiece)
        and isinstance(tokenizer.pre_tokenizer, BertPreTokenizer)
        and all(step is None or isinstance(step, BertNormalizer | Lowercase) for step in steps)
    )


class WordPieces:
    """A tokenizer with a cache of words, for tokenizers that pass `is_split_at_words`.

    Threads may share it. It adds no special tokens and truncates nothing.
    """

    def __init__(self, tokenizer: Tokenizer, most_words: int = MOST_WORDS) -> None:
        self._tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self._tokenizer.no_truncation()
        self._most_words = most_words
        added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        self._added = "|".join(re.escape(content) for content in added if content)
        self._lock = threading.Lock()
        self._places: dict[str, int] = {}
        self._starts = np.zeros(0, np.int64)
        self._lengths = np.zeros(0, np.int64)
        self._table = np.zeros(0, np.int32)

    def has_words_of(self, texts: pa.StringArray) -> np.ndarray:
        """Return which texts can be tokenized by their words, [B] bool.

        These have only printable ASCII characters, tabs and line ends, and no special or added
        token.
        """
        plain = pc.string_is_ascii(texts)
        if self._added:
            tokens = pc.match_substring_regex(texts, self._added, ignore_case=True)
            plain = pc.and_not(plain, tokens)
        found = plain.to_numpy(zero_copy_only=False)
        data, offsets = _bytes_of(texts)
        others = np.flatnonzero(_KINDS[data] == _OTHER)
        found[np.searchsorted(offsets, others, side="right") - 1] = False
        return found

    def __call__(self, texts: pa.StringArray) -> OwnTokens:
        """Return the ids of texts that pass `has_words_of`."""
        words = split_words(texts)
        encoded = words.words.dictionary_encode()
        starts, lengths, table = self._look_up(encoded.dictionary.to_pylist())
        places = encoded.indices.to_numpy()
        length_of_words = lengths[places]
        ends = np.concatenate([[0], np.cumsum(length_of_words)])
        tokens = np.repeat(starts[places] - ends[:-1], length_of_words)
        tokens += np.arange(int(ends[-1]))
        return OwnTokens(table[tokens], ends[words.offsets])

    def count(self, texts: Sequence[str]) -> np.ndarray:
        """Count the tokens of each text, which may have any characters, [B] int64."""
        array = pa.array(texts, pa.string())
        has_words = self.has_words_of(array)
        counts = np.empty(len(texts), np.int64)
        counts[has_words] = np.diff(self(array.filter(pa.array(has_words))).offsets)
        others = [texts[row] for row in np.flatnonzero(~has_words).tolist()]
        encodings = self._tokenizer.encode_batch_fast(others, add_special_tokens=False)
        counts[~has_words] = np.fromiter(map(len, encodings), np.int64, len(others))
        return counts

    def _look_up(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the start and number of each word's ids in the table, [W] each, and the table."""
        with self._lock:
            if len(self._places) + len(words) > self._most_words:
                self._forget()
            new = [word for word in words if word not in self._places]
            if new:
                self._learn(new)
            places = np.fromiter(map(self._places.__getitem__, words), np.int64, len(words))
            return self._starts[places], self._lengths[places], self._table

    def _learn(self, words: Sequence[str]) -> None:
        encodings = self._tokenizer.encode_batch_fast(list(words), add_special_tokens=False)
        ids = [np.array(encoding.ids, np.int32) for encoding in encodings]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        ends = len(self._table) + np.cumsum(lengths)
        known = len(self._places)
        self._places |= {word: known + new for new, word in enumerate(words)}
        self._starts = np.concatenate([self._starts, ends - lengths])
        self._lengths = np.concatenate([self._lengths, lengths])
        self._table = np.concatenate([self._table, *ids])

    def _forget(self) -> None:
        self._places = {}
        self._starts = self._starts[:0]
        self._lengths = self._lengths[:0]
        self._table = self._table[:0]


def split_words(texts: pa.StringArray) -> SplitTexts:
    """Return the words of ASCII texts: runs of letters and digits, and each punctuation mark."""
    data, offsets = _bytes_of(texts)
    kinds = _KINDS[data]
    is_letter = kinds == _LETTER
    begins = np.ones(len(data), bool)
    begins[1:] = ~(is_letter[1:] & is_letter[:-1])
    begins[offsets[:-1][offsets[:-1] < len(data)]] = True
    is_shown = kinds != _BLANK
    begins &= is_shown
    starts = np.flatnonzero(begins[is_shown]).astype(np.int32)
    letters = data[is_shown]
    ends = np.append(starts, np.int32(len(letters)))
    words = pa.StringArray.from_buffers(len(starts), pa.py_buffer(ends), pa.py_buffer(letters))
    before = np.concatenate([[0], np.cumsum(begins)])
    return SplitTexts(words, before[offsets])


def _bytes_of(texts: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes of all texts, [N] uint8, and the offset of each text, [B + 1] int64."""
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.zeros(0, np.uint8)
    if data_buffer is not None:
        data = np.frombuffer(data_buffer, np.uint8)
    first = int(offsets[0])
    return data[first : int(offsets[-1])], offsets.astype(np.int64) - first


@dataclass(frozen=True)
class TokenFrame:
    """The ids of special tokens `before` and `after` each text, and how texts are truncated.

    A text keeps at most `room` tokens of its own (None: all), the last ones if `keeps_end`.
    """

    before: Sequence[int]
    after: Sequence[int]
    room: int | None
    keeps_end: bool

    def around(self, own: OwnTokens) -> OwnTokens:
        """Truncate each text to its room and put the special tokens around it."""
        lengths = np.diff(own.offsets)
        kept = lengths
        first = own.offsets[:-1]
        if self.room is not None:
            kept = np.minimum(lengths, self.room)
        if self.keeps_end:
            first = own.offsets[1:] - kept
        ends = np.concatenate([[0], np.cumsum(kept)])
        framed = kept + (len(self.before) + len(self.after))
        offsets = np.concatenate([[0], np.cumsum(framed)])
        in_text = np.arange(int(ends[-1])) - np.repeat(ends[:-1], kept)
        ids = np.empty(int(offsets[-1]), np.int32)
        ids[np.repeat(offsets[:-1] + len(self.before), kept) + in_text] = own.ids[
            np.repeat(first, kept) + in_text
        ]
        for place, token in enumerate(self.before):
            ids[offsets[:-1] + place] = token
        for place, token in enumerate(self.after):
            ids[offsets[1:] - len(self.after) + place] = token
        return OwnTokens(ids, offsets)


def frame_of(tokenizer: Tokenizer) -> TokenFrame:
    """Return the special tokens that a tokenizer puts around a text, and its truncation."""
    encoding = tokenizer.encode("a")
    is_special = np.array(encoding.special_tokens_mask) == 1
    ids = np.array(encoding.ids)
    own = np.flatnonzero(~is_special)
    room = None
    keeps_end = False
    if tokenizer.truncation is not None:
        room = tokenizer.truncation["max_length"] - int(is_special.sum())
        keeps_end = tokenizer.truncation["direction"] == "left"
    return TokenFrame(ids[: own[0]].tolist(), ids[own[-1] + 1 :].tolist(), room, keeps_end)
