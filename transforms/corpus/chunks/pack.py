"""Choose the end of a piece by the ends of a text and the tokens between them."""

from dataclasses import dataclass

import numpy as np
import xxhash

from sentence_beam.transforms.corpus.chunks.ends import Level
from sentence_beam.transforms.corpus.chunks.graphemes import LONGEST, is_boundary

# A piece ends at the last of its best ends; for levels with True it must be half full there.
_PREFERRED = tuple(
    (int(level), at_half)
    for level, at_half in (
        (Level.SECTION, True),
        (Level.PARAGRAPH, True),
        (Level.SENTENCE, False),
        (Level.ITEM, True),
        (Level.INNER, False),
        (Level.CLAUSE, True),
        (Level.BLANK, False),
        (Level.WORD, False),
        (Level.INSIDE, False),
    )
)


@dataclass(frozen=True)
class Atoms:
    """The parts of a text between neighbouring ends, none larger than a budget if possible.

    `places` [n] int64 the end of each, `levels` [n] int8 the level of that end, `total` [n + 1]
    int64 the tokens before each and after the last; `adds_up`: a piece that is cut between words
    has the tokens of its atoms.
    """

    text: str
    places: np.ndarray
    levels: np.ndarray
    total: np.ndarray
    adds_up: bool

    def __len__(self) -> int:
        return len(self.places)

    def tokens(self, first: int, stop: int) -> int:
        """Return the number of tokens of the atoms `first` to `stop - 1`."""
        return int(self.total[stop] - self.total[first])

    def start(self, first: int) -> int:
        """Return the place at which an atom begins, blanks included."""
        return int(self.places[first - 1]) if first else 0


def choose_last(atoms: Atoms, first: int, after: int, budget: int) -> int:
    """Return the atom before which the piece from `first` ends: at the last of the best ends.

    It is above `after`; `after + 1` if the budget holds no atom.
    """
    stop = _reach(atoms, first, after, budget)
    if stop == len(atoms):
        return stop
    levels = atoms.levels[after:stop]
    half = _find_half(atoms, first, after, budget)
    best = int(levels.max())
    for level, at_half in _PREFERRED:
        if level > best:
            continue
        least = half if at_half else 0
        for place in np.flatnonzero(levels[least:] >= level)[::-1].tolist():
            if is_boundary(atoms.text, int(atoms.places[after + least + place])):
                return after + least + place + 1
    return _find_next_boundary(atoms, stop)


def choose_by_content(atoms: Atoms, first: int, after: int, budget: int) -> int:
    """Choose an end past half of the budget by the text before it, as stable pieces need it.

    Among the ends of sentences it is the one with the smallest hash. The start of the
    piece matters little, so after an edit the pieces soon end at the same places as before.
    """
    stop = _reach(atoms, first, after, budget)
    if stop == len(atoms):
        return stop
    half = after + _find_half(atoms, first, after, budget)
    levels = atoms.levels[half:stop]
    if not len(levels) or levels.max() < Level.SENTENCE:
        return choose_last(atoms, first, after, budget)
    ends = half + np.flatnonzero(levels >= Level.SENTENCE)
    return min(ends.tolist(), key=lambda end: _hash(atoms, end)) + 1


def choose_sentence(atoms: Atoms, first: int, after: int, budget: int) -> int:
    """Choose the first end of a sentence; without one in the budget, as `choose_last`."""
    stop = _reach(atoms, first, after, budget)
    ends = np.flatnonzero(atoms.levels[after:stop] >= Level.INNER)
    return after + int(ends[0]) + 1 if len(ends) else choose_last(atoms, first, after, budget)


def find_first_of_next(atoms: Atoms, first: int, stop: int, overlap: int, budget: int) -> int:
    """Return the first atom of the piece after `first` to `stop`, which repeats whole sentences.

    These have at most `overlap` tokens, and leave room for the next sentence, or the next atom.
    """
    if not overlap or stop == len(atoms):
        return stop
    later = np.flatnonzero(atoms.levels[stop : stop + budget] >= Level.SENTENCE)
    next_end = stop + 1
    if len(later):
        next_end += int(later[0])
    if atoms.tokens(stop, next_end) > budget:
        next_end = stop + 1
    least = max(int(atoms.total[stop]) - overlap, int(atoms.total[next_end]) - budget)
    earliest = max(int(np.searchsorted(atoms.total, least, "left")), first + 1)
    starts = np.flatnonzero(atoms.levels[earliest - 1 : stop - 1] >= Level.SENTENCE)
    return earliest + int(starts[0]) if len(starts) else stop


def _find_next_boundary(atoms: Atoms, stop: int) -> int:
    """Return the atom after the grapheme cluster at the start of atom `stop`.

    A cluster of more than LONGEST characters may be cut: the result is then `stop`.
    """
    far = int(atoms.places[stop - 1]) + LONGEST
    for number in range(stop, len(atoms)):
        if atoms.places[number] > far:
            break
        if is_boundary(atoms.text, int(atoms.places[number])):
            return number + 1
    return stop


def _reach(atoms: Atoms, first: int, after: int, budget: int) -> int:
    """Return the atom before which the budget ends, at least `after + 1`."""
    stop = int(np.searchsorted(atoms.total, atoms.total[first] + budget, "right")) - 1
    return max(stop, after + 1)


def _find_half(atoms: Atoms, first: int, after: int, budget: int) -> int:
    """Return how many atoms from `after` on end before half of the budget."""
    reached = int(np.searchsorted(atoms.total, atoms.total[first] + budget // 2, "left"))
    return max(0, reached - 1 - after)


def _hash(atoms: Atoms, end: int) -> int:
    text = atoms.text[atoms.start(end) : int(atoms.places[end])]
    return xxhash.xxh3_64_intdigest(text.strip().encode())
