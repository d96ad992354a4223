"""Texts for the page: words of the query are marked, long texts folded."""

from typing import NamedTuple

from sentence_beam.transforms.base.words import find_best_start, find_words, split_query

FOLDED = 400  # characters of a longer text that are visible until it is opened
MOST_TEXT = 20_000  # characters of an opened text
SHORTEST = 3  # letters of a marked word; shorter words are in every text

Parts = list[tuple[str, bool]]  # a part of a text, and whether it is marked


class Shown(NamedTuple):
    """A text in parts: visible at once, and whole when opened (None if the text is short)."""

    seen: Parts
    whole: Parts | None
    characters: int


def cut_text(text: str, query: str) -> Shown:
    """Return the text with the query's words marked.

    Of a long text the part with most of these words is visible at first.
    """
    if len(text) <= FOLDED:
        return Shown(_mark(text, query), None, len(text))
    start = find_best_start(text, query, FOLDED)
    seen = text[start : start + FOLDED]
    if start:
        seen = f"… {seen}"
    if start + FOLDED < len(text):
        seen = f"{seen.rsplit(maxsplit=1)[0]} …"
    whole = f"{text[:MOST_TEXT]} …" if len(text) > MOST_TEXT else text
    return Shown(_mark(seen, query), _mark(whole, query), len(text))


def _mark(text: str, query: str) -> Parts:
    """Return the text in parts; parts that are a word of the query are marked."""
    words = [word for word in split_query(query) if len(word) >= SHORTEST or not word.isascii()]
    parts = []
    end = 0
    for word in find_words(text, words):
        if word.stop > end:  # overlapping words are marked as one
            start = max(word.start, end)
            parts += [(text[end:start], False), (text[start : word.stop], True)]
            end = word.stop
    parts.append((text[end:], False))
    return [(part, is_marked) for part, is_marked in parts if part]
