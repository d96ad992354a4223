"""Where a Markdown text may be cut: before headings, between blocks; lists, tables and code as
little as can be.
"""

import re
from array import array
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from transforms.corpus.chunks.ends import (
    Ends,
    Found,
    Headings,
    Level,
    end_before,
    find_ends,
    merged,
)

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+\S")
_ROW = re.compile(r"[ \t]*\|")


class Kind(Enum):
    """What a line belongs to."""

    TEXT = "text"
    HEADING = "heading"
    CODE = "code"
    LIST = "list"
    TABLE = "table"


@dataclass
class Structure:
    """The regions of a text that are kept together where they fit, and its headings.

    `regions` (first character, end, kind) in order; `items` ends between a region's items;
    `headings` (first character, depth, title).
    """

    regions: list[tuple[int, int, Kind]] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    headings: list[tuple[int, int, str]] = field(default_factory=list)


def markdown_ends(text: str) -> Ends:
    """The ends of a Markdown text, with its headings."""
    structure = read_structure(text)
    found = _demoted(find_ends(text), structure)
    found[Level.ITEM].extend(structure.items)
    found[Level.SECTION].extend(end_before(text, start) for start, _, _ in structure.headings)
    return merged(text, found, Headings(structure.headings))


def read_structure(text: str) -> Structure:
    """The regions and headings of a Markdown text, read line by line."""
    found = Structure()
    # the region that is open, and the end of its last line
    fence, start, kind, end = "", 0, Kind.TEXT, 0
    place, previous_blank = 0, True
    while place < len(text):
        stop = text.find("\n", place)
        stop = len(text) if stop < 0 else stop
        line = text[place : min(stop, place + 1000)].rstrip()
        if fence:
            end = stop if line else end
            if line and _closes(line, fence):
                found.regions.append((start, end, Kind.CODE))
                fence, kind = "", Kind.TEXT
            place, previous_blank = stop + 1, not line
            continue
        other = _kind(line, kind, previous_blank)
        if other is not kind and line:
            if kind in (Kind.LIST, Kind.TABLE):
                found.regions.append((start, end, kind))
            start = place
        if other is Kind.CODE:
            fence = _fence(line)
        elif other is Kind.HEADING:
            _add_heading(found, text, place, end if not previous_blank else place, stop, line)
            other = Kind.TEXT
        elif (
            line
            and kind is other
            and (other is Kind.TABLE or (other is Kind.LIST and _ITEM.match(line)))
        ):
            found.items.append(end_before(text, end))
        if line:
            kind, end = other, end_before(text, stop, place)
        place, previous_blank = stop + 1, not line
    if fence or kind in (Kind.LIST, Kind.TABLE):
        found.regions.append((start, end, kind))
    return found


def _kind(line: str, open_kind: Kind, after_blank: bool) -> Kind:
    """What a line belongs to, after a line that belongs to `open_kind`."""
    if not line:
        return open_kind
    if _FENCE.match(line):
        return Kind.CODE
    if _HEADING.match(line) or (
        open_kind is Kind.TEXT and not after_blank and _UNDERLINE.match(line)
    ):
        return Kind.HEADING
    if _ITEM.match(line):
        return Kind.LIST
    if _ROW.match(line):
        return Kind.TABLE
    goes_on = open_kind is Kind.LIST and (line[0] in " \t" or not after_blank)
    return Kind.LIST if goes_on else Kind.TEXT


def _fence(line: str) -> str:
    match = _FENCE.match(line)
    return match[1] if match else ""


def _closes(line: str, fence: str) -> bool:
    bare = line.strip()
    return bare.startswith(fence) and not bare.strip(fence[0])


def _add_heading(
    found: Structure, text: str, place: int, before: int, stop: int, line: str
) -> None:
    """Add a heading of its own line, or one whose line ends at `before` and is underlined by this
    one.
    """
    match = _HEADING.match(line)
    if match:
        start, depth, title = place, len(match[1]), match[2] or ""
    else:
        start = text.rfind("\n", 0, before) + 1
        depth, title = 1 if "=" in line else 2, text[start:before].strip()
    found.headings.append((start, depth, title[:200]))
    found.regions.append((start, end_before(text, stop, start), Kind.HEADING))


def _demoted(found: Found, structure: Structure) -> Found:
    """The ends with those inside regions made less good, so that a region is cut only where it does
    not fit.
    """
    starts = np.array([start for start, _, _ in structure.regions], dtype=np.int64)
    stops = np.array([stop for _, stop, _ in structure.regions], dtype=np.int64)
    kinds = [kind for _, _, kind in structure.regions]
    changed: Found = {level: array("q") for level in Level}
    for level, places in found.items():
        numbers = np.searchsorted(starts, np.frombuffer(places, dtype=np.int64), "left") - 1
        for place, number in zip(places, numbers.tolist(), strict=True):
            inside = number >= 0 and (
                place < stops[number] or (place == stops[number] and kinds[number] is Kind.HEADING)
            )
            changed[_inside(level, kinds[number]) if inside else level].append(place)
    return changed


def _inside(level: Level, kind: Kind) -> Level:
    """The level of an end inside a region."""
    if kind is Kind.HEADING:
        return min(level, Level.BLANK)
    if level is Level.PARAGRAPH:
        return Level.ITEM
    if level is Level.SENTENCE:
        return Level.INNER if kind is Kind.LIST else Level.BLANK
    return level
