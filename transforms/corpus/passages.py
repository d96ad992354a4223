"""Passages: the sentences of a document around a piece of it, for a person to read."""

import re
from itertools import pairwise
from typing import NamedTuple

_WORDS = re.compile(r"\w{3,}")


class Piece(NamedTuple):
    """A piece of a document.

    The fields are the document's name and hash, the piece's number, its place in characters, and
    its text.
    """

    document: tuple[str, bytes]
    number: int
    start: int
    end: int
    text: str


def join_context(
    before: Piece | None, here: Piece | None, after: Piece | None
) -> tuple[str, int, int]:
    """The text of a piece with its neighbours, and the place of the piece in it.

    A neighbour is joined if it is the previous or next piece of the same document.
    """
    if here is None:
        return "", 0, 0
    text = here.text
    start = 0
    if before is not None and (before.document, before.number) == (here.document, here.number - 1):
        own = before.text[: max(0, here.start - before.start)] + _fill_gap(before, here)
        text = own + text
        start = len(own)
    if after is not None and (after.document, after.number) == (here.document, here.number + 1):
        text += _fill_gap(here, after) + after.text[max(0, here.end - after.start) :]
    return text, start, start + here.end - here.start


def _fill_gap(first: Piece, second: Piece) -> str:
    """The replacement of the characters between two pieces, which no piece has."""
    gap = second.start - first.end
    return "\n\n" if gap > 1 else " " * max(gap, 0)


def passage(text: str, start: int, end: int, query: str, width: int) -> str:
    """Whole sentences of a text, at most `width` characters unless one sentence has more.

    The first sentence to be chosen is the one in the piece `text[start:end]` that shares most words
    with the query. The sentences after and before it are added in turn.
    """
    spans = find_sentences(text)
    words = set(_WORDS.findall(query.lower()))
    inside = [n for n, (first, stop) in enumerate(spans) if first < end and stop > start]
    if not inside:
        return text[start:end]
    shared = {}
    for n in inside:
        shared[n] = len(words.intersection(_WORDS.findall(text[slice(*spans[n])].lower())))
    low = max(inside, key=lambda n: (shared[n], -n))
    high = low
    grows = True
    while grows:
        grows = False
        if high + 1 < len(spans) and spans[high + 1][1] - spans[low][0] <= width:
            high += 1
            grows = True
        if low and spans[high][1] - spans[low - 1][0] <= width:
            low -= 1
            grows = True
    return text[spans[low][0] : spans[high][1]]


def find_sentences(text: str) -> list[tuple[int, int]]:
    """The spans of a text's sentences, without the blanks around them."""
    # these functions take long to load
    from sentence_beam.transforms.corpus.chunks.ends import Level, find_text_ends

    ends = find_text_ends(text)
    places = [0, *ends.places[ends.levels >= Level.INNER].tolist()]
    spans = []
    for start, stop in pairwise(places):
        own = text[start:stop]
        if own.strip():
            spans.append((start + len(own) - len(own.lstrip()), start + len(own.rstrip())))
    return spans
