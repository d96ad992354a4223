"""Token ids of ASCII texts by their words: a word meets the tokenizer once, and its ids are kept.

BERT's normalizer and pre-tokenizer read one character at a time and split at blanks and around
punctuation, so that the ids of a text are those of its words, one after the other. Words are
found in the bytes of all texts at once. A text with other characters, or with the tokenizer's
special tokens in it, goes the tokenizer's own way.
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

from transforms.base.arrow import mask_array, mask_of, string_array

# Words that are kept, some 100 MB; text of random letters would make them grow for ever.
MOST_WORDS = 500_000
_BLANK, _PUNCTUATION, _LETTER, _OTHER = range(4)


def _kinds_of_bytes() -> np.ndarray:
    """Return the kind of every byte, [256] uint8, as BERT's pre-tokenizer sees it."""
    kinds = np.full(256, _OTHER, np.uint8)
    kinds[33:127] = _PUNCTUATION
    for letters in (b"0123456789", b"abcdefghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"):
        kinds[list(letters)] = _LETTER
    kinds[list(b" \t\n\r")] = _BLANK
    return kinds


_KINDS = _kinds_of_bytes()


@dataclass(frozen=True)
class SplitTexts:
    """The words of `B` texts, one after the other: `words` a string array [W], `offsets` [B + 1]
    the place of each text's first word.
    """

    words: pa.StringArray
    offsets: np.ndarray


@dataclass(frozen=True)
class OwnTokens:
    """The ids of `B` texts without special tokens and untruncated: `ids` [N] int32, `offsets`
    [B + 1] int64.
    """

    ids: np.ndarray
    offsets: np.ndarray


def is_split_at_words(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer gives to an ASCII text the ids of its words, one after the other."""
    steps: list[Any] = [tokenizer.normalizer]
    if isinstance(tokenizer.normalizer, NormalizerSequence):
        steps = list(cast("Iterable[Any]", tokenizer.normalizer))
    return (
        isinstance(tokenizer.model, WordPiece)
        and isinstance(tokenizer.pre_tokenizer, BertPreTokenizer)
        and all(step is None or isinstance(step, BertNormalizer | Lowercase) for step in steps)
    )


class WordPieces:
    """The ids of words by a tokenizer for which `is_split_at_words` holds. Safe to use from
    several threads.
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
        """Whether each text is one of printable ASCII characters, tabs and ends of line, without
        a special or an added token, [B] bool.
        """
        plain = pc.string_is_ascii(texts)
        if self._added:
            tokens = pc.match_substring_regex(texts, self._added, ignore_case=True)
            plain = pc.and_not(plain, tokens)
        found = mask_of(plain)
        data, offsets = _bytes_of(texts)
        others = np.flatnonzero(_KINDS[data] == _OTHER)
        found[np.searchsorted(offsets, others, side="right") - 1] = False
        return found

    def __call__(self, texts: pa.StringArray) -> OwnTokens:
        """The ids of texts for which `has_words_of` holds."""
        words = split_words(texts)
        encoded = words.words.dictionary_encode()
        starts, lengths, table = self._look_up(encoded.dictionary.to_pylist())
        places = np.frombuffer(encoded.indices.buffers()[1], np.int32)[: len(encoded)]
        length_of_words = lengths[places]
        ends = np.concatenate([[0], np.cumsum(length_of_words)])
        tokens = np.repeat(starts[places] - ends[:-1], length_of_words)
        tokens += np.arange(int(ends[-1]))
        return OwnTokens(table[tokens], ends[words.offsets])

    def count(self, texts: Sequence[str]) -> np.ndarray:
        """The number of tokens of each text, whatever its characters, [B] int64."""
        array = string_array(texts)
        has_words = self.has_words_of(array)
        counts = np.empty(len(texts), np.int64)
        counts[has_words] = np.diff(self(array.filter(mask_array(has_words))).offsets)
        others = [texts[row] for row in np.flatnonzero(~has_words).tolist()]
        encodings = self._tokenizer.encode_batch_fast(others, add_special_tokens=False)
        counts[~has_words] = np.fromiter(map(len, encodings), np.int64, len(others))
        return counts

    def _look_up(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return where the ids of each word begin in a table, how many they are, and the table."""
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
    """Return the bytes of all texts, [N] uint8, and the place of each text's first, [B + 1]."""
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.zeros(0, np.uint8)
    if data_buffer is not None:
        data = np.frombuffer(data_buffer, np.uint8)
    first = int(offsets[0])
    return data[first : int(offsets[-1])], offsets.astype(np.int64) - first


@dataclass(frozen=True)
class TokenFrame:
    """Special tokens around each text: the ids before and after it, and the most tokens of its own
    that it keeps (None for all), its last ones if `keeps_end`.
    """

    before: Sequence[int]
    after: Sequence[int]
    room: int | None
    keeps_end: bool

    def around(self, own: OwnTokens) -> OwnTokens:
        """The ids of each text, cut to its room, with the special tokens around it."""
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
    """Return what a tokenizer puts around a text, and how it truncates."""
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
