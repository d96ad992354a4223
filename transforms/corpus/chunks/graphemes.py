"""Boundaries of grapheme clusters, the characters as a reader sees them; no cut is made inside."""

import regex

# A longer cluster may be cut; no writing has clusters near this length.
LONGEST = 256
_CLUSTER = regex.compile(r"\X")
# Two neighbours that no rule joins: no marks, no joining signs, no halves of a flag or of a Hangul
# syllable.
_APART = regex.compile(
    r"[^\r\p{GCB=Prepend}\p{GCB=ZWJ}\p{GCB=Extend}\p{GCB=RI}\p{GCB=L}\p{GCB=V}\p{GCB=T}]"
    r"[^\p{GCB=ZWJ}\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=RI}\p{GCB=V}\p{GCB=T}]"
)


def is_boundary(text: str, place: int) -> bool:
    """Whether no grapheme cluster continues across `place`, except with a blank after it."""
    if place <= 0 or place >= len(text) or text[place].isspace() or _APART.match(text, place - 1):
        return True
    first = place - 1
    while first > 0 and place - first <= LONGEST and not _APART.match(text, first - 1):
        first -= 1
    begin = first
    end = first
    while end < place:
        begin = end
        end = _CLUSTER.match(text, end).end()
    # The walk may have started inside a cluster, which is long if it continues across the place.
    return end == place or (begin == first and place - first > LONGEST)


def find_boundary_before(text: str, place: int, least: int) -> int:
    """Return the last boundary at or before `place` and above `least`; `place` if none exists."""
    for at in range(place, max(least, place - LONGEST), -1):
        if is_boundary(text, at):
            return at
    return place


def skip_blanks(text: str, start: int, stop: int) -> int:
    """Return the first place from `start` to `stop` without a blank.

    A blank that carries a combining mark does not count as one.
    """
    place = start
    while place < stop and text[place].isspace():
        place += 1
    return place if place in (start, stop) or is_boundary(text, place) else place - 1
