"""Counting tokens: many short parts of a text at once, in batches whose memory is bounded."""

from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from tokenizers import Encoding, Tokenizer

_AT_ONCE = 1 << 20  # characters whose tokens are in memory together
_MOST_AT_ONCE = 1 << 14


class TokenCounter:
    """A tokenizer that cuts nothing off, adds nothing, and counts.

    `adds_up`: parts cut between words have together the tokens of the whole, so that sums are
    exact.
    """

    def __init__(self, tokenizer: Any) -> None:
        own: Tokenizer = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if own.truncation is not None or own.padding is not None:
            own = Tokenizer.from_str(own.to_str())
            own.no_truncation()
            own.no_padding()
        self._tokenizer = own
        kinds = type(own.model).__name__, type(own.pre_tokenizer).__name__
        self.adds_up = kinds == ("WordPiece", "BertPreTokenizer")

    def count(self, texts: Iterable[str]) -> np.ndarray:
        """The number of tokens of each text, [n] int64; takes a bounded number of texts at a
        time.
        """
        lengths = array("q")
        for batch in _batches(texts):
            encodings = self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            lengths.extend(map(len, encodings))
        return np.frombuffer(lengths, dtype=np.int64)

    def count_one(self, text: str) -> int:
        """The number of tokens of a text."""
        return (
            len(self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0])
            if text
            else 0
        )

    def tokens(self, texts: Iterable[str]) -> Iterator[Encoding]:
        """The tokens of each text, with their places and words."""
        for batch in _batches(texts):
            yield from self._tokenizer.encode_batch(batch, add_special_tokens=False)


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Lists of texts that have together about `_AT_ONCE` characters, and no more than
    `_MOST_AT_ONCE` texts.
    """
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (size + len(text) > _AT_ONCE or len(batch) == _MOST_AT_ONCE):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch
