"""Documents to pieces: the places at which each may be cut, their tokens counted, packed up to a
budget.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from transforms.base.errors import OptionError
from transforms.corpus.chunks.counting import TokenCounter
from transforms.corpus.chunks.ends import Ends, text_ends
from transforms.corpus.chunks.graphemes import LONGEST, is_boundary, skip_blanks
from transforms.corpus.chunks.markdown import markdown_ends
from transforms.corpus.chunks.pack import (
    choose_by_content,
    choose_last,
    choose_sentence,
    overlapping,
)
from transforms.corpus.chunks.refine import UNKNOWN, refined
from transforms.corpus.chunks.room import Room
from transforms.space.chunks import ChunksSpec

Prefix = Callable[[int, str], str]
Span = tuple[int, int]
# characters a token: a longer part is not worth counting before its places are read
_CERTAINLY_LONG = 8


@dataclass(frozen=True)
class Pieces:
    """The pieces of one document, in its order; without overlap none begins before the one before
    it ends.

    `spans` [n] characters, so that `text[start:end]` is a piece, without blanks around it; `tokens`
    [n] its own tokens; `headings` [n] what it stands under in Markdown, `"Install > From source"`,
    "" elsewhere. A blank document has none.
    """

    spans: list[Span]
    tokens: list[int]
    headings: list[str]


class Cutter:
    """Cuts documents as `chunks` say, which are not `none`.

    `tokenizer` is a `tokenizers.Tokenizer`, or what transformers wraps around one; `limit` the
    tokens that a piece and its prefix may have together: what the model takes without special
    tokens and `prompt`, None for any number. Raises `OptionError` where that leaves none for a
    piece.
    """

    def __init__(
        self, chunks: ChunksSpec, tokenizer: Any, limit: int | None, prompt: str = ""
    ) -> None:
        self._chunks, self._counter = chunks, TokenCounter(tokenizer)
        self._room = Room(chunks, self._counter, limit, prompt)
        self._longest = _CERTAINLY_LONG * chunks.budget(limit)
        self._read = markdown_ends if chunks.by == "markdown" else text_ends
        self._choose = choose_by_content if chunks.ends == "stable" else choose_last
        if chunks.kind == "sentences":
            self._choose = choose_sentence

    def cut(self, texts: Sequence[str], prefix: Prefix | None = None) -> list[Pieces]:
        """The pieces of each text; `prefix(number of the text, headings)` is what will stand before
        a piece.

        Raises `OptionError` for a prefix that leaves no token for its piece, and for a text that is
        no Unicode.
        """
        try:
            ends = [self._read(text) for text in texts]
            tokens = self._count(texts, ends)
        except (TypeError, AttributeError, UnicodeEncodeError):
            _check_texts(texts)
            raise
        prefixes = (_of_text(prefix, number) for number in range(len(texts)))
        return [self._pack(*each) for each in zip(texts, ends, tokens, prefixes, strict=True)]

    def _count(self, texts: Sequence[str], ends: Sequence[Ends]) -> list[np.ndarray]:
        """The tokens before each end of each text, `UNKNOWN` where they are many."""
        parts = (
            text[start:stop]
            for text, each in zip(texts, ends, strict=True)
            for start, stop in zip(each.begins.tolist(), each.places.tolist(), strict=True)
            if stop - start <= self._longest
        )
        counts, done = self._counter.count(parts), 0
        found = []
        for each in ends:
            short = np.flatnonzero(each.places - each.begins <= self._longest)
            tokens = np.full(len(each.places), UNKNOWN, dtype=np.int64)
            tokens[short] = counts[done : done + len(short)]
            done += len(short)
            found.append(tokens)
        return found

    def _pack(
        self, text: str, ends: Ends, tokens: np.ndarray, prefix: Callable[[str], str]
    ) -> Pieces:
        """The pieces of one text."""
        room, overlap = self._room, self._chunks.overlap_of_pieces
        atoms = refined(
            text,
            ends,
            tokens,
            min(room.budget(prefix(path)) for path in ends.headings.paths),
            self._counter,
        )
        found = Pieces([], [], [])
        first = after = start = (
            # the piece begins with atom `first`, at `start`, and ends after atom `after` or later
            0
        )
        while first < len(atoms):
            start = skip_blanks(text, start, int(atoms.places[-1]))
            headings = ends.headings.at(start)
            before = prefix(headings)
            budget = room.budget(before)
            whole = first == 0 and self._chunks.kind != "sentences" and room.holds(atoms, before)
            stop = len(atoms) if whole else self._choose(atoms, first, after, budget)
            own, excess = room.measure(atoms, first, stop, start, before)
            while excess > 0 and stop > after + 1:
                stop = min(
                    stop - 1,
                    choose_last(atoms, first, after, max(1, atoms.tokens(first, stop) - excess)),
                )
                own, excess = room.measure(atoms, first, stop, start, before)
            end = int(atoms.places[stop - 1])
            fits = excess <= 0 and is_boundary(text, end)
            if not fits and first < after:  # what it repeats leaves no room
                first, start = after, atoms.start(after)
                continue
            if not fits:  # no end between tokens will do
                end, own = room.last_that_fits(
                    text, start, min(end + LONGEST, int(atoms.places[-1])), before
                )
                stop = max(first + 1, int(np.searchsorted(atoms.places, end, "left")) + 1)
            if not text[start:end].isspace():
                found.spans.append((start, end))
                found.tokens.append(own)
                found.headings.append(headings)
            if end < atoms.places[stop - 1]:
                first, after, start = stop - 1, stop - 1, end
            else:
                first, after = overlapping(atoms, first, stop, overlap, budget), stop
                start = atoms.start(first)
        return found


def chunk(text: str, spec: str, tokenizer: Any, limit: int | None) -> list[Span]:
    """The character spans of a text's pieces, so that `text[start:end]` is a piece.

    `spec` as `--chunks` takes it; `tokenizer` and `limit`, the tokens that a piece may have, as
    `Encoder.tokenizer` and `Encoder.room` give them. Raises `OptionError` for a SPEC that is none,
    or a limit that leaves no room.
    """
    chunks = ChunksSpec.parse(spec)
    return (
        Cutter(chunks, tokenizer, limit).cut([text])[0].spans if chunks.cuts else [(0, len(text))]
    )


def _of_text(prefix: Prefix | None, number: int) -> Callable[[str], str]:
    """The prefix of one text's pieces by their headings."""
    return (lambda headings: "") if prefix is None else partial(prefix, number)


def _check_texts(texts: Sequence[str]) -> None:
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise OptionError(f"text {place} is of type {type(text).__name__}; give str")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            at = f"{text[error.start]!r} at character {error.start}"
            raise OptionError(
                f"text {place} is no Unicode text: {at} is half of a surrogate pair"
            ) from None
