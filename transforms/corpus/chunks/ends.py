"""Where a text may be cut, and how good each place is: ends of paragraphs, sentences, clauses and
words.

An end is the place after the last character before the cut; blanks that follow it belong to what
comes next.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from nupunkt import sent_spans

from transforms.corpus.chunks.graphemes import boundary_before, is_boundary

BLOCK = 16_384  # characters that sentences are looked for in, and that are tokenized, at once


class Level(IntEnum):
    """How good an end is: inside a word, between words without a blank, a blank, a clause or line,
    ... .
    """

    INSIDE = 0
    WORD = 1
    BLANK = 2
    CLAUSE = 3
    INNER = 4  # a sentence within what is kept together
    ITEM = 5  # an item of what is kept together: of a list, a row of a table, a paragraph of code
    SENTENCE = 6
    PARAGRAPH = 7
    SECTION = 8  # before a heading


class Headings:
    """The headings of a text (first character, depth, title), which say where in it a place is."""

    def __init__(self, headings: Sequence[tuple[int, int, str]] = ()) -> None:
        self._starts = [start for start, _, _ in headings]
        self._paths: list[str] = []
        above: list[tuple[int, str]] = []
        for _, depth, title in headings:
            above = [(other, name) for other, name in above if other < depth] + [(depth, title)]
            self._paths.append(" > ".join(name for _, name in above if name))

    def at(self, place: int) -> str:
        """The headings that a place stands under, outermost first: `"Install > From source"`; ""
        above the first.
        """
        number = bisect_right(self._starts, place)
        return self._paths[number - 1] if number else ""

    @property
    def paths(self) -> set[str]:
        """All that `at` may give."""
        return {"", *self._paths}


@dataclass(frozen=True)
class Ends:
    """Places [n] int64, ascending, at which a text may be cut, and their levels [n] int8; the last
    ends the text.

    `begins` [n] int64: where the part before each place begins, with the last of the blanks that it
    follows.
    """

    begins: np.ndarray
    places: np.ndarray
    levels: np.ndarray
    headings: Headings


Found = dict[Level, "array[int]"]
_PARAGRAPHS = re.compile(r"\n\s*\n|[\f\u2029]\s*")
_SIGN = re.compile(r"\S")
# Ends within what is long, not nearer to each other than so many characters: of lines, of clauses,
# of words.
_LINE = re.compile(r"\n")
_CLAUSE = re.compile(r"[.,;:!?)\]…–—](?=\s)|[，、；：]")
_WORD = re.compile(r"\S(?=\s)")
_WITHIN = ((_LINE, 128, Level.CLAUSE), (_CLAUSE, 48, Level.CLAUSE), (_WORD, 48, Level.BLANK))
_LONG = 512  # characters
_MANY = 8  # characters a full stop
# Marks that end a sentence without a blank after them, with closing quotes and brackets.
_MARKS = re.compile(r"[。！？｡؟۔।॥።។]+[」』）》〉】〕”’\")]*|．(?!\d)")


def text_ends(text: str) -> Ends:
    """The ends of paragraphs and sentences of a plain text, and those at which its blocks end."""
    return merged(text, find_ends(text), Headings())


def find_ends(text: str) -> Found:
    """The ends of a plain text by level; a place may stand in several."""
    stop = len(text.rstrip())
    found: Found = {level: array("q") for level in Level}
    found[Level.PARAGRAPH].extend(
        end_before(text, match.start()) for match in _PARAGRAPHS.finditer(text, 0, stop)
    )
    for start, end, level in _blocks(text, found[Level.PARAGRAPH], stop):
        place = end_before(text, end, start)
        if place > start:
            found[level].append(place)
            found[Level.SENTENCE].extend(_sentence_ends(text, start, end))
    _add_within(text, found, stop)
    return found


def merged(text: str, found: Found, headings: Headings) -> Ends:
    """The ends by place, each once with its best level, none inside a grapheme cluster; the last
    ends the text.
    """
    stop = len(text.rstrip())
    found[Level.SECTION].append(stop)
    found = {level: places for level, places in found.items() if places}
    places = np.concatenate([np.frombuffer(places, dtype=np.int64) for places in found.values()])
    levels = np.concatenate(
        [np.full(len(places), level, dtype=np.int8) for level, places in found.items()]
    )
    order = np.lexsort((-levels, places))
    places, levels = places[order], levels[order]
    kept = (np.diff(places, prepend=0) > 0) & (places <= stop)
    if not text.isascii():
        kept &= np.fromiter(
            (is_boundary(text, place) for place in places.tolist()), dtype=bool, count=len(places)
        )
    places, levels = places[kept], levels[kept]
    return Ends(_begins(text, places), places, levels, headings)


def _begins(text: str, places: np.ndarray) -> np.ndarray:
    """Where the parts of a text that end at these places begin, at most one blank before each."""
    before = [0, *places[:-1].tolist()][: len(places)]
    first = (match.start() for place in before if (match := _SIGN.search(text, place)))
    return np.maximum(
        np.fromiter(first, dtype=np.int64, count=len(places)) - 1, np.array(before, dtype=np.int64)
    )


def _add_within(text: str, found: Found, stop: int) -> None:
    """Add ends inside of what is long without one: of lines, else of clauses, else of words here
    and there.
    """
    for pattern, apart, level in _WITHIN:
        known = [np.array(each, dtype=np.int64) for each in found.values()]
        places = np.sort(np.concatenate([[0, stop], *known]))
        for number in np.flatnonzero(np.diff(places) > _LONG).tolist():
            last, end = int(places[number]), int(places[number + 1])
            for match in pattern.finditer(text, last, end):
                if match.end() - last >= apart:
                    last = match.end()
                    found[level].append(end_before(text, last))


def end_before(text: str, place: int, least: int = 0) -> int:
    """The place after the last character before `place` that is no blank; `least` where only blanks
    are between.
    """
    while place > least and text[place - 1].isspace():
        place -= 1
    return place


def _sentence_ends(text: str, start: int, stop: int) -> Iterator[int]:
    """The places inside a block after which a sentence ends."""
    block = text[start:stop]
    if _MANY * block.count(". ") < len(block):  # what has more is no prose, and takes long
        for _, end in sent_spans(block):
            place = end_before(text, start + end, start)
            if place > start:
                yield place
    yield from (start + match.end() for match in _MARKS.finditer(block))


def _blocks(text: str, paragraphs: Sequence[int], stop: int) -> Iterator[tuple[int, int, Level]]:
    """Runs of at most `BLOCK` characters up to `stop`, cut at a paragraph, else a line, a blank, a
    cluster.
    """
    start = 0
    while start < stop:
        end, level = _block_end(text, paragraphs, start, stop)
        yield start, end, level
        start = end


def _block_end(text: str, paragraphs: Sequence[int], start: int, stop: int) -> tuple[int, Level]:
    far = start + BLOCK
    if far >= stop:
        return stop, Level.SECTION
    last = bisect_right(paragraphs, far)
    if last and paragraphs[last - 1] > start:
        return paragraphs[last - 1], Level.PARAGRAPH
    line = text.rfind("\n", start + BLOCK // 2, far)
    if line > 0:
        return line, Level.CLAUSE
    blank = next(
        (place for place in range(far, far - BLOCK // 4, -1) if text[place].isspace()), None
    )
    if blank is not None:
        return blank, Level.BLANK
    return boundary_before(text, far, start), Level.INSIDE
