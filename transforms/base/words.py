"""The words of a query in a text: where they are, and the part of the text that has most of
them.
"""

import re
import unicodedata
from bisect import bisect_left
from typing import NamedTuple

MOST = 64  # words of a query that are looked for in a text


class WordPlace(NamedTuple):
    """A word in a text: where it begins and ends, and its number among the words of the query."""

    start: int
    stop: int
    number: int


def words_of(query: str) -> list[str]:
    """The words to look for; in a run of East Asian characters, which has no blanks, each pair of
    neighbours.
    """
    found: list[str] = []
    for word in re.findall(r"\w+", query.casefold())[:MOST]:
        found += (
            [word[i : i + 2] for i in range(len(word) - 1)]
            if is_wide(word[0]) and len(word) > 2
            else [word]
        )
    return list(dict.fromkeys(found))


def find_words(text: str, words: list[str]) -> list[WordPlace]:
    """Every place of the words in a text, in order."""
    return sorted(
        WordPlace(match.start(), match.end(), number)
        for number, word in enumerate(words)
        for match in _pattern(word).finditer(text)
    )


def best_start(text: str, query: str, room: int) -> int:
    """Where the `room` characters of a text begin that have most of a query's words, in their
    midst.

    0 if the beginning of the text has most.
    """
    words = words_of(query)
    found = find_words(text, words)
    times = [0] * len(words)
    for one in found:
        times[one.number] += 1
    # a word that is everywhere in the text tells little
    weights = [len(word) / max(1, count) for word, count in zip(words, times, strict=True)]
    places = [one.start for one in found]
    best, first, last = 0.0, 0, 0
    for begin in dict.fromkeys([0, *places]):
        inside = [
            one for one in found[bisect_left(places, begin) : bisect_left(places, begin + room)]
        ]
        inside = [one for one in inside if one.stop <= begin + room - 2]
        value = sum(weights[number] for number in {one.number for one in inside})
        if value > best:
            best, first, last = value, begin, max(one.stop for one in inside)
    if first == 0:
        return 0
    start = max(0, min(first - (room - (last - first)) // 2, len(text) - room + 2))
    blank = text.find(" ", start, first)
    return blank + 1 if start and blank >= 0 else start


def is_wide(character: str) -> bool:
    """Whether a character is East Asian, two columns of a terminal wide."""
    return unicodedata.east_asian_width(character) in ("W", "F")


def _pattern(word: str) -> re.Pattern[str]:
    """What finds a word, in either number."""
    if is_wide(word[0]):
        return re.compile(re.escape(word))
    stem = word.removesuffix("s") if len(word) > 3 else word
    return re.compile(rf"(?<!\w){re.escape(stem)}(?:e?s)?(?!\w)", re.IGNORECASE)
