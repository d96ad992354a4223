"""The room that a piece has: its budget, and whether it fits beside what stands before it."""

from functools import lru_cache

from transforms.corpus.chunks.counting import TokenCounter
from transforms.corpus.chunks.ends import Level
from transforms.corpus.chunks.graphemes import LONGEST, is_boundary, skip_blanks
from transforms.corpus.chunks.pack import Atoms
from transforms.space.chunks import ChunksSpec

_PREFIXES = 4096
_WORD = int(Level.WORD)


class Room:
    """What pieces have room in; `limit` is what prefix and piece may have together, None for any
    number of tokens.
    """

    def __init__(
        self, chunks: ChunksSpec, counter: TokenCounter, limit: int | None, prompt: str
    ) -> None:
        self._chunks, self._counter, self._limit, self._prompt = chunks, counter, limit, prompt
        self._prompt_tokens = counter.count_one(prompt)
        self._prefix_tokens = lru_cache(_PREFIXES)(counter.count_one)

    def budget(self, prefix: str) -> int:
        """The most tokens of a piece behind this prefix; `OptionError` where it leaves none."""
        return self._chunks.budget(
            None if self._limit is None else self._limit - self._prefix_tokens(prefix)
        )

    def measure(
        self, atoms: Atoms, first: int, stop: int, start: int, prefix: str
    ) -> tuple[int, int]:
        """The own tokens of a piece that begins at `start`, and how many are too many; 0 or less
        where it fits.
        """
        before = self._prompt + prefix
        # how its first word is tokenized may change
        joins = bool(before) and not before[-1].isspace()
        if self._adds_up(atoms, first, stop, start) and not joins:
            own = atoms.tokens(first, stop)
            return own, own - self.budget(prefix) if stop > first + 1 else 0
        return self._measure(atoms.text[start : int(atoms.places[stop - 1])], prefix)

    def holds(self, atoms: Atoms, prefix: str) -> bool:
        """Whether a text fits as a whole, though the sums of its atoms' tokens may say that it does
        not.
        """
        near = self.budget(prefix) < atoms.tokens(0, len(atoms)) <= 2 * self.budget(prefix)
        if not near or (atoms.adds_up and atoms.levels.min() >= Level.WORD):
            return False
        start = skip_blanks(atoms.text, 0, len(atoms.text))
        return self._measure(atoms.text[start : int(atoms.places[-1])], prefix)[1] <= 0

    def last_that_fits(self, text: str, start: int, end: int, prefix: str) -> tuple[int, int]:
        """The last place up to `end` at which a piece may end that begins at `start`, and the
        piece's own tokens.

        One character always fits.
        """
        fits, over = start + 1, end + 1
        while over - fits > 1:
            middle = (fits + over) // 2
            fits, over = (
                (fits, middle)
                if self._measure(text[start:middle], prefix)[1] > 0
                else (middle, over)
            )
        for place in range(fits, max(start, fits - LONGEST), -1):
            if is_boundary(text, place) and not text[place - 1].isspace():
                own, excess = self._measure(text[start:place], prefix)
                if excess <= 0:
                    return place, own
        return fits, self._counter.count_one(text[start:fits])

    def _measure(self, piece: str, prefix: str) -> tuple[int, int]:
        own = self._counter.count_one(piece)
        excess, before = own - self.budget(prefix), self._prompt + prefix
        if before and self._limit is not None:
            excess = max(
                excess, self._counter.count_one(before + piece) - self._limit - self._prompt_tokens
            )
        return own, excess

    def _adds_up(self, atoms: Atoms, first: int, stop: int, start: int) -> bool:
        """Whether a piece has the tokens of its atoms: cut between words, which the tokenizer takes
        one by one.
        """
        if (
            not atoms.adds_up
            or atoms.levels[stop - 1] < _WORD
            or (first and atoms.levels[first - 1] < _WORD)
        ):
            return False
        return skip_blanks(atoms.text, atoms.start(first), start) == start
