"""Where a text may be cut at all: never inside what a reader takes for one character (a grapheme
cluster).
"""

import regex

# a cluster of more characters than this may be cut: nothing that people write comes near it
LONGEST = 256
_CLUSTER = regex.compile(r"\X")
# Two neighbours that no rule joins: no marks, no joining signs, no halves of a flag or of a Hangul
# syllable.
_APART = regex.compile(
    r"[^\r\p{GCB=Prepend}\p{GCB=ZWJ}\p{GCB=Extend}\p{GCB=RI}\p{GCB=L}\p{GCB=V}\p{GCB=T}]"
    r"[^\p{GCB=ZWJ}\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=RI}\p{GCB=V}\p{GCB=T}]"
)


def is_boundary(text: str, place: int) -> bool:
    """Whether no grapheme cluster lies across `place`, or nothing but a blank of one after it."""
    if place <= 0 or place >= len(text) or text[place].isspace() or _APART.match(text, place - 1):
        return True
    first = place - 1
    while first > 0 and place - first <= LONGEST and not _APART.match(text, first - 1):
        first -= 1
    begin = end = first
    while end < place:
        begin, end = end, _CLUSTER.match(text, end).end()
    # The walk may have stopped inside a cluster. If that one lies across the place, it is a long
    # one.
    return end == place or (begin == first and place - first > LONGEST)


def boundary_before(text: str, place: int, least: int) -> int:
    """The last boundary at or before `place` that is above `least`; `place` where there is none."""
    return next(
        (at for at in range(place, max(least, place - LONGEST), -1) if is_boundary(text, at)), place
    )


def skip_blanks(text: str, start: int, stop: int) -> int:
    """The first place from `start` on, `stop` at most, at which no blank stands; a blank that bears
    a mark is none.
    """
    place = start
    while place < stop and text[place].isspace():
        place += 1
    return place if place in (start, stop) or is_boundary(text, place) else place - 1
