"""Tables for people: as wide as the terminal, with ids cut in the middle and texts cut around what was looked for."""

import os
import re
import sys
import textwrap
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

GAP = "  "
TEXT_WIDTH = 80  # of a text where there is no terminal
UNKNOWN_WIDTH = 80  # of a terminal that does not say
WIDEST = 120  # cells beyond this make no other row wider
LEAST = 12
KEY = 12  # where the values begin in lines of `key  value`
JOINERS = "\u200c\u200d"  # not printable, and part of words and of emoji
WORDS = 64  # of a query that are looked for in a text

Cut = Callable[[str, int], str]  # a cell, and how many columns it may have


@dataclass(frozen=True)
class Column:
    """A column of a table.

    `cut` shortens a cell to so many columns of the terminal, `least` at least; None where cells must stand whole. A
    column is never wider than `most`. Where a table is still too wide, the column with the largest `spare` goes first;
    those without never do.
    """

    head: str
    cut: Cut | None = None
    least: int = LEAST
    most: int | None = None
    spare: int | None = None
    right: bool = False


def terminal_width() -> int | None:
    """The columns of the terminal that standard output is; None where it is none."""
    return os.get_terminal_size(sys.stdout.fileno()).columns or UNKNOWN_WIDTH if sys.stdout.isatty() else None


