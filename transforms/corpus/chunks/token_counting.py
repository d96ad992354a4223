"""Counting tokens: many short parts of a text at once, in batches whose memory is bounded."""

from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from tokenizers import Encoding, Tokenizer

from sentence_beam.transforms.tokens.split_texts import is_split_at_words
from sentence_beam.transforms.tokens.word_pieces import WordPieces

_AT_ONCE = 1 << 20  # characters whose tokens are in memory together
_MOST_AT_ONCE = 1 << 14


class TokenCounter:
    """Counts tokens with a tokenizer, without truncation, padding or special tokens.

    `adds_up`: parts cut between words have as many tokens as the whole, so sums are exact.
    """

    def __init__(self, tokenizer: Any) -> None:
        own: Tokenizer = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if own.truncation is not None or own.padding is not None:
            own = Tokenizer.from_str(own.to_str())
            own.no_truncation()
            own.no_padding()
        self._tokenizer = own
        kinds = (type(own.model).__name__, type(own.pre_tokenizer).__name__)
        self.adds_up = kinds == ("WordPiece", "BertPreTokenizer")
        self._words = WordPieces(own) if is_split_at_words(own) else None

    def count(self, texts: Iterable[str]) -> np.ndarray:
        """Return the number of tokens of each text, [n] int64; reads the texts in batches."""
        lengths = array("q")
        for batch in _make_batches(texts):
            if self._words is not None:
                lengths.extend(self._words.count(batch).tolist())
            else:
                encodings = self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)
                lengths.extend(map(len, encodings))
        return np.frombuffer(lengths, dtype=np.int64)

    def count_one(self, text: str) -> int:
        """Return the number of tokens of a text."""
        if not text:
            return 0
        return len(self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0])

    def tokens(self, texts: Iterable[str]) -> Iterator[Encoding]:
        """Yield the tokens of each text, with their places and words."""
        for batch in _make_batches(texts):
            yield from self._tokenizer.encode_batch(batch, add_special_tokens=False)


def _make_batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield batches of about `_AT_ONCE` characters and at most `_MOST_AT_ONCE` texts."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (size + len(text) > _AT_ONCE or len(batch) == _MOST_AT_ONCE):
            yield batch
            batch = []
            size = 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch
