"""Ends of a Markdown text: cut before headings and between blocks, seldom inside lists and code."""

import re
from array import array
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from sentence_beam.transforms.corpus.chunks.ends import (
    Ends,
    Headings,
    Level,
    LevelPlaces,
    find_ends,
    merge_ends,
    move_before_blanks,
)

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+\S")
_ROW = re.compile(r"[ \t]*\|")
_SIGNATURE = "-- "  # the line above a signature in mail
# YAML or TOML at the head of a text, as Jekyll and Hugo read it
_FRONT_MATTER = re.compile(
    r"\ufeff?(?:---[ \t]*\r?\n(?=.*\S)(?:.*\n)*?(?:---|\.\.\.)"
    r"|\+\+\+[ \t]*\r?\n(?:.*\n)*?\+\+\+)[ \t]*\r?(?=\n|\Z)"
)
_COMMENT = re.compile(r"<!--.*?(?:-->|$)")
# HTML whose lines are not Markdown: a comment anywhere in a line, a block at its start
_HTML = re.compile(r"<!--|^ {0,3}<(script|pre|style|textarea)\b", re.IGNORECASE)


class Kind(Enum):
    """The kind of block that a line belongs to."""

    TEXT = "text"
    HEADING = "heading"
    CODE = "code"
    LIST = "list"
    TABLE = "table"


@dataclass
class Structure:
    """The headings of a text, and the regions that are kept together if they fit.

    `regions` (first character, end, kind) in order; `items` ends between a region's items;
    `headings` (first character, depth, title).
    """

    regions: list[tuple[int, int, Kind]] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    headings: list[tuple[int, int, str]] = field(default_factory=list)


def find_markdown_ends(text: str) -> Ends:
    """Return the ends of a Markdown text, with its headings."""
    structure = read_structure(text)
    places = _demote(find_ends(text), structure)
    places[Level.ITEM].extend(structure.items)
    places[Level.SECTION].extend(
        move_before_blanks(text, start) for start, _, _ in structure.headings
    )
    return merge_ends(text, places, Headings(structure.headings))


def read_structure(text: str) -> Structure:
    """Return the regions and headings of a Markdown text."""
    reader = _StructureReader(text)
    start = 0
    while start < len(text):
        stop = text.find("\n", start)
        if stop < 0:
            stop = len(text)
        reader.read_line(start, stop)
        start = stop + 1
    reader.close_region()
    return reader.structure


