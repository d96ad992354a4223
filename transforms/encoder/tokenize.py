"""Texts -> token ids, packed, with exact counts of what truncation cut off."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import pyarrow as pa
from tokenizers import Encoding, Tokenizer
from tokenizers.models import Unigram
from tokenizers.normalizers import Lowercase
from tokenizers.normalizers import Sequence as NormalizerSequence
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from transforms.base.errors import OptionError, first_line
from transforms.base.word_pieces import TokenFrame, WordPieces, frame_of, is_split_at_words
from transforms.encoder.load import quiet_transformers
from transforms.encoder.template import FilledTemplate, PromptTemplate
from transforms.pooling.remove_biases import kept_text
from transforms.space.model_files import ModelFiles

Rewrite = Callable[[list[str]], list[str]]
TEXTS_AT_ONCE = 4096
# An Arrow array of strings holds 2 GB; a character takes one byte or more.
_MOST_CHARACTERS = 2**28
_SPECIAL, _KNOWN, _UNKNOWN = range(3)


@dataclass(frozen=True)
class Tokenized:
    """The token ids of `B` texts, one text after the other.

    `ids` [N] int32; `offsets` [B + 1] int64; `counts` [B] int32 tokens before truncation, special
    tokens and prompt included; `truncated` [B] bool; `types` [N] int8 token types, None where they
    are all zero; `masks` [B] int64 the place of the template's mask in each text, None where there
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
        """The number of tokens of each text after truncation, [B] int64."""
        return np.diff(self.offsets)

    def take(self, rows: np.ndarray) -> "Tokenized":
        """The texts at these places, in this order."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        tokens = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(int(offsets[-1]))
        types = None if self.types is None else self.types[tokens]
        masks = None if self.masks is None else self.masks[rows]
        return Tokenized(
            self.ids[tokens], offsets, self.counts[rows], self.truncated[rows], types, masks
        )


@dataclass(frozen=True)
class KnownTokens:
    """How many tokens of a text's own, [B] int64, the vocabulary has, and how many stand for text
    that it lacks.
    """

    known: np.ndarray
    unknown: np.ndarray


class TextTokenizer:
    """A model's own fast tokenizer with a prompt, casing and length. Safe to use from several
    threads.

    `limit`: most tokens of a text, None for all; `pooler`: the first part of a space's pooler,
    which may want texts changed or in a template.
    """

    def __init__(
        self,
        files: ModelFiles,
        prompt: str = "",
        limit: int | None = None,
        pooler: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        wrapped = _load(files)
        self._tokenizer: Tokenizer = wrapped.backend_tokenizer
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        if files.modules.lower_case:
            _lower_case(self._tokenizer)
        self._prompt = prompt
        self._specials = self._tokenizer.num_special_tokens_to_add(False)
        self._limit = limit
        self._rewrite = _make_rewrite(pooler, self._tokenizer)
        self.prompt_tokens = self._count_prompt_tokens(set(wrapped.all_special_ids))
        self.special_ids = np.array(sorted(set(wrapped.all_special_ids)), dtype=np.int64)
        self._unknown_id = _unknown_id(wrapped, self._tokenizer)
        self.pad_id = wrapped.pad_token_id or 0
        self.pad_type = wrapped.pad_token_type_id
        self.gives_types = "token_type_ids" in wrapped.model_input_names
        self._has_types = self.gives_types and any(self._tokenizer.encode("a").type_ids)
        self.template = None
        if "template" in pooler:
            self.template = PromptTemplate(
                pooler["template"], self._tokenizer, wrapped.mask_token, limit
            )
        else:
            self._truncate(wrapped.truncation_side)
        self._words, self._frame = self._make_words()

    def __call__(self, texts: Sequence[str]) -> Tokenized:
        """The token ids of every text, with the prompt before it; an empty text gives the special
        tokens alone.

        Raises `OptionError` with the place of an item that is no text.
        """
        _check_strings(texts)
        try:
            return self._tokenize(texts)
        except (TypeError, UnicodeEncodeError):
            _check_unicode(texts)
            raise

    def _tokenize(self, texts: Sequence[str]) -> Tokenized:
        if len(texts) <= TEXTS_AT_ONCE:
            return self._tokenize_part(texts)
        # while the library encodes one part on all cores, the ids of another become an array
        parts = [
            texts[start : start + TEXTS_AT_ONCE] for start in range(0, len(texts), TEXTS_AT_ONCE)
        ]
        return _joined(list(self._threads.map(self._tokenize_part, parts)))

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(os.cpu_count(), "tokenize")

    def _tokenize_part(self, texts: Sequence[str]) -> Tokenized:
        if self.template is not None:
            return _packed(self.template(list(texts)))
        prompted = [self._prompt + text for text in texts] if self._prompt else list(texts)
        prompted = prompted if self._rewrite is None else self._rewrite(prompted)
        if self._words is not None and sum(map(len, prompted)) < _MOST_CHARACTERS:
            return self._tokenize_words(prompted, self._words)
        return self._counted(self._tokenizer.encode_batch_fast(prompted))

    def _make_words(self) -> tuple[WordPieces | None, TokenFrame]:
        """Return the tokenizer by words, None if the model's has no such thing, and its frame."""
        frame = frame_of(self._tokenizer)
        if self.template is None and not self._has_types and is_split_at_words(self._tokenizer):
            return WordPieces(self._tokenizer), frame
        return None, frame

    def _tokenize_words(self, texts: list[str], words: WordPieces) -> Tokenized:
        """The token ids of texts by their words, of others by the tokenizer."""
        array = pa.array(texts, pa.string())
        has_words = words.has_words_of(array)
        own = words(array.filter(pa.array(has_words)))
        framed = self._frame.around(own)
        lengths = np.diff(framed.offsets)
        counts = np.diff(own.offsets) + self._specials
        by_words = Tokenized(framed.ids, framed.offsets, counts.astype(np.int32), counts > lengths)
        if has_words.all():
            return by_words
        others = [texts[row] for row in np.flatnonzero(~has_words).tolist()]
        by_tokenizer = self._counted(self._tokenizer.encode_batch_fast(others))
        order = np.argsort(np.argsort(~has_words, kind="stable"), kind="stable")
        return _joined([by_words, by_tokenizer]).take(order)

    def with_places(self, texts: Sequence[str]) -> tuple[Tokenized, list[np.ndarray]]:
        """The token ids as a call gives them, and of each text [n, 2] the first character of a
        token and that after it.

        Both are -1 for what stands around the text. For tokenizers that have places.
        """
        encodings = self._tokenizer.encode_batch([self._prompt + text for text in texts])
        return self._counted(encodings), [
            _own_places(encoding, len(self._prompt)) for encoding in encodings
        ]

    @property
    def has_places(self) -> bool:
        """Whether texts are encoded as they are, so that a token has a place in its text."""
        return self.template is None and self._rewrite is None

    @property
    def limit(self) -> int | None:
        """The most tokens of a text with all that stands around it; None for any number."""
        return self._limit

    @cached_property
    def around_text(self) -> int:
        """How many tokens stand around a text: special tokens and prompt."""
        return int(self([""]).counts[0])

    def count(self, text: str) -> int:
        """The number of a text's own tokens."""
        return len(self.whole.encode(text, add_special_tokens=False))

    def words(self, tokenized: Tokenized) -> KnownTokens:
        """The known and unknown tokens of each text, special tokens and prompt left out."""
        kinds = self._kinds[tokenized.ids]
        known, unknown = (_summed(kinds == kind, tokenized.offsets) for kind in (_KNOWN, _UNKNOWN))
        return KnownTokens(np.maximum(known - self._known_around, 0), unknown)

    @cached_property
    def _kinds(self) -> np.ndarray:
        """Whether the token of each id is special, known or unknown, int8 [vocabulary]."""
        kinds = np.full(self.vocabulary, _KNOWN, np.int8)
        kinds[self.special_ids] = _SPECIAL
        if self._unknown_id is not None:
            kinds[self._unknown_id] = _UNKNOWN
        return kinds

    @cached_property
    def _known_around(self) -> int:
        """The number of a prompt's known tokens."""
        return int(np.count_nonzero(self._kinds[self([""]).ids] == _KNOWN))

    def _counted(self, encodings: list[Encoding]) -> Tokenized:
        lengths = np.fromiter(map(len, encodings), dtype=np.int64, count=len(encodings))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        counts = lengths.astype(np.int32)
        for row in np.flatnonzero(lengths == self._limit) if self._limit is not None else ():
            counts[row] += sum(len(rest) - self._specials for rest in encodings[row].overflowing)
        ids = _flat((encoding.ids for encoding in encodings), np.int32, int(offsets[-1]))
        return Tokenized(
            ids, offsets, counts, counts > lengths, self._types(encodings, int(offsets[-1]))
        )

    def plain_ids(self, rows: int) -> np.ndarray:
        """A few ids below `rows` of tokens that are not special, int64; of any where all are."""
        ids = np.arange(min(rows, len(self.special_ids) + 100))
        plain = np.setdiff1d(ids, self.special_ids)
        return plain if len(plain) else ids

    @cached_property
    def whole(self) -> Tokenizer:
        """A copy of the tokenizer that cuts nothing off."""
        return _untruncated(self._tokenizer)

    @cached_property
    def room(self) -> int | None:
        """How many tokens of its own a text may have, beside special tokens and prompt; None for
        any number.
        """
        if self._limit is None:
            return None
        # it adds a full stop
        return self._limit - self.around_text - (0 if self.template is None else 1)

    @property
    def pieces(self) -> tuple[str, ...]:
        """The pieces of the vocabulary by token id; empty for an id that is not used."""
        by_id = {
            number: piece
            for piece, number in self._tokenizer.get_vocab(with_added_tokens=True).items()
        }
        return tuple(by_id.get(number, "") for number in range(self.vocabulary))

    @property
    def vocabulary(self) -> int:
        """The size of a table by token id: one more than the highest id."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @property
    def around(self) -> frozenset[int]:
        """The ids of the special tokens that the tokenizer puts around every text."""
        return frozenset(self._tokenizer.encode("").ids)

    def _types(self, encodings: list[Encoding], total: int) -> np.ndarray | None:
        return (
            _flat((encoding.type_ids for encoding in encodings), np.int8, total)
            if self._has_types
            else None
        )

    def _count_prompt_tokens(self, special_ids: set[int]) -> int:
        """The number of the prompt's tokens, without a closing special token (as
        sentence-transformers counts them).
        """
        if not self._prompt:
            return 0
        ids = self._tokenizer.encode(self._prompt).ids
        return len(ids) - (ids[-1] in special_ids)

    def _truncate(self, direction: str) -> None:
        if self._limit is None:
            return
        if self._limit <= self._specials:
            raise OptionError(
                f"max tokens {self._limit}: {self._specials} special tokens need room; give more"
            )
        self._tokenizer.enable_truncation(self._limit, stride=0, direction=direction)


def _unknown_id(wrapped: PreTrainedTokenizerBase, tokenizer: Tokenizer) -> int | None:
    """The id of the token for text that the vocabulary lacks; None without one.

    Vocabularies of bytes lack nothing, and some name the end of a text as their unknown token.
    """
    is_unigram = isinstance(tokenizer.model, Unigram)
    name = wrapped.unk_token if is_unigram else getattr(tokenizer.model, "unk_token", None)
    found = tokenizer.token_to_id(name) if name else None
    return None if found in tokenizer.encode("").ids else found


def _summed(is_kind: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The tokens of a kind in each text."""
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


