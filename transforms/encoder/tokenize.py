"""Tokenize texts into packed ids, with exact counts of the tokens that truncation cuts off."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from tokenizers import Encoding, Tokenizer

from sentence_beam.transforms.base.arrow_arrays import make_mask_array, make_string_array
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.gather import list_places
from sentence_beam.transforms.encoder.load_tokenizer import (
    copy_untruncated,
    find_unknown_id,
    load_tokenizer,
)
from sentence_beam.transforms.encoder.prompt_template import FilledTemplate, PromptTemplate
from sentence_beam.transforms.pooling.remove_biases import reduce_text
from sentence_beam.transforms.space.model_files import ModelFiles
from sentence_beam.transforms.tokens.split_texts import is_split_at_words
from sentence_beam.transforms.tokens.word_pieces import TokenFrame, WordPieces, read_frame

Rewrite = Callable[[list[str]], list[str]]
CHARACTERS_AT_ONCE = 1 << 18  # of a part: its arrays of words fit the cache of a core
# An Arrow array of strings holds 2 GB; a character takes one byte or more.
_MOST_CHARACTERS = 2**28
_SPECIAL, _KNOWN, _UNKNOWN = range(3)


@dataclass(frozen=True)
class Tokenized:
    """The token ids of `B` texts, one text after the other.

    `ids` [N] int32; `offsets` [B + 1] int64; `counts` [B] int32 tokens before truncation, special
    tokens and prompt included; `truncated` [B] bool; `types` [N] int8 token types, None if they
    are all zero; `masks` [B] int64 the place of the template's mask in each text, None if there
    is no template.
    """

    ids: np.ndarray
    offsets: np.ndarray
    counts: np.ndarray
    truncated: np.ndarray
    types: np.ndarray | None = None
    masks: np.ndarray | None = None

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each text after truncation, [B] int64."""
        return np.diff(self.offsets)

    def take(self, rows: np.ndarray) -> "Tokenized":
        """Select the texts at these places, in this order."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        tokens = list_places(self.offsets[rows], lengths)
        types = None if self.types is None else self.types[tokens]
        masks = None if self.masks is None else self.masks[rows]
        return Tokenized(
            self.ids[tokens], offsets, self.counts[rows], self.truncated[rows], types, masks
        )


@dataclass(frozen=True)
class KnownTokens:
    """Counts of each text's own tokens, [B] int64: known ones, and ones for unknown text."""

    known: np.ndarray
    unknown: np.ndarray


