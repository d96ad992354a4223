"""Token ids of ASCII texts from a cache of words, so that the tokenizer reads each word once.

A tokenizer cuts a text before it looks for pieces, so that the ids of a text are those of its
words, one after the other. Words are found in the bytes of all texts at once, by one of three
rules. A text with other characters, or with the tokenizer's special tokens in it, goes the
tokenizer's own way.

| tokenizer | words |
|---|---|
| BERT's normalizer and pre-tokenizer, WordPiece | runs of letters and digits, single marks |
| byte-level BPE with the pattern of GPT-2, Llama 3 or Qwen | see `split_parts` |
| Unigram behind a split at blanks (T5, XLM-RoBERTa) | what is between blanks |
"""

import json
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram, WordPiece

from transforms.base.arrow import mask_array, mask_of, string_array

# Most words in the cache, about 100 MB: text of random letters would fill it without end.
MOST_WORDS = 500_000
_MANY_WORDS = 1000  # of texts that are tokenized together
_BLANK, _LINE_END, _PUNCTUATION, _LETTER, _OTHER = range(5)
# Normalizers that leave ASCII texts, or their words, as they are (lower-cased).
_BERT_NORMALIZERS = frozenset(("BertNormalizer", "Lowercase"))
_NORMALIZERS = frozenset(("NFC", "NFD", "NFKC", "NFKD", "Lowercase"))
_SPM_NORMALIZERS = _NORMALIZERS | {"Precompiled", "Nmt", "Strip"}
_ONE_BLANK = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
# The patterns of Llama 3 (with `{1,3}`) and Qwen.
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PATTERNS = (_PATTERN % "{1,3}", _PATTERN % "")


def _kinds_of_bytes() -> np.ndarray:
    """Return the kind of every byte, [256] uint8."""
    kinds = np.full(256, _OTHER, np.uint8)
    kinds[33:127] = _PUNCTUATION
    for letters in (b"0123456789", b"abcdefghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"):
        kinds[list(letters)] = _LETTER
    kinds[list(b" \t")] = _BLANK
    kinds[list(b"\r\n")] = _LINE_END
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


Splitter = Callable[[pa.StringArray], SplitTexts]


