"""Documents to pieces: the places at which each may be cut, their tokens counted, packed up to a budget."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from transforms.corpus.chunks.counting import TokenCounter
from transforms.corpus.chunks.ends import Ends, text_ends
from transforms.corpus.chunks.graphemes import is_boundary, skip_blanks
from transforms.space.chunks import Chunks

Prefix = Callable[[int, str], str]
Span = tuple[int, int]


@dataclass(frozen=True)
class Pieces:
    """The pieces of one document, in its order; without overlap none begins before the one before it ends.

    `spans` [n] characters, so that `text[start:end]` is a piece, without blanks around it; `tokens` [n] its own tokens;
    `headings` [n] what stands above it in Markdown, `"Install > From source"`, "" elsewhere. None for a blank document.
    """

    spans: list[Span]
    tokens: list[int]
    headings: list[str]


class Cutter:
    """Cuts documents as `chunks` say.

    `tokenizer` is a `tokenizers.Tokenizer`, or what transformers wraps around one; `limit` the tokens that a piece and
    its prefix may have together: what the model takes without special tokens and prompt, None for any number.
    """

    def __init__(self, chunks: Chunks, tokenizer: Any, limit: int | None, prompt: str = "") -> None:
        self._chunks, self._limit, self._prompt = chunks, limit, prompt
        self._counter = TokenCounter(tokenizer)
        chunks.budget(limit)

    def cut(self, texts: Sequence[str], prefix: Prefix | None = None) -> list[Pieces]:
        """The pieces of each text; `prefix(number of the text, headings)` is what will stand before a piece.

        Raises `OptionError` where a prefix leaves no token for its piece.
        """
        ends = [text_ends(text) for text in texts]
        parts = (text[start:stop] for text, each in zip(texts, ends, strict=True) for start, stop in _around(each))
        counts = self._counter.count(parts)
        found, done = [], 0
        for number, (text, each) in enumerate(zip(texts, ends, strict=True)):
            tokens = counts[done : done + len(each.places)]
            done += len(each.places)
            found.append(self._pack(text, each, tokens, "" if prefix is None else prefix(number, "")))
        return found

    def _pack(self, text: str, ends: Ends, tokens: np.ndarray, prefix: str) -> Pieces:
        before = int(self._counter.count([prefix])[0]) if prefix else 0
        budget = self._chunks.budget(None if self._limit is None else self._limit - before)
        places, counts = self._refined(text, ends, tokens, budget)
        spans: list[Span] = []
        sizes: list[int] = []
        start = size = 0
        last = 0
        for place, count in zip(places, counts, strict=True):
            if size and size + count > budget:
                spans.append((skip_blanks(text, start, last), last))
                sizes.append(size)
                start, size = last, 0
            size, last = size + count, place
        if last > skip_blanks(text, start, last):
            spans.append((skip_blanks(text, start, last), last))
            sizes.append(size)
        return Pieces(spans, sizes, [""] * len(spans))

    def _refined(self, text: str, ends: Ends, tokens: np.ndarray, budget: int) -> tuple[list[int], list[int]]:
        places: list[int] = []
        counts: list[int] = []
        for (start, stop), count in zip(_around(ends), tokens.tolist(), strict=True):
            if count > budget:
                encoding = next(self._counter.tokens([text[start:stop]]))
                before = 0
                for number, (_, end) in enumerate(encoding.offsets[:-1], 1):
                    if is_boundary(text, start + end) and start + end > (places[-1] if places else 0):
                        places.append(start + end)
                        counts.append(number - before)
                        before = number
                count -= before
            places.append(stop)
            counts.append(count)
        return places, counts


def _around(ends: Ends) -> Iterator[Span]:
    return pairwise([0, *ends.places.tolist()])


def chunk(text: str, spec: str, tokenizer: Any, limit: int | None) -> list[Span]:
    """The character spans of a text's pieces, so that `text[start:end]` is a piece.

    `spec` as `--chunks` takes it; `limit` the tokens that a piece may have: what the model takes without special tokens
    and prompt (`Encoder.room`). Raises `OptionError` for a SPEC that is none, or a limit that leaves no room.
    """
    chunks = Chunks.parse(spec)
    if not chunks.cuts:
        return [(0, len(text))]
    return Cutter(chunks, tokenizer, limit).cut([text])[0].spans
