"""Words of ASCII texts, found in the bytes of all texts at once.

A tokenizer cuts a text before it looks for pieces, so that the ids of a text are those of its
words, one after the other. Which bytes are a word depends on the tokenizer:

| tokenizer | words |
|---|---|
| BERT's normalizer and pre-tokenizer, WordPiece | runs of letters and digits, single marks |
| byte-level BPE with the pattern of GPT-2, Llama 3 or Qwen | see `split_parts` |
| Unigram behind a split at blanks (T5, XLM-RoBERTa) | what is between blanks |
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram, WordPiece

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


def _find_kinds() -> np.ndarray:
    """Return the kind of every byte, [256] uint8."""
    kinds = np.full(256, _OTHER, np.uint8)
    kinds[33:127] = _PUNCTUATION
    for letters in (b"0123456789", b"abcdefghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"):
        kinds[list(letters)] = _LETTER
    kinds[list(b" \t")] = _BLANK
    kinds[list(b"\r\n")] = _LINE_END
    return kinds


_KINDS = _find_kinds()


@dataclass(frozen=True)
class SplitTexts:
    """The words of `B` texts in order, as places in the bytes of all texts.

    `data`: the bytes, [N] uint8; `starts`, `ends`: the first byte of each word and the one behind
    it, [W] int64; `offsets`: the index of each text's first word, [B + 1] int64.
    """

    data: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    offsets: np.ndarray

    def words(self, rows: np.ndarray) -> list[str]:
        """Return the words at these places."""
        text = self.data.tobytes().decode("ascii")
        starts = self.starts[rows].tolist()
        ends = self.ends[rows].tolist()
        return [text[start:end] for start, end in zip(starts, ends, strict=True)]


Splitter = Callable[[pa.StringArray], SplitTexts]


def is_split_at_words(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer gives to an ASCII text the ids of its words, one after the other."""
    return choose_splitter(tokenizer) is not None


def choose_splitter(tokenizer: Tokenizer) -> Splitter | None:
    """Return the function that finds words of ASCII texts; None if ids are not those of words."""
    normalizers = _read_steps(tokenizer.normalizer, "normalizers")
    splits = _read_steps(tokenizer.pre_tokenizer, "pretokenizers")
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
    return splitter if all(step["type"] in allowed for step in normalizers) else None


def _read_steps(part: Any, name: str) -> list[dict[str, Any]]:
    """Return the steps of a normalizer or a pre-tokenizer, as tokenizers writes them."""
    if part is None:
        return []
    state = json.loads(part.__getstate__())
    return list(state[name]) if state["type"] == "Sequence" else [state]


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


def split_words(texts: pa.StringArray) -> SplitTexts:
    """Return the words of ASCII texts: runs of letters and digits, and each punctuation mark."""
    data, offsets = _read_bytes(texts)
    kinds = _KINDS.take(data)
    return _cut(data, offsets, kinds > _LINE_END, _follows_another(kinds == _LETTER))


def split_at_blanks(texts: pa.StringArray) -> SplitTexts:
    """Return the words of ASCII texts: all that is between blanks."""
    data, offsets = _read_bytes(texts)
    is_shown = _KINDS.take(data) > _LINE_END
    return _cut(data, offsets, is_shown, _follows_another(is_shown))


def split_parts(texts: pa.StringArray) -> SplitTexts:
    """Return parts of ASCII texts that no match of the byte-level patterns reaches across.

    A part begins before a run of blanks, before a line end behind a letter or a digit, and before
    a mark behind one. In the patterns nothing but a blank stands before a blank, no mark is behind
    a letter, and only blanks look at what follows. Other borders depend on the pattern: `.` and a
    line end are one match of Qwen's, `(` and a word too, `'` and an s everywhere.
    """
    data, offsets = _read_bytes(texts)
    kinds = _KINDS.take(data)
    before = np.empty_like(kinds)
    before[:1] = _BLANK
    before[1:] = kinds[:-1]
    begins = (kinds == _BLANK) & (before > _LINE_END)
    begins |= (before == _LETTER) & ((kinds == _LINE_END) | (kinds == _PUNCTUATION))
    return _cut(data, offsets, np.ones(len(data), bool), ~begins)


def find_unusual_texts(texts: pa.StringArray) -> np.ndarray:
    """Return the places of texts with other bytes than printable ASCII, tabs and line ends."""
    data, offsets = _read_bytes(texts)
    unusual = np.flatnonzero(_KINDS.take(data) == _OTHER)
    return np.searchsorted(offsets, unusual, side="right") - 1


def _follows_another(is_kind: np.ndarray) -> np.ndarray:
    """Return which bytes are of a kind, as the byte before them is, [N] bool."""
    follows = np.zeros(len(is_kind), bool)
    follows[1:] = is_kind[1:] & is_kind[:-1]
    return follows


def _cut(
    data: np.ndarray, offsets: np.ndarray, is_shown: np.ndarray, goes_on: np.ndarray
) -> SplitTexts:
    """Make words of the bytes that are shown; a byte that `goes_on` is of the word before it."""
    goes_on[offsets[:-1][offsets[:-1] < len(data)]] = False
    is_last = is_shown.copy()
    is_last[:-1] &= ~goes_on[1:]
    starts = np.flatnonzero(is_shown & ~goes_on)
    return SplitTexts(data, starts, np.flatnonzero(is_last) + 1, np.searchsorted(starts, offsets))


def _read_bytes(texts: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes of all texts, [N] uint8, and the offset of each text, [B + 1] int64."""
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.zeros(0, np.uint8)
    if data_buffer is not None:
        data = np.frombuffer(data_buffer, np.uint8)
    first = int(offsets[0])
    return data[first : int(offsets[-1])], offsets.astype(np.int64) - first