class TextTokenizer:
    """A model's fast tokenizer with a prompt, casing and length; threads may share it.

    `limit`: most tokens of a text with special tokens and prompt, None for all; `pooler`: the first
    part of a space's pooler, which may change texts or put them into a template.
    """

    def __init__(
        self,
        files: ModelFiles,
        prompt: str = "",
        limit: int | None = None,
        pooler: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        loaded = load_tokenizer(files)
        self._tokenizer = loaded.tokenizer
        self._prompt = prompt
        self._specials = self._tokenizer.num_special_tokens_to_add(False)
        self.limit = limit
        self._rewrite = _make_rewrite(pooler, self._tokenizer)
        self.prompt_tokens = self._count_prompt_tokens(loaded.special_ids)
        self.special_ids = np.array(sorted(loaded.special_ids), dtype=np.int64)
        self._unknown_id = find_unknown_id(loaded)
        self.pad_id = loaded.pad_id
        self.pad_type = loaded.pad_type
        self.gives_types = loaded.gives_types
        self._has_types = self.gives_types and any(self._tokenizer.encode("a").type_ids)
        self.template = None
        if "template" in pooler:
            self.template = PromptTemplate(pooler["template"], self._tokenizer, loaded.mask, limit)
        else:
            self._truncate(files.folder, loaded.truncation_side)
        self._words, self._frame = self._make_words()

    def __call__(self, texts: Sequence[str]) -> Tokenized:
        """Tokenize every text, with the prompt before it.

        An empty text gives only the special tokens. Raises `OptionError` with the place of an item
        that is no text.
        """
        try:
            return self._tokenize(texts)
        except (TypeError, UnicodeEncodeError):
            _check_strings(texts)
            _check_unicode(texts)
            raise

    def _tokenize(self, texts: Sequence[str]) -> Tokenized:
        parts = math.ceil(sum(map(len, texts)) / CHARACTERS_AT_ONCE)
        if parts <= 1 or len(texts) == 1:
            return self.tokenize_part(texts)
        # while the library encodes one part on all cores, a thread copies the ids of another
        even = math.ceil(parts / self._cores) * self._cores
        size = math.ceil(len(texts) / even)
        cut = [texts[start : start + size] for start in range(0, len(texts), size)]
        return _join(list(self._threads.map(self.tokenize_part, cut)))

    @cached_property
    def _cores(self) -> int:
        return os.cpu_count() or 1

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._cores, "tokenize")

    def tokenize_part(self, texts: Sequence[str]) -> Tokenized:
        """Tokenize texts at once, in this thread; raises TypeError for an item that is no text."""
        size = len("".join(texts)) + len(texts) * len(self._prompt)
        if self.template is not None:
            return _pack(self.template(list(texts)))
        prompted = [self._prompt + text for text in texts] if self._prompt else list(texts)
        if self._rewrite is not None:
            prompted = self._rewrite(prompted)
        if self._words is not None and size < _MOST_CHARACTERS:
            return self._tokenize_words(prompted, self._words)
        return self._from_encodings(self._tokenizer.encode_batch_fast(prompted))

    def _make_words(self) -> tuple[WordPieces | None, TokenFrame]:
        """Return the tokenizer by words, None if its ids would differ, and its special tokens."""
        frame = read_frame(self._tokenizer)
        if self.template is None and not self._has_types and is_split_at_words(self._tokenizer):
            return WordPieces(self._tokenizer), frame
        return None, frame

    def _tokenize_words(self, texts: list[str], words: WordPieces) -> Tokenized:
        """Tokenize the ASCII texts by their words, and the others by the model's tokenizer."""
        array = make_string_array(texts)
        has_words = words.has_words_of(array)
        own = words(array.filter(make_mask_array(has_words)))
        framed = self._frame.around(own)
        lengths = np.diff(framed.offsets)
        counts = np.diff(own.offsets) + self._specials
        by_words = Tokenized(framed.ids, framed.offsets, counts.astype(np.int32), counts > lengths)
        if has_words.all():
            return by_words
        others = [texts[row] for row in np.flatnonzero(~has_words).tolist()]
        by_tokenizer = self._from_encodings(self._tokenizer.encode_batch_fast(others))
        order = np.argsort(np.argsort(~has_words, kind="stable"), kind="stable")
        return _join([by_words, by_tokenizer]).take(order)

    def with_places(self, texts: Sequence[str]) -> tuple[Tokenized, list[np.ndarray]]:
        """Tokenize texts; return the start and end of each token in its text too, [n, 2] a text.

        Both are -1 for special tokens and prompt. Only for tokenizers with `has_places`.
        """
        encodings = self._tokenizer.encode_batch([self._prompt + text for text in texts])
        places = [_find_own_places(encoding, len(self._prompt)) for encoding in encodings]
        return self._from_encodings(encodings), places

    @property
    def has_places(self) -> bool:
        """Whether texts are encoded unchanged, so that a token has a place in its text."""
        return self.template is None and self._rewrite is None

    @cached_property
    def around_text(self) -> int:
        """Number of special tokens and prompt tokens around a text."""
        return int(self._nothing.counts[0])

    @cached_property
    def _nothing(self) -> Tokenized:
        """The empty text."""
        return self([""])

    def find_unseen(self, tokenized: Tokenized) -> np.ndarray:
        """Return the places of texts whose tokens are those of an empty text, int64.

        They are made of characters that the tokenizer drops: zero-width ones, control characters.
        """
        nothing = self._nothing
        rows = np.flatnonzero(tokenized.counts == nothing.counts[0])
        tokens = list_places(tokenized.offsets[rows], tokenized.lengths[rows])
        ids = tokenized.ids[tokens].reshape(len(rows), len(nothing.ids))
        return rows[(ids == nothing.ids).all(axis=1)]

    def count(self, text: str) -> int:
        """Count a text's own tokens."""
        return len(self.whole.encode(text, add_special_tokens=False))

    def words(self, tokenized: Tokenized) -> KnownTokens:
        """Count the known and unknown tokens of each text, without special tokens and prompt."""
        kinds = self._kinds[tokenized.ids]
        known = _count_in_texts(kinds == _KNOWN, tokenized.offsets)
        unknown = _count_in_texts(kinds == _UNKNOWN, tokenized.offsets)
        return KnownTokens(np.maximum(known - self._known_around, 0), unknown)

    @cached_property
    def _kinds(self) -> np.ndarray:
        """Kind of each id's token (special, known or unknown), int8 [vocabulary]."""
        kinds = np.full(self.vocabulary, _KNOWN, np.int8)
        kinds[self.special_ids] = _SPECIAL
        if self._unknown_id is not None:
            kinds[self._unknown_id] = _UNKNOWN
        return kinds

    @cached_property
    def _known_around(self) -> int:
        """Number of a prompt's known tokens."""
        return int(np.count_nonzero(self._kinds[self._nothing.ids] == _KNOWN))

    def _from_encodings(self, encodings: list[Encoding]) -> Tokenized:
        lengths = np.fromiter(map(len, encodings), dtype=np.int64, count=len(encodings))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        counts = lengths.astype(np.int32)
        if self.limit is not None:
            for row in np.flatnonzero(lengths == self.limit):
                rests = encodings[row].overflowing
                counts[row] += sum(len(rest) - self._specials for rest in rests)
        total = int(offsets[-1])
        ids = _flatten((encoding.ids for encoding in encodings), np.int32, total)
        types = None
        if self._has_types:
            types = _flatten((encoding.type_ids for encoding in encodings), np.int8, total)
        return Tokenized(ids, offsets, counts, counts > lengths, types)

    def choose_plain_ids(self, rows: int) -> np.ndarray:
        """Return a few ids below `rows`, int64; none of a special token, if others exist."""
        ids = np.arange(min(rows, len(self.special_ids) + 100))
        plain = np.setdiff1d(ids, self.special_ids)
        return plain if len(plain) else ids

    @cached_property
    def whole(self) -> Tokenizer:
        """Copy of the tokenizer without truncation."""
        return copy_untruncated(self._tokenizer)

    @cached_property
    def room(self) -> int | None:
        """Most tokens of a text's own, beside special tokens and prompt; None for any number."""
        if self.limit is None:
            return None
        room = self.limit - self.around_text
        if self.template is not None:
            room -= 1  # it adds a full stop
        return room

    @property
    def pieces(self) -> tuple[str, ...]:
        """Pieces of the vocabulary by token id; empty for an unused id."""
        numbers = self._tokenizer.get_vocab(with_added_tokens=True)
        by_id = {number: piece for piece, number in numbers.items()}
        return tuple(by_id.get(number, "") for number in range(self.vocabulary))

    @cached_property
    def vocabulary(self) -> int:
        """Size of a table by token id: one more than the highest id."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @property
    def around(self) -> frozenset[int]:
        """Ids of the special tokens that the tokenizer puts around every text."""
        return frozenset(self._tokenizer.encode("").ids)

    def _count_prompt_tokens(self, special_ids: frozenset[int]) -> int:
        """Count the prompt's tokens as sentence-transformers does: without a closing special."""
        if not self._prompt:
            return 0
        ids = self._tokenizer.encode(self._prompt).ids
        return len(ids) - (ids[-1] in special_ids)

    def _truncate(self, folder: Path, direction: str) -> None:
        if self.limit is None:
            return
        if self.limit <= self._specials:
            raise OptionError(
                f"{folder}: max tokens {self.limit}, but its {self._specials} special tokens need"
                " room; give more"
            )
        self._tokenizer.enable_truncation(self.limit, stride=0, direction=direction)


