"""Texts as the page shows them: the words of the query marked, a long one folded."""

from typing import NamedTuple

from transforms.base.words import best_start, find_words, words_of

FOLDED = 400  # characters that are shown of a longer text until it is opened
MOST_TEXT = 20_000  # characters that are shown of an opened one
SHORTEST = 3  # letters of a word that is marked; shorter ones are in every text

Parts = list[tuple[str, bool]]  # a part of a text, and whether it is marked


class Shown(NamedTuple):
    """A text: what is seen at once, and what is seen when it is opened (None if it is not
    longer).
    """

    seen: Parts
    whole: Parts | None
    characters: int


def shown(text: str, query: str) -> Shown:
    """The text with the words of a query; of a long text the part that has most of them is seen
    first.
    """
    if len(text) <= FOLDED:
        return Shown(_marked(text, query), None, len(text))
    start = best_start(text, query, FOLDED)
    seen = text[start : start + FOLDED]
    if start:
        seen = f"… {seen}"
    if start + FOLDED < len(text):
        seen = f"{seen.rsplit(maxsplit=1)[0]} …"
    whole = text
    if len(text) > MOST_TEXT:
        whole = f"{text[:MOST_TEXT]} …"
    return Shown(_marked(seen, query), _marked(whole, query), len(text))


def _marked(text: str, query: str) -> Parts:
    """The text in parts, of which those that are a word of the query are marked."""
    words = [word for word in words_of(query) if len(word) >= SHORTEST or not word.isascii()]
    parts, end = [], 0
    for found in find_words(text, words):
        if found.stop > end:  # words that overlap are marked as one
            start = max(found.start, end)
            parts += [(text[end:start], False), (text[start : found.stop], True)]
            end = found.stop
    parts.append((text[end:], False))
    return [(part, is_marked) for part, is_marked in parts if part]