def _load(files: ModelFiles) -> PreTrainedTokenizerBase:
    try:
        if files.modules.static:
            return _load_bare(files.folder / "tokenizer.json")
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(
                files.folder, local_files_only=True, trust_remote_code=False
            )
    # For a damaged file transformers and tokenizers raise bare Exception and many others.
    except Exception as error:
        raise OptionError(
            f"{files.folder}: its tokenizer cannot be loaded ({first_line(error)})"
        ) from None
    if not tokenizer.is_fast:
        raise OptionError(
            f"{files.folder}: it has no fast tokenizer; save one there as tokenizer.json"
        )
    return tokenizer


def _load_bare(path: Path) -> PreTrainedTokenizerBase:
    """A tokenizer from its one file that puts no special tokens around a text."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def _lower_case(tokenizer: Tokenizer) -> None:
    normalizer: Any = tokenizer.normalizer
    steps: list[Any] = [] if normalizer is None else [normalizer]
    if isinstance(normalizer, NormalizerSequence):
        steps = list(cast("Iterable[Any]", normalizer))
    if not any(isinstance(step, Lowercase) for step in steps):
        tokenizer.normalizer = NormalizerSequence([Lowercase(), *steps])


def _packed(filled: list[FilledTemplate]) -> Tokenized:
    lengths = np.array([len(one.ids) for one in filled], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    counts = np.array([one.whole for one in filled], dtype=np.int32)
    masks = np.array([one.mask for one in filled], dtype=np.int64)
    ids = _flat((one.ids for one in filled), np.int32, int(offsets[-1]))
    return Tokenized(ids, offsets, counts, counts > lengths, masks=masks)


def _own_places(encoding: Encoding, prompt: int) -> np.ndarray:
    """The places of a text's own tokens behind a prompt of so many characters, -1 for all others;
    [n, 2] int64.
    """
    places = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2) - prompt
    around = (places[:, 1] <= 0) | (np.array(encoding.special_tokens_mask) == 1)
    return np.where(around[:, None], -1, np.maximum(places, 0))


def _joined(parts: Sequence[Tokenized]) -> Tokenized:
    """The texts of several, one after the other."""
    lengths = np.concatenate([part.lengths for part in parts])
    first = parts[0]
    return Tokenized(
        ids=np.concatenate([part.ids for part in parts]),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        counts=np.concatenate([part.counts for part in parts]),
        truncated=np.concatenate([part.truncated for part in parts]),
        types=None if first.types is None else np.concatenate([part.types for part in parts]),
        masks=None if first.masks is None else np.concatenate([part.masks for part in parts]),
    )


def _flat(lists: Iterable[list[int]], dtype: type, total: int) -> np.ndarray:
    return np.fromiter(chain.from_iterable(lists), dtype=dtype, count=total)


def _make_rewrite(pooler: Mapping[str, Any], tokenizer: Tokenizer) -> Rewrite | None:
    """The change that the first part of a space's pooler makes to texts; None where it makes
    none.
    """
    if pooler.get("name") == "remove-biases" and pooler["variant"] == "reference":
        whole = _untruncated(tokenizer)
        return lambda texts: _kept_texts(texts, whole)
    if pooler.get("case") == "lower":
        return lambda texts: [text.lower() for text in texts]
    return None


def _untruncated(tokenizer: Tokenizer) -> Tokenizer:
    """A copy of the tokenizer without truncation."""
    whole = Tokenizer.from_str(tokenizer.to_str())
    whole.no_truncation()
    return whole


def _kept_texts(texts: list[str], tokenizer: Tokenizer) -> list[str]:
    encodings = tokenizer.encode_batch_fast(
        [f" {text}" for text in texts], add_special_tokens=False
    )
    # the fast way of encoding gives ids alone
    return [
        kept_text([tokenizer.id_to_token(number) or "" for number in encoding.ids])
        for encoding in encodings
    ]
