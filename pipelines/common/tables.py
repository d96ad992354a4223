"""Tables for people: as wide as the terminal, with ids cut in the middle and texts cut around what
was looked for.
"""

import os
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transforms.base.errors import JOINERS, printable
from transforms.base.words import best_start, is_wide

GAP = "  "
TEXT_WIDTH = 80  # of a text where there is no terminal
UNKNOWN_WIDTH = 80  # of a terminal that does not say
WIDEST = 120  # cells beyond this make no other row wider
LEAST = 12
KEY = 12  # where the values begin in lines of `key  value`

Cut = Callable[[str, int], str]  # a cell, and how many columns it may have


@dataclass(frozen=True)
class Column:
    """A column of a table.

    `cut` shortens a cell to so many columns of the terminal, `least` at least; None if cells
    must stand whole. A column is never wider than `most`. Where a table is still too wide, the
    column with the largest `spare` goes first; those without never do.
    """

    head: str
    cut: Cut | None = None
    least: int = LEAST
    most: int | None = None
    spare: int | None = None
    right: bool = False


def terminal_width() -> int | None:
    """The columns of the terminal that standard output is; None if it is none."""
    if sys.stdout.isatty():
        return os.get_terminal_size(sys.stdout.fileno()).columns or UNKNOWN_WIDTH
    return None


def id_column(full: bool = False) -> Column:
    """The column `id`: on a terminal at most a third of it, unless ids are wanted in `full`."""
    width = terminal_width()
    if full or width is None:
        return Column("id")
    return Column("id", middle, most=max(LEAST, width // 3))


def text_column(head: str, full: bool = False, cut: Cut | None = None) -> Column:
    """A column of texts, which takes what room there is, unless they are wanted in `full`."""
    if full:
        return Column(head)
    return Column(head, cut or end, most=None if terminal_width() else TEXT_WIDTH)


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, its head first; on a terminal none is wider than that, if columns can
    be cut or spared.
    """
    width = terminal_width()
    cells = [[printable(cell) for cell in row] for row in rows]
    shown, widths = _fitted(columns, cells, width)
    lines = []
    for row in ([column.head for column in columns], *cells):
        parts = [
            _cell(columns[place], row[place], size)
            for place, size in zip(shown, widths, strict=True)
        ]
        lines.append(GAP.join(parts).rstrip())
    return lines


def _fitted(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int | None
) -> tuple[list[int], list[int]]:
    """The places of the columns that are shown, and how wide each is."""
    shown = list(range(len(columns)))
    if width is not None:
        shown = [
            place
            for place in shown
            if columns[place].spare is None or any(row[place] for row in cells)
        ]
    while True:
        widths = [_natural(columns[place], [row[place] for row in cells], width) for place in shown]
        if width is None:
            over = 0
        else:
            over = sum(widths) + len(GAP) * (len(widths) - 1) - width
        for at in sorted(range(len(shown)), key=lambda at: -widths[at]) if over > 0 else ():
            taken = 0
            if columns[shown[at]].cut:
                taken = min(over, max(0, widths[at] - columns[shown[at]].least))
            widths[at], over = widths[at] - taken, over - taken
        spare = [place for place in shown if columns[place].spare is not None]
        if over <= 0 or not spare:
            return shown, widths
        shown.remove(max(spare, key=lambda place: columns[place].spare or 0))


def _natural(column: Column, cells: Sequence[str], width: int | None) -> int:
    """The width of the widest cell that is not cut anyway; of whole cells, those beyond all measure
    do not count.
    """
    sizes = [columns_of(cell) for cell in cells]
    if column.cut is None:
        sizes = [size for size in sizes if size <= (width or WIDEST)]
    largest = max([columns_of(column.head), *sizes])
    if column.most is None:
        return largest
    return min(largest, max(column.most, len(column.head)))


def _cell(column: Column, cell: str, size: int) -> str:
    text = cell
    if column.cut and columns_of(cell) > size:
        text = column.cut(cell, size)
    blank = " " * (size - columns_of(text))
    return blank + text if column.right else text + blank


def wrapped(lines: Sequence[str]) -> list[str]:
    """Lines of `key  value`; on a terminal broken between words to its width, with what follows
    below the value.
    """
    width = terminal_width()
    if width is None:
        return list(lines)
    how = textwrap.TextWrapper(
        width, subsequent_indent=" " * KEY, break_long_words=False, break_on_hyphens=False
    )
    return [part for line in lines for part in (how.wrap(line) if len(line) > width else [line])]


def one_line(text: object) -> str:
    """A text with its white space as single blanks, printable; empty for None."""
    return printable(" ".join(str(text if text is not None else "").split()))


def columns_of(text: str) -> int:
    """The columns of a terminal that a text takes: two for East Asian characters, none for
    combining ones.
    """
    if text.isascii():
        return len(text)
    return sum(map(_columns_of_one, text))


def _columns_of_one(character: str) -> int:
    if character in JOINERS or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if is_wide(character) else 1


def dots() -> str:
    """What stands for what was cut: one character, if the output's encoding has it."""
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
    """Both ends of a text, together cut to so many columns; the last part of an id tells more than
    the first.
    """
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
    """So many columns of a text: if it has most of a query's words, else its beginning."""
    whole = columns_of(text)
    if whole <= width:
        return text
    room = max(1, width * len(text) // whole)
    start = best_start(text, query, room)
    return end(dots() + text[start:] if start else text, width)
