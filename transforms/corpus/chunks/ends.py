"""Where a text may be cut, and how good each place is: ends of paragraphs, sentences, clauses and words.

An end is the place after the last character before the cut; blanks that follow it belong to what comes next.
"""

import re
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from nupunkt import sent_spans

from transforms.corpus.chunks.graphemes import boundary_before

BLOCK = 16_384  # characters that sentences are looked for in, and that are tokenized, at once


class Level(IntEnum):
    """How good an end is: inside a word, between words without a blank, a blank, a clause or line, ... ."""

    INSIDE = 0
    WORD = 1
    BLANK = 2
    CLAUSE = 3
    INNER = 4  # a sentence within what is kept together
    ITEM = 5  # an item of what is kept together: of a list, a row of a table, a paragraph of code
    SENTENCE = 6
    PARAGRAPH = 7
    SECTION = 8  # before a heading


@dataclass(frozen=True)
class Ends:
    """Places [n] int64, ascending, at which a text may be cut, and their levels [n] int8; the last is its end."""

    places: np.ndarray
    levels: np.ndarray


Found = defaultdict[Level, "array[int]"]
_PARAGRAPHS = re.compile(r"\n\s*\n|[\f\u2029]")
# Marks that end a sentence without a blank after them, with closing quotes and brackets.
_MARKS = re.compile(r"[。！？｡؟۔।॥።։។]+[」』）》〉】〕”’\")]*|．(?!\d)")


def text_ends(text: str) -> Ends:
    """The ends of paragraphs and sentences of a plain text, and those at which its blocks end."""
    stop = len(text.rstrip())
    found: Found = defaultdict(lambda: array("q"))
    found[Level.PARAGRAPH].extend(_end(text, match.start()) for match in _PARAGRAPHS.finditer(text, 0, stop))
    for start, end, level in blocks(text, found[Level.PARAGRAPH], stop):
        found[level].append(end)
        found[Level.SENTENCE].extend(sentence_ends(text, start, end))
    return merged(found, stop)


def merged(found: Found, stop: int) -> Ends:
    """The ends by place, each once with its best level, up to and with `stop`."""
    found[Level.SECTION].append(stop)
    places = np.concatenate([np.frombuffer(places, dtype=np.int64) for places in found.values()])
    levels = np.concatenate([np.full(len(places), level, dtype=np.int8) for level, places in found.items()])
    order = np.lexsort((-levels, places))
    places, levels = places[order], levels[order]
    first = np.diff(places, prepend=0) > 0
    return Ends(places[first], levels[first])


def blocks(text: str, paragraphs: Sequence[int], stop: int) -> Iterator[tuple[int, int, Level]]:
    """Runs of at most `BLOCK` characters up to `stop`, cut at a paragraph, else a line, a blank, a cluster."""
    start = 0
    while start < stop:
        end, level = _block_end(text, paragraphs, start, stop)
        yield start, end, level
        start = end


def sentence_ends(text: str, start: int, stop: int) -> list[int]:
    """The places inside a block after which a sentence ends."""
    block = text[start:stop]
    ends = [_end(text, start + end) for _, end in sent_spans(block)]
    ends += [start + match.end() for match in _MARKS.finditer(block)]
    return [end for end in ends if end > start]


def _block_end(text: str, paragraphs: Sequence[int], start: int, stop: int) -> tuple[int, Level]:
    far = start + BLOCK
    if far >= stop:
        return stop, Level.SECTION
    last = bisect_right(paragraphs, far)
    if last and paragraphs[last - 1] > start:
        return paragraphs[last - 1], Level.PARAGRAPH
    line = text.rfind("\n", start + BLOCK // 2, far)
    if line > 0 and (end := _end(text, line)) > start:
        return end, Level.CLAUSE
    for place in range(far, far - BLOCK // 4, -1):
        if text[place].isspace() and (end := _end(text, place)) > start:
            return end, Level.BLANK
    return boundary_before(text, far, start), Level.INSIDE


def _end(text: str, place: int) -> int:
    """The place after the last character before `place` that is no blank."""
    while place and text[place - 1].isspace():
        place -= 1
    return place