class _StructureReader:
    """Reads the structure of a text line by line.

    The open region has the kind `_kind` and begins at `_start`; its last line ends at `_end`.
    `_fence` is the fence of the open code block, or "". Lines before `_resume` are front matter or
    HTML. `_unclosed` are the ends of HTML that no later line has.
    """

    def __init__(self, text: str) -> None:
        self.structure = Structure()
        self._text = text
        self._kind = Kind.TEXT
        self._start = 0
        self._end = 0
        self._fence = ""
        self._after_blank = True
        self._resume = 0
        self._unclosed: set[str] = set()
        front_matter = _FRONT_MATTER.match(text)
        if front_matter:
            self._skip(0, front_matter.end())

    def read_line(self, start: int, stop: int) -> None:
        """Read the line `text[start:stop]`."""
        if start < self._resume:
            return
        whole = self._text[start : min(stop, start + 1000)]
        line = whole.rstrip()
        if whole.rstrip("\r") == _SIGNATURE:
            self._after_blank = True  # underlines nothing
        if line and self._fence:
            self._read_code(line, stop)
        elif line:
            self._read_text(line, start, stop)
            self._skip_html(line, start, stop)
        self._after_blank = not line or self._resume > stop

    def close_region(self) -> None:
        """Add the open region, if it is of a kind that is kept together."""
        if self._kind in (Kind.CODE, Kind.LIST, Kind.TABLE):
            self.structure.regions.append((self._start, self._end, self._kind))

    def _skip(self, start: int, end: int) -> None:
        """Add a region without headings, which ends with the line that holds `end`."""
        self.close_region()
        stop = self._text.find("\n", end)
        if stop < 0:
            stop = len(self._text)
        self.structure.regions.append(
            (start, move_before_blanks(self._text, stop, start), Kind.CODE)
        )
        self._kind = Kind.TEXT
        self._resume = stop + 1

    def _skip_html(self, line: str, start: int, stop: int) -> None:
        """Skip the lines below one that begins a comment or a block of HTML, if it is closed."""
        if self._fence or line.startswith(("    ", "\t")):
            return
        for match in _HTML.finditer(line):
            closing = f"</{match[1]}>".lower() if match[1] else "-->"
            is_code = line.count("`", 0, match.start()) % 2
            if is_code or closing in self._unclosed:
                continue
            closed = re.compile(closing, re.IGNORECASE).search(self._text, start + match.end())
            if not closed:
                self._unclosed.add(closing)
            elif closed.end() > stop:
                self._skip(stop + 1, closed.end())
                return

    def _read_code(self, line: str, stop: int) -> None:
        self._end = stop
        bare = line.strip()
        if bare.startswith(self._fence) and not bare.strip(self._fence[0]):
            self.close_region()
            self._fence = ""
            self._kind = Kind.TEXT

    def _read_text(self, line: str, start: int, stop: int) -> None:
        kind = _find_kind(line, self._kind, self._after_blank)
        if kind is not self._kind:
            self.close_region()
            self._start = start
        elif kind is Kind.TABLE or (kind is Kind.LIST and _ITEM.match(line)):
            self.structure.items.append(move_before_blanks(self._text, self._end))
        if kind is Kind.CODE:
            self._fence = _FENCE.match(line)[1]  # type: ignore[index]
        if kind is Kind.HEADING:
            self._add_heading(line, start, stop)
            kind = Kind.TEXT
        self._kind = kind
        self._end = move_before_blanks(self._text, stop, start)

    def _add_heading(self, line: str, start: int, stop: int) -> None:
        """Add the heading in a line, or the one that the line underlines."""
        match = _HEADING.match(line)
        if match:
            depth = len(match[1])
            title = match[2] or ""
        else:
            start = self._text.rfind("\n", 0, self._end) + 1
            depth = 1 if "=" in line else 2
            title = self._text[start : self._end]
        title = _COMMENT.sub("", title).strip()
        self.structure.headings.append((start, depth, title[:200]))
        region_end = move_before_blanks(self._text, stop, start)
        self.structure.regions.append((start, region_end, Kind.HEADING))


def _find_kind(line: str, open_kind: Kind, after_blank: bool) -> Kind:
    """Return the kind of a line that is not blank and follows one of `open_kind`."""
    if _FENCE.match(line):
        return Kind.CODE
    if _HEADING.match(line):
        return Kind.HEADING
    if open_kind is Kind.TEXT and not after_blank and _UNDERLINE.match(line):
        return Kind.HEADING
    if _ITEM.match(line):
        return Kind.LIST
    if _ROW.match(line):
        return Kind.TABLE
    continues_list = open_kind is Kind.LIST and (line[0] in " \t" or not after_blank)
    return Kind.LIST if continues_list else Kind.TEXT


def _demote(places_by_level: LevelPlaces, structure: Structure) -> LevelPlaces:
    """Lower the levels of ends inside regions, so that a region is cut only if it does not fit."""
    starts = np.array([start for start, _, _ in structure.regions], dtype=np.int64)
    stops = np.array([stop for _, stop, _ in structure.regions], dtype=np.int64)
    kinds = [kind for _, _, kind in structure.regions]
    demoted: LevelPlaces = {level: array("q") for level in Level}
    for level, places in places_by_level.items():
        numbers = np.searchsorted(starts, np.frombuffer(places, dtype=np.int64), "left") - 1
        for place, number in zip(places, numbers.tolist(), strict=True):
            inside = number >= 0 and (
                place < stops[number] or (place == stops[number] and kinds[number] is Kind.HEADING)
            )
            if inside:
                demoted[_lower_level(level, kinds[number])].append(place)
            else:
                demoted[level].append(place)
    return demoted


def _lower_level(level: Level, kind: Kind) -> Level:
    """Return the level of an end inside a region."""
    if kind is Kind.HEADING:
        return min(level, Level.BLANK)
    if level is Level.PARAGRAPH:
        return Level.ITEM
    if level is Level.SENTENCE:
        return Level.INNER if kind is Kind.LIST else Level.BLANK
    return level
