"""The room of a piece: its budget, and whether it fits beside its prompt and prefix."""

from functools import lru_cache

from sentence_beam.transforms.corpus.chunks.ends import Level
from sentence_beam.transforms.corpus.chunks.graphemes import LONGEST, is_boundary, skip_blanks
from sentence_beam.transforms.corpus.chunks.pack import Atoms
from sentence_beam.transforms.corpus.chunks.token_counting import TokenCounter
from sentence_beam.transforms.space.chunks_spec import ChunksSpec

_PREFIXES = 4096
_WORD = int(Level.WORD)


class Room:
    """The room for pieces; `limit` is the most tokens of prefix and piece together, None: any."""

    def __init__(
        self, chunks: ChunksSpec, counter: TokenCounter, limit: int | None, prompt: str
    ) -> None:
        self._chunks = chunks
        self._counter = counter
        self._limit = limit
        self._prompt = prompt
        self._prompt_tokens = counter.count_one(prompt)
        self._prefix_tokens = lru_cache(_PREFIXES)(counter.count_one)

    def budget(self, prefix: str) -> int:
        """Return the most tokens of a piece after this prefix; `OptionError` if none remain."""
        limit = self._limit
        if limit is not None:
            limit -= self._prefix_tokens(prefix)
        return self._chunks.budget(limit)

    def measure(
        self, atoms: Atoms, first: int, stop: int, start: int, prefix: str
    ) -> tuple[int, int]:
        """Return the tokens of a piece that begins at `start`, and how many are too many.

        The excess is 0 or less if the piece fits.
        """
        before = self._prompt + prefix
        # then the piece's first word may be tokenized in another way
        joins = bool(before) and not before[-1].isspace()
        if joins or not self._adds_up(atoms, first, stop, start):
            return self._measure(atoms.text[start : int(atoms.places[stop - 1])], prefix)
        own = atoms.tokens(first, stop)
        if stop <= first + 1:
            return own, 0
        return own, own - self.budget(prefix)

    def holds(self, atoms: Atoms, prefix: str) -> bool:
        """Whether a text fits as a whole, even if the sum of its atoms' tokens is too large."""
        near = self.budget(prefix) < atoms.tokens(0, len(atoms)) <= 2 * self.budget(prefix)
        if not near or (atoms.adds_up and atoms.levels.min() >= Level.WORD):
            return False
        start = skip_blanks(atoms.text, 0, len(atoms.text))
        return self._measure(atoms.text[start : int(atoms.places[-1])], prefix)[1] <= 0

    def find_last_that_fits(self, text: str, start: int, end: int, prefix: str) -> tuple[int, int]:
        """Return the last possible end, up to `end`, of a piece that begins at `start`.

        With it come the piece's tokens. One character always fits.
        """
        fits = start + 1
        over = end + 1
        while over - fits > 1:
            middle = (fits + over) // 2
            if self._measure(text[start:middle], prefix)[1] > 0:
                over = middle
            else:
                fits = middle
        for place in range(fits, max(start, fits - LONGEST), -1):
            if is_boundary(text, place) and not text[place - 1].isspace():
                own, excess = self._measure(text[start:place], prefix)
                if excess <= 0:
                    return place, own
        return fits, self._counter.count_one(text[start:fits])

    def _measure(self, piece: str, prefix: str) -> tuple[int, int]:
        own = self._counter.count_one(piece)
        excess = own - self.budget(prefix)
        before = self._prompt + prefix
        if before and self._limit is not None:
            joined = self._counter.count_one(before + piece)
            excess = max(excess, joined - self._limit - self._prompt_tokens)
        return own, excess

    def _adds_up(self, atoms: Atoms, first: int, stop: int, start: int) -> bool:
        """Whether a piece has the tokens of its atoms: it is cut between words."""
        if not atoms.adds_up or atoms.levels[stop - 1] < _WORD:
            return False
        if first and atoms.levels[first - 1] < _WORD:
            return False
        return skip_blanks(atoms.text, atoms.start(first), start) == start
