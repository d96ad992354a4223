"""Filling pieces: from the ends of a text and the tokens between them to the end at which a piece
ends.
"""

from dataclasses import dataclass

import numpy as np
import xxhash

from transforms.corpus.chunks.ends import Level
from transforms.corpus.chunks.graphemes import LONGEST, is_boundary

# A piece ends at the last of the best ends that it holds; for some of them it has to be half full.
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
    """The parts of a text between neighbouring ends, none larger than a budget where that can be.

    `places` [n] int64 where each ends, `levels` [n] int8 how good that end is, `total` [n + 1]
    int64 the tokens before each, and behind the last; `adds_up`: a piece that is cut between words
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
        """The tokens of the atoms from `first` to before `stop`."""
        return int(self.total[stop] - self.total[first])

    def start(self, first: int) -> int:
        """The place at which an atom begins, blanks included."""
        return int(self.places[first - 1]) if first else 0


def choose_last(atoms: Atoms, first: int, after: int, budget: int) -> int:
    """The atom before which a piece ends that begins at `first`: as far as the budget goes, at the
    best end there.

    It is above `after`, and one more than that where the budget holds nothing.
    """
    stop = _reach(atoms, first, after, budget)
    if stop == len(atoms):
        return stop
    levels = atoms.levels[after:stop]
    half, best = _half(atoms, first, after, budget), int(levels.max())
    for level, at_half in _PREFERRED:
        if level > best:
            continue
        least = half if at_half else 0
        for place in np.flatnonzero(levels[least:] >= level)[::-1].tolist():
            if is_boundary(atoms.text, int(atoms.places[after + least + place])):
                return after + least + place + 1
    return _next_boundary(atoms, stop)


def choose_by_content(atoms: Atoms, first: int, after: int, budget: int) -> int:
    """As `choose_last`, but at the end, past half of the budget, that the text around it names.

    Of the best ends there it is the one with the smallest hash: where a piece begins matters
    little, so that after an edit the pieces soon end where they ended before.
    """
    stop = _reach(atoms, first, after, budget)
    if stop == len(atoms):
        return stop
    half = after + _half(atoms, first, after, budget)
    levels = atoms.levels[half:stop]
    if not len(levels) or levels.max() < Level.SENTENCE:
        return choose_last(atoms, first, after, budget)
    ends = half + np.flatnonzero(levels >= Level.SENTENCE)
    return min(ends.tolist(), key=lambda end: _hash(atoms, end)) + 1


def choose_sentence(atoms: Atoms, first: int, after: int, budget: int) -> int:
    """As `choose_last`, but at the first end of a sentence, where it comes before the
    budget's end.
    """
    stop = _reach(atoms, first, after, budget)
    ends = np.flatnonzero(atoms.levels[after:stop] >= Level.INNER)
    return after + int(ends[0]) + 1 if len(ends) else choose_last(atoms, first, after, budget)


def overlapping(atoms: Atoms, first: int, stop: int, overlap: int, budget: int) -> int:
    """The atom with which the piece after one of `first` to `stop` begins, so that it repeats whole
    sentences.

    These have at most `overlap` tokens, and leave room for the next sentence, or the next atom.
    """
    if not overlap or stop == len(atoms):
        return stop
    later = np.flatnonzero(atoms.levels[stop : stop + budget] >= Level.SENTENCE)
    next_end = stop + 1 + (int(later[0]) if len(later) else 0)
    if atoms.tokens(stop, next_end) > budget:
        next_end = stop + 1
    least = max(int(atoms.total[stop]) - overlap, int(atoms.total[next_end]) - budget)
    earliest = max(int(np.searchsorted(atoms.total, least, "left")), first + 1)
    starts = np.flatnonzero(atoms.levels[earliest - 1 : stop - 1] >= Level.SENTENCE)
    return earliest + int(starts[0]) if len(starts) else stop


def _next_boundary(atoms: Atoms, stop: int) -> int:
    """The atom after the cluster that atom `stop` begins inside of; `stop` where that is longer
    than any should be.
    """
    far = int(atoms.places[stop - 1]) + LONGEST
    for number in range(stop, len(atoms)):
        if atoms.places[number] > far:
            break
        if is_boundary(atoms.text, int(atoms.places[number])):
            return number + 1
    return stop


def _reach(atoms: Atoms, first: int, after: int, budget: int) -> int:
    """The atom before which the budget ends, at least one after `after`."""
    stop = int(np.searchsorted(atoms.total, atoms.total[first] + budget, "right")) - 1
    return max(stop, after + 1)


def _half(atoms: Atoms, first: int, after: int, budget: int) -> int:
    """How many atoms from `after` on end before half of the budget."""
    return max(
        0, int(np.searchsorted(atoms.total, atoms.total[first] + budget // 2, "left")) - 1 - after
    )


def _hash(atoms: Atoms, end: int) -> int:
    return xxhash.xxh3_64_intdigest(
        atoms.text[atoms.start(end) : int(atoms.places[end])].strip().encode()
    )