def is_split_at_words(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer gives to an ASCII text the ids of its words, one after the other."""
    return splitter_of(tokenizer) is not None


def splitter_of(tokenizer: Tokenizer) -> Splitter | None:
    """Return the function that finds words of ASCII texts; None if ids are not those of words."""
    normalizers = _steps(tokenizer.normalizer, "normalizers")
    splits = _steps(tokenizer.pre_tokenizer, "pretokenizers")
    model = tokenizer.model
    splitter: Splitter | None = None
    allowed: frozenset[str] = frozenset()
    if isinstance(model, WordPiece) and _splits_as_bert(splits):
        splitter = split_words
        allowed = _BERT_NORMALIZERS
    elif isinstance(model, BPE) and _splits_bytes(splits) and not model.dropout:
        splitter = split_parts
        allowed = _NORMALIZERS
    elif isinstance(model, Unigram) and _splits_at_blanks(splits):
        splitter = split_at_blanks
        allowed = _SPM_NORMALIZERS
        normalizers = [step for step in normalizers if step != _ONE_BLANK]
    if all(step["type"] in allowed for step in normalizers):
        return splitter
    return None


def _steps(part: Any, name: str) -> list[dict[str, Any]]:
    """Return the steps of a normalizer or a pre-tokenizer, as tokenizers writes them."""
    if part is None:
        return []
    state = json.loads(part.__getstate__())
    if state["type"] != "Sequence":
        return [state]
    return list(state[name])


def _splits_as_bert(steps: list[dict[str, Any]]) -> bool:
    """Whether the only step is BERT's pre-tokenizer."""
    return [step["type"] for step in steps] == ["BertPreTokenizer"]


def _splits_at_blanks(steps: list[dict[str, Any]]) -> bool:
    """Whether the steps split at blanks, and mark each word alike.

    The scheme "first" marks only the first word of a text.
    """
    if [step["type"] for step in steps] != ["WhitespaceSplit", "Metaspace"]:
        return False
    return bool(steps[1]["prepend_scheme"] != "first")


def _splits_bytes(steps: list[dict[str, Any]]) -> bool:
    """Whether the steps split a text by the pattern of GPT-2, Llama 3 or Qwen, then write bytes."""
    if not steps or steps[-1]["type"] != "ByteLevel" or steps[-1]["add_prefix_space"]:
        return False
    if len(steps) == 1:
        return bool(steps[0]["use_regex"])
    if len(steps) != 2 or steps[-1]["use_regex"] or steps[0]["type"] != "Split":
        return False
    pattern = steps[0]["pattern"].get("Regex")
    is_isolated = steps[0]["behavior"] == "Isolated" and not steps[0]["invert"]
    return is_isolated and pattern in _PATTERNS


class WordPieces:
    """A tokenizer with a cache of words, for tokenizers that pass `is_split_at_words`.

    Threads may share it. It adds no special tokens and truncates nothing.
    """

    def __init__(self, tokenizer: Tokenizer, most_words: int = MOST_WORDS) -> None:
        self._tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self._tokenizer.no_truncation()
        split = splitter_of(tokenizer)
        assert split is not None, "a tokenizer whose ids are not those of words"
        self._split = split
        self._most_words = most_words
        added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        self._added = "|".join(re.escape(content) for content in added if content)
        self._lock = threading.Lock()
        self.places: dict[str, int] = {}
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
        found = mask_of(plain)
        data, offsets = _bytes_of(texts)
        others = np.flatnonzero(_KINDS[data] == _OTHER)
        found[np.searchsorted(offsets, others, side="right") - 1] = False
        return found

    def __call__(self, texts: pa.StringArray) -> OwnTokens:
        """The ids of texts for which `has_words_of` holds."""
        words = self._split(texts)
        encoded = words.words.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        if self._are_mostly_new(distinct, len(words.words)):
            return self._by_tokenizer(texts.to_pylist())
        starts, lengths, table = self._look_up(distinct)
        places = _places_of(encoded.indices)
        length_of_words = lengths[places]
        ends = np.concatenate([[0], np.cumsum(length_of_words)])
        tokens = np.repeat(starts[places] - ends[:-1], length_of_words)
        tokens += np.arange(int(ends[-1]))
        return OwnTokens(table[tokens], ends[words.offsets])

    def count(self, texts: Sequence[str]) -> np.ndarray:
        """Count the tokens of each text, which may have any characters, [B] int64."""
        array = string_array(texts)
        has_words = self.has_words_of(array)
        counts = np.empty(len(texts), np.int64)
        counts[has_words] = np.diff(self(array.filter(mask_array(has_words))).offsets)
        others = [texts[row] for row in np.flatnonzero(~has_words).tolist()]
        encodings = self._tokenizer.encode_batch_fast(others, add_special_tokens=False)
        counts[~has_words] = np.fromiter(map(len, encodings), np.int64, len(others))
        return counts

    def _are_mostly_new(self, distinct: Sequence[str], words: int) -> bool:
        """Return whether most of many words are new: numbers and hashes, which do not come again.

        To learn a word takes up to three times as long as to encode it in its text.
        """
        if words < _MANY_WORDS or 2 * len(distinct) < words:
            return False
        with self._lock:
            known = sum(word in self.places for word in distinct)
        return 2 * (len(distinct) - known) > words

    def _by_tokenizer(self, texts: Sequence[str]) -> OwnTokens:
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
        ids = [np.array(encoding.ids, np.int32) for encoding in encodings]
        return OwnTokens(np.concatenate(ids), np.concatenate([[0], np.cumsum(lengths)]))

    def _look_up(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the start and number of each word's ids in the table, [W] each, and the table."""
        with self._lock:
            if len(self.places) + len(words) > self._most_words:
                self._forget()
            new = [word for word in words if word not in self.places]
            if new:
                self._learn(new)
            places = np.fromiter(map(self.places.__getitem__, words), np.int64, len(words))
            return self._starts[places], self._lengths[places], self._table

    def _learn(self, words: Sequence[str]) -> None:
        encodings = self._tokenizer.encode_batch_fast(list(words), add_special_tokens=False)
        ids = [np.array(encoding.ids, np.int32) for encoding in encodings]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        ends = len(self._table) + np.cumsum(lengths)
        known = len(self.places)
        self.places |= {word: known + new for new, word in enumerate(words)}
        self._starts = np.concatenate([self._starts, ends - lengths])
        self._lengths = np.concatenate([self._lengths, lengths])
        self._table = np.concatenate([self._table, *ids])

    def _forget(self) -> None:
        self.places = {}
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
    return _cut_shown(data, offsets, begins, kinds > _LINE_END)


def split_at_blanks(texts: pa.StringArray) -> SplitTexts:
    """Return the words of ASCII texts: all that is between blanks."""
    data, offsets = _bytes_of(texts)
    is_shown = _KINDS[data] > _LINE_END
    begins = np.ones(len(data), bool)
    begins[1:] = ~is_shown[:-1]
    return _cut_shown(data, offsets, begins, is_shown)


def split_parts(texts: pa.StringArray) -> SplitTexts:
    """Return parts of ASCII texts that no match of the byte-level patterns reaches across.

    A part begins before a run of blanks, before a line end behind a letter or a digit, and before
    a mark behind one. In the patterns nothing but a blank stands before a blank, no mark is behind
    a letter, and only blanks look at what follows. Other borders depend on the pattern: `.` and a
    line end are one match of Qwen's, `(` and a word too, `'` and an s everywhere.
    """
    data, offsets = _bytes_of(texts)
    kinds = _KINDS[data]
    before = np.empty_like(kinds)
    before[:1] = _BLANK
    before[1:] = kinds[:-1]
    begins = (kinds == _BLANK) & (before > _LINE_END)
    begins |= (before == _LETTER) & ((kinds == _LINE_END) | (kinds == _PUNCTUATION))
    begins[_first_bytes(data, offsets)] = True
    counts = np.concatenate([[0], np.cumsum(begins)])
    return SplitTexts(_words_of(data, begins), counts[offsets])


def _cut_shown(
    data: np.ndarray, offsets: np.ndarray, begins: np.ndarray, is_shown: np.ndarray
) -> SplitTexts:
    """Cut texts where words begin, and leave out the bytes that are not shown."""
    begins[_first_bytes(data, offsets)] = True
    begins &= is_shown
    counts = np.concatenate([[0], np.cumsum(begins)])
    return SplitTexts(_words_of(data[is_shown], begins[is_shown]), counts[offsets])


def _first_bytes(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the places of the first byte of each text that has one."""
    return offsets[:-1][offsets[:-1] < len(data)]


def _words_of(letters: np.ndarray, begins: np.ndarray) -> pa.StringArray:
    """Return the words that begin at these letters, each up to the next one."""
    starts = np.flatnonzero(begins).astype(np.int32)
    ends = np.append(starts, np.int32(len(letters)))
    return pa.StringArray.from_buffers(len(starts), pa.py_buffer(ends), pa.py_buffer(letters))


def _places_of(indices: pa.Int32Array) -> np.ndarray:
    """Return indices without nulls; `to_numpy` would import pandas."""
    if not len(indices):
        return np.zeros(0, np.int32)
    return np.frombuffer(indices.buffers()[1], np.int32)[: len(indices)]


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
