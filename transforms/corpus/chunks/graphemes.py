"""Where a text may be cut at all: never inside what a reader takes for one character (a grapheme cluster)."""

import regex

LONGEST = 256  # a cluster of more characters than this may be cut: nothing that people write comes near it
_CLUSTER = regex.compile(r"\X")


def is_boundary(text: str, place: int) -> bool:
    """Whether no grapheme cluster lies across `place`, 0 to the text's length."""
    if place <= 0 or place >= len(text):
        return True
    if _apart(text, place):
        return True
    start = place - 1
    while start > 0 and place - start < LONGEST and not _apart(text, start):
        start -= 1
    while start < place:
        start = _CLUSTER.match(text, start).end()
    return start == place


def boundary_before(text: str, place: int, least: int) -> int:
    """The last boundary at or before `place` that is above `least`; `place` where there is none."""
    found = next((at for at in range(place, max(least, place - LONGEST), -1) if is_boundary(text, at)), place)
    return found


def skip_blanks(text: str, start: int, stop: int) -> int:
    """The first place from `start` on, `stop` at most, at which no blank stands; a blank that bears a mark is none."""
    place = start
    while place < stop and text[place].isspace():
        place += 1
    return place if place == start or place == stop or is_boundary(text, place) else place - 1


def _apart(text: str, place: int) -> bool:
    """Whether the characters around `place` are certainly two: both ASCII, and no line end of two characters."""
    return text[place] < "\x80" and text[place - 1] < "\x80" and text[place - 1 : place + 1] != "\r\n"