def id_column(full: bool = False) -> Column:
    """The column `id`: on a terminal at most a third of it, unless ids are wanted in `full`."""
    width = terminal_width()
    return Column("id") if full or width is None else Column("id", middle, most=max(LEAST, width // 3))


def text_column(head: str, full: bool = False, cut: Cut | None = None) -> Column:
    """A column of texts, which takes what room there is, unless they are wanted in `full`."""
    return Column(head) if full else Column(head, cut or end, most=None if terminal_width() else TEXT_WIDTH)


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, its head first; on a terminal none is wider than that, if columns can be cut or spared."""
    width = terminal_width()
    cells = [[printable(cell) for cell in row] for row in rows]
    shown, widths = _fitted(columns, cells, width)
    lines = []
    for row in ([column.head for column in columns], *cells):
        parts = [_cell(columns[place], row[place], size) for place, size in zip(shown, widths, strict=True)]
        lines.append(GAP.join(parts).rstrip())
    return lines


def _fitted(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int | None
) -> tuple[list[int], list[int]]:
    """The places of the columns that are shown, and how wide each is."""
    shown = list(range(len(columns)))
    if width is not None:
        shown = [place for place in shown if columns[place].spare is None or any(row[place] for row in cells)]
    while True:
        widths = [_natural(columns[place], [row[place] for row in cells], width) for place in shown]
        over = 0 if width is None else sum(widths) + len(GAP) * (len(widths) - 1) - width
        for at in sorted(range(len(shown)), key=lambda at: -widths[at]) if over > 0 else ():
            taken = min(over, max(0, widths[at] - columns[shown[at]].least)) if columns[shown[at]].cut else 0
            widths[at], over = widths[at] - taken, over - taken
        spare = [place for place in shown if columns[place].spare is not None]
        if over <= 0 or not spare:
            return shown, widths
        shown.remove(max(spare, key=lambda place: columns[place].spare or 0))


def _natural(column: Column, cells: Sequence[str], width: int | None) -> int:
    """The width of the widest cell that is not cut anyway; of whole cells, those beyond all measure do not count."""
    sizes = [columns_of(cell) for cell in cells]
    if column.cut is None:
        sizes = [size for size in sizes if size <= (width or WIDEST)]
    largest = max([columns_of(column.head), *sizes])
    return largest if column.most is None else min(largest, max(column.most, len(column.head)))


def _cell(column: Column, cell: str, size: int) -> str:
    text = column.cut(cell, size) if column.cut and columns_of(cell) > size else cell
    blank = " " * (size - columns_of(text))
    return blank + text if column.right else text + blank


def wrapped(lines: Sequence[str]) -> list[str]:
    """Lines of `key  value`; on a terminal broken between words to its width, with what follows below the value."""
    width = terminal_width()
    if width is None:
        return list(lines)
    how = textwrap.TextWrapper(width, subsequent_indent=" " * KEY, break_long_words=False, break_on_hyphens=False)
    return [part for line in lines for part in (how.wrap(line) if len(line) > width else [line])]


def one_line(text: object) -> str:
    """A text with its white space as single blanks, printable; empty for None."""
    return printable(" ".join(str(text if text is not None else "").split()))


def printable(text: str) -> str:
    """The text with characters that a terminal would obey, or that have no form, as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in JOINERS else c.encode("unicode_escape").decode() for c in text)


def columns_of(text: str) -> int:
    """The columns of a terminal that a text takes: two for East Asian characters, none for combining ones."""
    return len(text) if text.isascii() else sum(map(_columns_of_one, text))


def _columns_of_one(character: str) -> int:
    if character in JOINERS or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if _is_wide(character) else 1


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in ("W", "F")


def dots() -> str:
    """What stands for what was cut: one character, where the output's encoding has it."""
    try:
        "…".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "..."
    return "…"


def end(text: str, width: int) -> str:
    """The beginning of a text, cut to so many columns."""
    if columns_of(text) <= width:
        return text
    return _first(text, width - len(dots())) + dots()


def middle(text: str, width: int) -> str:
    """Both ends of a text, together cut to so many columns; the last part of an id tells more than the first."""
    if columns_of(text) <= width:
        return text
    room = width - len(dots())
    last = _first(text[::-1], (room + 1) // 2)[::-1]
    return _first(text, room - columns_of(last)) + dots() + last


def _first(text: str, width: int) -> str:
    """The characters at the beginning of a text that take so many columns at most."""
    used = 0
    for place, character in enumerate(text):
        used += _columns_of_one(character)
        if used > width:
            return text[:place]
    return text


def excerpt(text: str, width: int, query: str = "") -> str:
    """So many columns of a text: where it has most of a query's words, else its beginning."""
    whole = columns_of(text)
    if whole <= width:
        return text
    room = max(1, width * len(text) // whole)
    start = _start(text, query, room)
    return end(dots() + text[start:] if start else text, width)


def _start(text: str, query: str, room: int) -> int:
    """Where the part of a text begins that has most of a query's words, in their midst; 0 if its beginning has."""
    words = [(word, list(_pattern(word).finditer(text))) for word in _words(query)]
    found = sorted(
        (match.start(), match.end(), number) for number, (_, matches) in enumerate(words) for match in matches
    )
    weights = [
        len(word) / max(1, len(matches)) for word, matches in words
    ]  # what is everywhere in the text tells little
    places = [start for start, _, _ in found]
    best, first, last = 0.0, 0, 0
    for begin in dict.fromkeys([0, *places]):
        inside = [one for one in found[bisect_left(places, begin) : bisect_left(places, begin + room)]]
        inside = [one for one in inside if one[1] <= begin + room - 2]
        value = sum(weights[number] for number in {number for _, _, number in inside})
        if value > best:
            best, first, last = value, begin, max(stop for _, stop, _ in inside)
    if first == 0:
        return 0
    start = max(0, min(first - (room - (last - first)) // 2, len(text) - room + 2))
    blank = text.find(" ", start, first)
    return blank + 1 if start and blank >= 0 else start


def _words(query: str) -> list[str]:
    """The words to look for; of a run of East Asian characters, which has no blanks, each pair of neighbours."""
    found: list[str] = []
    for word in re.findall(r"\w+", query.casefold())[:WORDS]:
        found += [word[i : i + 2] for i in range(len(word) - 1)] if _is_wide(word[0]) and len(word) > 2 else [word]
    return list(dict.fromkeys(found))


def _pattern(word: str) -> re.Pattern[str]:
    """What finds a word, in either number."""
    if _is_wide(word[0]):
        return re.compile(re.escape(word))
    stem = word.removesuffix("s") if len(word) > 3 else word
    return re.compile(rf"(?<!\w){re.escape(stem)}(?:e?s)?(?!\w)", re.IGNORECASE)
