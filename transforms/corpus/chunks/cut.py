"""Cut documents into pieces: find the ends, count the tokens between them, fill up to a budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.corpus.chunks.ends import Ends, find_text_ends
from sentence_beam.transforms.corpus.chunks.graphemes import LONGEST, is_boundary, skip_blanks
from sentence_beam.transforms.corpus.chunks.long_atoms import UNKNOWN, make_atoms
from sentence_beam.transforms.corpus.chunks.markdown import find_markdown_ends
from sentence_beam.transforms.corpus.chunks.pack import (
    Atoms,
    choose_by_content,
    choose_last,
    choose_sentence,
    find_first_of_next,
)
from sentence_beam.transforms.corpus.chunks.room import Room
from sentence_beam.transforms.corpus.chunks.token_counting import TokenCounter
from sentence_beam.transforms.space.chunks_spec import ChunksSpec

Prefix = Callable[[int, str], str]
Span = tuple[int, int]
# Characters a token; parts longer than the budget times this are not counted as a whole.
_CERTAINLY_LONG = 8


@dataclass(frozen=True)
class Pieces:
    """The pieces of one document, in its order; a document without a token has none.

    `spans` [n] characters: `text[start:end]` is a piece, without blanks around it; `tokens` [n] its
    own tokens; `headings` [n] the Markdown headings above it, `"Install > From source"`, or "".
    Without overlap a piece begins after the end of the one before it.
    """

    spans: list[Span]
    tokens: list[int]
    headings: list[str]


class Cutter:
    """Cuts documents by a `chunks` that is not `none`.

    `tokenizer` is a `tokenizers.Tokenizer` or one of transformers that wraps it. `limit` is the
    most tokens of a piece with its prefix: the model's, less special tokens and `prompt`; None: any
    number. Raises `OptionError` if no token remains for a piece.
    """

    def __init__(
        self, chunks: ChunksSpec, tokenizer: Any, limit: int | None, prompt: str = ""
    ) -> None:
        self._chunks = chunks
        self._counter = TokenCounter(tokenizer)
        self._room = Room(chunks, self._counter, limit, prompt)
        self._longest = _CERTAINLY_LONG * chunks.budget(limit)
        self._read = find_markdown_ends if chunks.by == "markdown" else find_text_ends
        self._choose = choose_by_content if chunks.ends == "stable" else choose_last
        if chunks.kind == "sentences":
            self._choose = choose_sentence

    def cut(self, texts: Sequence[str], prefix: Prefix | None = None) -> list[Pieces]:
        """Return the pieces of each text; `prefix(number of the text, headings)` precedes a piece.

        Raises `OptionError` for a prefix that leaves no token for its piece, and for a text that is
        not Unicode.
        """
        try:
            ends = [self._read(text) for text in texts]
            tokens = self._count(texts, ends)
        except (TypeError, AttributeError, UnicodeEncodeError):
            _check_texts(texts)
            raise
        prefixes = (_bind_text(prefix, number) for number in range(len(texts)))
        return [self._pack(*each) for each in zip(texts, ends, tokens, prefixes, strict=True)]

    def _count(self, texts: Sequence[str], ends: Sequence[Ends]) -> list[np.ndarray]:
        """Return the tokens of the part before each end, `UNKNOWN` for long parts."""
        parts = (
            text[start:stop]
            for text, each in zip(texts, ends, strict=True)
            for start, stop in zip(each.begins.tolist(), each.places.tolist(), strict=True)
            if stop - start <= self._longest
        )
        counts = self._counter.count(parts)
        done = 0
        tokens_of_texts = []
        for each in ends:
            short = np.flatnonzero(each.places - each.begins <= self._longest)
            tokens = np.full(len(each.places), UNKNOWN, dtype=np.int64)
            tokens[short] = counts[done : done + len(short)]
            done += len(short)
            tokens_of_texts.append(tokens)
        return tokens_of_texts

    def _pack(
        self, text: str, ends: Ends, tokens: np.ndarray, prefix: Callable[[str], str]
    ) -> Pieces:
        """Return the pieces of one text."""
        budget = min(self._room.budget(prefix(path)) for path in ends.headings.paths)
        atoms = make_atoms(text, ends, tokens, budget, self._counter)
        overlap = self._chunks.overlap_of_pieces
        pieces = Pieces([], [], [])
        # The piece begins with atom `first`, at `start`, and ends after atom `after` or later.
        first = 0
        after = 0
        start = 0
        while first < len(atoms):
            start = skip_blanks(text, start, int(atoms.places[-1]))
            headings = ends.headings.at(start)
            before = prefix(headings)
            stop, own, fits = self._choose_stop(atoms, first, after, start, before)
            end = int(atoms.places[stop - 1])
            if not fits and first < after:  # the repeated sentences leave no room
                first = after
                start = atoms.start(after)
                continue
            if not fits:  # the piece ends inside an atom
                latest = min(end + LONGEST, int(atoms.places[-1]))
                end, own = self._room.find_last_that_fits(text, start, latest, before)
                stop = max(first + 1, int(np.searchsorted(atoms.places, end, "left")) + 1)
            if not text[start:end].isspace():
                pieces.spans.append((start, end))
                pieces.tokens.append(own)
                pieces.headings.append(headings)
            if end < atoms.places[stop - 1]:
                first = stop - 1
                after = first
                start = end
            else:
                budget = self._room.budget(before)
                first = find_first_of_next(atoms, first, stop, overlap, budget)
                after = stop
                start = atoms.start(first)
        return pieces if any(pieces.tokens) else Pieces([], [], [])

    def _choose_stop(
        self, atoms: Atoms, first: int, after: int, start: int, prefix: str
    ) -> tuple[int, int, bool]:
        """Return the atom before which a piece ends, the piece's tokens, and whether it fits."""
        room = self._room
        is_whole = first == 0 and self._chunks.kind != "sentences" and room.holds(atoms, prefix)
        stop = len(atoms) if is_whole else self._choose(atoms, first, after, room.budget(prefix))
        own, excess = room.measure(atoms, first, stop, start, prefix)
        while excess > 0 and stop > after + 1:
            smaller = max(1, atoms.tokens(first, stop) - excess)
            stop = min(stop - 1, choose_last(atoms, first, after, smaller))
            own, excess = room.measure(atoms, first, stop, start, prefix)
        fits = excess <= 0 and is_boundary(atoms.text, int(atoms.places[stop - 1]))
        return stop, own, fits


def chunk(text: str, spec: str, tokenizer: Any, limit: int | None) -> list[Span]:
    """Return the character spans of a text's pieces: `text[start:end]` is a piece.

    `spec` is a value of `--chunks`. `tokenizer` and `limit`, the most tokens of a piece, are those
    of `Encoder.tokenizer` and `Encoder.room`. Raises `OptionError` for an invalid SPEC, and for a
    limit that leaves no room.
    """
    chunks = ChunksSpec.parse(spec)
    if not chunks.cuts:
        return [(0, len(text))]
    return Cutter(chunks, tokenizer, limit).cut([text])[0].spans


def _bind_text(prefix: Prefix | None, number: int) -> Callable[[str], str]:
    """Return the prefix of one text's pieces, a function of their headings."""
    if prefix is None:
        return lambda headings: ""
    return partial(prefix, number)


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
