"""Ends at which a text may be cut: of paragraphs, sentences, clauses and words, each with a level.

An end is the place after the last character before the cut. Blanks that follow it belong to the
next part.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from nupunkt import sent_spans

from sentence_beam.transforms.corpus.chunks.graphemes import find_boundary_before, is_boundary

BLOCK = 16_384  # characters that are split into sentences and tokenized at once


class Level(IntEnum):
    """The level of an end; a cut is made at the highest level that it can reach."""

    INSIDE = 0
    WORD = 1
    BLANK = 2
    CLAUSE = 3
    INNER = 4  # a sentence inside a region that is kept together
    ITEM = 5  # an item of such a region: of a list, a row of a table, a paragraph of code
    SENTENCE = 6
    PARAGRAPH = 7
    SECTION = 8  # before a heading


class Headings:
    """The headings of a text, each (first character, depth, title), looked up by place."""

    def __init__(self, headings: Sequence[tuple[int, int, str]] = ()) -> None:
        self._starts = [start for start, _, _ in headings]
        self._paths: list[str] = []
        above: list[tuple[int, str]] = []
        for _, depth, title in headings:
            above = [(other, name) for other, name in above if other < depth] + [(depth, title)]
            self._paths.append(" > ".join(name for _, name in above if name))

    def at(self, place: int) -> str:
        """Return the headings above a place, outermost first: `"Install > From source"`.

        The result is "" before the first heading.
        """
        number = bisect_right(self._starts, place)
        return self._paths[number - 1] if number else ""

    @property
    def paths(self) -> set[str]:
        """All possible results of `at`."""
        return {"", *self._paths}


@dataclass(frozen=True)
class Ends:
    """Places at which a text may be cut; the last ends the text.

    `places` [n] int64, ascending; `levels` [n] int8; `begins` [n] int64: the start of the part
    before each place, at most one blank included.
    """

    begins: np.ndarray
    places: np.ndarray
    levels: np.ndarray
    headings: Headings


LevelPlaces = dict[Level, "array[int]"]
_PARAGRAPHS = re.compile(r"\n\s*\n|[\f\u2029]\s*")
_SIGN = re.compile(r"\S")
# Ends inside long parts: of lines, clauses and words, each with the least distance in characters.
# The blanks before a line's end are part of the match: each run of them is passed over once.
_LINE = re.compile(r"\S\s*\n")
_CLAUSE = re.compile(r"[.,;:!?)\]…–—](?=\s)|[，、；：]")
_WORD = re.compile(r"\S(?=\s)")
_WITHIN = ((_LINE, 128, Level.CLAUSE), (_CLAUSE, 48, Level.CLAUSE), (_WORD, 48, Level.BLANK))
_LONG = 512  # characters
_MANY = 8  # characters a full stop
# Marks that end a sentence without a blank after them, with closing quotes and brackets.
_MARKS = re.compile(r"[。！？｡؟۔।॥።។]+[」』）》〉】〕”’\")]*|．(?!\d)")


def find_text_ends(text: str) -> Ends:
    """Return the ends of paragraphs, sentences and blocks of a plain text."""
    return merge_ends(text, find_ends(text), Headings())


def find_ends(text: str) -> LevelPlaces:
    """Return the ends of a plain text by level; a place may have several levels."""
    stop = len(text.rstrip())
    places_by_level: LevelPlaces = {level: array("q") for level in Level}
    paragraphs = places_by_level[Level.PARAGRAPH]
    paragraphs.extend(
        move_before_blanks(text, match.start()) for match in _PARAGRAPHS.finditer(text, 0, stop)
    )
    for start, end, level in _cut_runs(text, paragraphs, stop):
        place = move_before_blanks(text, end, start)
        if place > start:
            places_by_level[level].append(place)
            places_by_level[Level.SENTENCE].extend(_find_sentence_ends(text, start, end))
    _add_within(text, places_by_level, stop)
    return places_by_level


def merge_ends(text: str, places_by_level: LevelPlaces, headings: Headings) -> Ends:
    """Sort the ends by place, each once with its best level; drop those inside grapheme clusters.

    The last end is that of the text.
    """
    stop = len(text.rstrip())
    places_by_level[Level.SECTION].append(stop)
    used = {level: places for level, places in places_by_level.items() if places}
    places = np.concatenate([np.frombuffer(places, dtype=np.int64) for places in used.values()])
    levels = np.concatenate(
        [np.full(len(places), level, dtype=np.int8) for level, places in used.items()]
    )
    order = np.lexsort((-levels, places))
    places = places[order]
    levels = levels[order]
    valid = (np.diff(places, prepend=0) > 0) & (places <= stop)
    if not text.isascii():
        valid &= np.fromiter(
            (is_boundary(text, place) for place in places.tolist()), dtype=bool, count=len(places)
        )
    places = places[valid]
    return Ends(_find_begins(text, places), places, levels[valid], headings)


def _find_begins(text: str, places: np.ndarray) -> np.ndarray:
    """Return the starts of the parts that end at these places, at most one blank before each."""
    before = [0, *places[:-1].tolist()][: len(places)]
    first = (match.start() for place in before if (match := _SIGN.search(text, place)))
    return np.maximum(
        np.fromiter(first, dtype=np.int64, count=len(places)) - 1, np.array(before, dtype=np.int64)
    )


def _add_within(text: str, places_by_level: LevelPlaces, stop: int) -> None:
    """Add ends inside long parts: of lines first, then of clauses, then of words."""
    for pattern, apart, level in _WITHIN:
        found_places = [np.array(each, dtype=np.int64) for each in places_by_level.values()]
        places = np.sort(np.concatenate([[0, stop], *found_places]))
        for number in np.flatnonzero(np.diff(places) > _LONG).tolist():
            last = int(places[number])
            end = int(places[number + 1])
            for match in pattern.finditer(text, last, end):
                if match.end() - last >= apart:
                    last = match.end()
                    places_by_level[level].append(move_before_blanks(text, last))


def move_before_blanks(text: str, place: int, least: int = 0) -> int:
    """Move `place` back over the blanks before it, to `least` at most."""
    while place > least and text[place - 1].isspace():
        place -= 1
    return place


def _find_sentence_ends(text: str, start: int, stop: int) -> Iterator[int]:
    """Yield the ends of the sentences in a block."""
    block = text[start:stop]
    if _MANY * block.count(". ") < len(block):  # a block with more is no prose, and slow to split
        for _, end in sent_spans(block):
            place = move_before_blanks(text, start + end, start)
            if place > start:
                yield place
    yield from (start + match.end() for match in _MARKS.finditer(block))


def _cut_runs(text: str, paragraphs: Sequence[int], stop: int) -> Iterator[tuple[int, int, Level]]:
    """Yield runs of at most `BLOCK` characters: start, end, level of the end.

    A run ends at a paragraph if it can, else at a line, a blank, or between grapheme clusters.
    """
    start = 0
    while start < stop:
        end, level = _find_end(text, paragraphs, start, stop)
        yield start, end, level
        start = end


def _find_end(text: str, paragraphs: Sequence[int], start: int, stop: int) -> tuple[int, Level]:
    far = start + BLOCK
    if far >= stop:
        return stop, Level.SECTION
    last = bisect_right(paragraphs, far)
    if last and paragraphs[last - 1] > start:
        return paragraphs[last - 1], Level.PARAGRAPH
    line = text.rfind("\n", start + BLOCK // 2, far)
    if line > 0:
        return line, Level.CLAUSE
    for place in range(far, far - BLOCK // 4, -1):
        if text[place].isspace():
            return place, Level.BLANK
    return find_boundary_before(text, far, start), Level.INSIDE
