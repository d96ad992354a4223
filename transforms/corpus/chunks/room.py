"""The room that a piece has: its budget, and whether it fits beside what stands before it."""

from functools import lru_cache

from transforms.corpus.chunks.counting import TokenCounter
from transforms.corpus.chunks.ends import Level
from transforms.corpus.chunks.graphemes import LONGEST, is_boundary, skip_blanks
from transforms.corpus.chunks.pack import Atoms
from transforms.space.chunks import Chunks

_PREFIXES = 4096


class Room:
    """What pieces have room in; `limit` is what prefix and piece may have together, None for any number of tokens."""

    def __init__(self, chunks: Chunks, counter: TokenCounter, limit: int | None, prompt: str) -> None:
        self._chunks, self._counter, self._limit, self._prompt = chunks, counter, limit, prompt
        self._prompt_tokens = counter.count_one(prompt)
        self._prefix_tokens = lru_cache(_PREFIXES)(counter.count_one)

    def budget(self, prefix: str) -> int:
        """The most tokens of a piece behind this prefix; `OptionError` where it leaves none."""
        return self._chunks.budget(None if self._limit is None else self._limit - self._prefix_tokens(prefix))

    def excess(self, atoms: Atoms, first: int, stop: int, start: int, prefix: str) -> int:
        """How many tokens a piece, which begins at `start`, has too many; 0 or less where it fits."""
        before = self._prompt + prefix
        joins = bool(before) and not before[-1].isspace()  # how its first word is tokenized may change
        if self._adds_up(atoms, first, stop, start) and not joins:
            return atoms.tokens(first, stop) - self.budget(prefix) if stop > first + 1 else 0
        return self._excess(atoms.text[start : int(atoms.places[stop - 1])], prefix)

    def holds(self, atoms: Atoms, prefix: str) -> bool:
        """Whether a text fits as a whole, though the sums of its atoms' tokens may say that it does not."""
        near = self.budget(prefix) < atoms.tokens(0, len(atoms)) <= 2 * self.budget(prefix)
        if not near or (self._counter.adds_up and atoms.levels.min() >= Level.WORD):
            return False
        start = skip_blanks(atoms.text, 0, len(atoms.text))
        return self._excess(atoms.text[start : int(atoms.places[-1])], prefix) <= 0

    def own_tokens(self, atoms: Atoms, first: int, stop: int, start: int, end: int) -> int:
        """The tokens of the piece from `start` to `end` alone."""
        if self._adds_up(atoms, first, stop, start) and end == atoms.places[stop - 1]:
            return atoms.tokens(first, stop)
        return self._counter.count_one(atoms.text[start:end])

    def last_that_fits(self, text: str, start: int, end: int, prefix: str) -> int:
        """The last place up to `end` at which a piece may end that begins at `start`; one character always fits."""
        fits, over = start + 1, end + 1
        while over - fits > 1:
            middle = (fits + over) // 2
            fits, over = (fits, middle) if self._excess(text[start:middle], prefix) > 0 else (middle, over)
        whole = (at for at in range(fits, max(start, fits - LONGEST), -1) if is_boundary(text, at))
        own = (at for at in whole if not text[at - 1].isspace() and self._excess(text[start:at], prefix) <= 0)
        return next(own, fits)

    def _excess(self, piece: str, prefix: str) -> int:
        excess = self._counter.count_one(piece) - self.budget(prefix)
        before = self._prompt + prefix
        if before and self._limit is not None:
            excess = max(excess, self._counter.count_one(before + piece) - self._limit - self._prompt_tokens)
        return excess

    def _adds_up(self, atoms: Atoms, first: int, stop: int, start: int) -> bool:
        """Whether a piece has the tokens of its atoms: cut between words, which the tokenizer takes one by one."""
        if not self._counter.adds_up or atoms.levels[stop - 1] < Level.WORD:
            return False
        if first and atoms.levels[first - 1] < Level.WORD:
            return False
        return skip_blanks(atoms.text, atoms.start(first), start) == start
