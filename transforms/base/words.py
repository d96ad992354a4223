"""Find the words of a query in a text, and the part of the text that has most of them."""

import re
import unicodedata
from bisect import bisect_left
from typing import NamedTuple

MOST = 64  # words of a query that are searched for in a text


class WordPlace(NamedTuple):
    """A word in a text: its first character, the one after it, its number in the query."""

    start: int
    stop: int
    number: int


def split_query(query: str) -> list[str]:
    """Return the words to search for.

    A run of East Asian characters, which has no blanks, gives each pair of neighbours.
    """
    words: list[str] = []
    for word in re.findall(r"\w+", query.casefold())[:MOST]:
        if is_wide(word[0]) and len(word) > 2:
            words += [word[i : i + 2] for i in range(len(word) - 1)]
        else:
            words.append(word)
    return list(dict.fromkeys(words))


def find_words(text: str, words: list[str]) -> list[WordPlace]:
    """Return every place of the words in a text, in order."""
    return sorted(
        WordPlace(match.start(), match.end(), number)
        for number, word in enumerate(words)
        for match in _compile_word(word).finditer(text)
    )


def find_best_start(text: str, query: str, room: int) -> int:
    """Return the start of the `room` characters of a text that have most of a query's words.

    The words are in their middle. 0 if the beginning of the text has most.
    """
    first, stop = _find_best_part(text, split_query(query), room)
    if first == 0:
        return 0
    start = max(0, min(first - (room - (stop - first)) // 2, len(text) - room + 2))
    blank = text.find(" ", start, first)
    return blank + 1 if start and blank >= 0 else start


def _find_best_part(text: str, words: list[str], room: int) -> tuple[int, int]:
    """Return the first character of the best words that fit into `room`, and the one after them."""
    matches = find_words(text, words)
    counts = [0] * len(words)
    for match in matches:
        counts[match.number] += 1
    # a word that is everywhere in the text tells little
    weights = [len(word) / max(1, count) for word, count in zip(words, counts, strict=True)]
    starts = [match.start for match in matches]
    best = 0.0
    part = (0, 0)
    for begin in dict.fromkeys([0, *starts]):
        near = matches[bisect_left(starts, begin) : bisect_left(starts, begin + room)]
        inside = [match for match in near if match.stop <= begin + room - 2]
        value = sum(weights[number] for number in {match.number for match in inside})
        if value > best:
            best = value
            part = (begin, max(match.stop for match in inside))
    return part


def is_wide(character: str) -> bool:
    """Return whether a character is East Asian, two columns of a terminal wide."""
    return unicodedata.east_asian_width(character) in ("W", "F")


def _compile_word(word: str) -> re.Pattern[str]:
    """Return the pattern of a word in the singular or the plural."""
    if is_wide(word[0]):
        return re.compile(re.escape(word))
    stem = word.removesuffix("s") if len(word) > 3 else word
    return re.compile(rf"(?<!\w){re.escape(stem)}(?:e?s)?(?!\w)", re.IGNORECASE)