def _count_in_texts(is_kind: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Count the tokens of a kind in each text, [B] int64."""
    before = np.concatenate([[0], np.cumsum(is_kind)])
    return before[offsets[1:]] - before[offsets[:-1]]


def _check_strings(texts: Sequence[str]) -> None:
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise OptionError(f"text {place} is of type {type(text).__name__}; give str")


def _check_unicode(texts: Sequence[str]) -> None:
    for place, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            at = f"{text[error.start]!r} at character {error.start}"
            raise OptionError(
                f"text {place} is no Unicode text: {at} is half of a surrogate pair"
            ) from None


def _pack(filled: list[FilledTemplate]) -> Tokenized:
    lengths = np.array([len(tokens.ids) for tokens in filled], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    counts = np.array([tokens.whole for tokens in filled], dtype=np.int32)
    masks = np.array([tokens.mask for tokens in filled], dtype=np.int64)
    ids = _flatten((tokens.ids for tokens in filled), np.int32, int(offsets[-1]))
    return Tokenized(ids, offsets, counts, counts > lengths, masks=masks)


def _find_own_places(encoding: Encoding, prompt: int) -> np.ndarray:
    """Return the start and end of a text's own tokens in it, [n, 2] int64; -1 for others.

    `prompt` is the number of characters before the text.
    """
    places = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2) - prompt
    around = (places[:, 1] <= 0) | (np.array(encoding.special_tokens_mask) == 1)
    return np.where(around[:, None], -1, np.maximum(places, 0))


def _join(parts: Sequence[Tokenized]) -> Tokenized:
    """Join the texts of several parts, in order."""
    lengths = np.concatenate([part.lengths for part in parts])
    types = np.concatenate([part.types for part in parts]) if parts[0].types is not None else None
    masks = np.concatenate([part.masks for part in parts]) if parts[0].masks is not None else None
    return Tokenized(
        ids=np.concatenate([part.ids for part in parts]),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        counts=np.concatenate([part.counts for part in parts]),
        truncated=np.concatenate([part.truncated for part in parts]),
        types=types,
        masks=masks,
    )


def _flatten(lists: Iterable[list[int]], dtype: type, total: int) -> np.ndarray:
    return np.fromiter(chain.from_iterable(lists), dtype=dtype, count=total)


def _make_rewrite(pooler: Mapping[str, Any], tokenizer: Tokenizer) -> Rewrite | None:
    """Return the function by which a space's pooler changes texts; None if it does not."""
    if pooler.get("name") == "remove-biases" and pooler["variant"] == "reference":
        whole = copy_untruncated(tokenizer)
        return lambda texts: _remove_biases(texts, whole)
    if pooler.get("case") == "lower":
        return lambda texts: [text.lower() for text in texts]
    return None


def _remove_biases(texts: list[str], tokenizer: Tokenizer) -> list[str]:
    spaced = [f" {text}" for text in texts]
    encodings = tokenizer.encode_batch_fast(spaced, add_special_tokens=False)
    kept = []
    for encoding in encodings:  # the fast encodings have only ids
        pieces = [tokenizer.id_to_token(number) or "" for number in encoding.ids]
        kept.append(reduce_text(pieces))
    return kept
