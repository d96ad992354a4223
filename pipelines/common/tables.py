"""Tables as wide as the terminal; ids are cut in the middle, texts around words of the query."""

import os
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sentence_beam.transforms.base.errors import JOINERS, printable
from sentence_beam.transforms.base.summary_lines import LABEL
from sentence_beam.transforms.base.words import find_best_start, is_wide

GAP = "  "
TEXT_WIDTH = 80  # of a text without a terminal
UNKNOWN_WIDTH = 80  # of a terminal that does not say
WIDEST = 120  # cells beyond this make no other row wider
LEAST = 12

Cut = Callable[[str, int], str]  # a cell, and how many columns it may have


@dataclass(frozen=True)
class Column:
    """A column of a table.

    `cut` shortens a cell to a number of the terminal's columns, at least `least`; if it is None,
    cells are never cut. No column is wider than `most`. If a table is still too wide, columns are
    left out, the one with the largest `spare` first; those without `spare` always stay.
    """

    head: str
    cut: Cut | None = None
    least: int = LEAST
    most: int | None = None
    spare: int | None = None
    right: bool = False


def find_terminal_width() -> int | None:
    """Return the width of the terminal on standard output; None if it is no terminal."""
    if sys.stdout.isatty():
        return os.get_terminal_size(sys.stdout.fileno()).columns or UNKNOWN_WIDTH
    return None


def make_id_column(full: bool = False) -> Column:
    """The column `id`: on a terminal at most a third of it, unless ids are wanted in `full`."""
    width = find_terminal_width()
    if full or width is None:
        return Column("id")
    return Column("id", cut_middle, most=max(LEAST, width // 3))


def make_text_column(head: str, full: bool = False, cut: Cut | None = None) -> Column:
    """Return a column of texts, which takes the remaining width; whole texts if `full`."""
    if full:
        return Column(head)
    most = TEXT_WIDTH if not find_terminal_width() else None
    return Column(head, cut or cut_end, most=most)


def format_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, its head first; on a terminal columns are cut or left out."""
    width = find_terminal_width()
    cells = [[printable(cell) for cell in row] for row in rows]
    shown, widths = _fit(columns, cells, width)
    lines = []
    for row in ([column.head for column in columns], *cells):
        parts = [
            _fill_cell(columns[place], row[place], size)
            for place, size in zip(shown, widths, strict=True)
        ]
        lines.append(GAP.join(parts).rstrip())
    return lines


def _fit(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int | None
) -> tuple[list[int], list[int]]:
    """Choose the columns that are shown; return their places, and how wide each is."""
    shown = list(range(len(columns)))
    if width is None:
        return shown, _measure_widths(columns, cells, shown, None)
    shown = [
        place for place in shown if columns[place].spare is None or any(row[place] for row in cells)
    ]
    while True:
        widths = _measure_widths(columns, cells, shown, width)
        over = _narrow(widths, [columns[place] for place in shown], width)
        spare = [place for place in shown if columns[place].spare is not None]
        if over <= 0 or not spare:
            return shown, widths
        shown.remove(max(spare, key=lambda place: columns[place].spare or 0))


def _measure_widths(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], shown: list[int], width: int | None
) -> list[int]:
    return [_measure(columns[place], [row[place] for row in cells], width) for place in shown]


def _narrow(widths: list[int], columns: Sequence[Column], width: int) -> int:
    """Narrow columns in place, the widest first; return by how much they are still too wide."""
    over = sum(widths) + len(GAP) * (len(widths) - 1) - width
    for at in sorted(range(len(widths)), key=lambda at: -widths[at]):
        column = columns[at]
        if over > 0 and column.cut:
            cut = min(over, max(0, widths[at] - column.least))
            widths[at] -= cut
            over -= cut
    return over


def _measure(column: Column, cells: Sequence[str], width: int | None) -> int:
    """Return the width of the widest cell; cells that are not cut and too wide do not count."""
    sizes = [count_columns_of(cell) for cell in cells]
    if column.cut is None:
        sizes = [size for size in sizes if size <= (width or WIDEST)]
    largest = max([count_columns_of(column.head), *sizes])
    return largest if column.most is None else min(largest, max(column.most, len(column.head)))


def _fill_cell(column: Column, cell: str, size: int) -> str:
    text = column.cut(cell, size) if column.cut and count_columns_of(cell) > size else cell
    blank = " " * (size - count_columns_of(text))
    return blank + text if column.right else text + blank


def wrapped(lines: Sequence[str]) -> list[str]:
    """Return lines of a label and a text, on a terminal broken between words to its width."""
    width = find_terminal_width()
    if width is None:
        return list(lines)
    how = textwrap.TextWrapper(
        width, subsequent_indent=" " * LABEL, break_long_words=False, break_on_hyphens=False
    )
    parts = []
    for line in lines:
        if len(line) > width:
            parts += how.wrap(line)
        else:
            parts.append(line)
    return parts


def to_one_line(text: object) -> str:
    """A text with its white space as single blanks, printable; empty for None."""
    return "" if text is None else printable(" ".join(str(text).split()))


def show_number(value: float | None, form: str, unknown: str = "") -> str:
    """Return a number in a format, or the text for an unknown one."""
    return unknown if value is None else format(value, form)


def count_columns_of(text: str) -> int:
    """Return a text's width in a terminal: East Asian characters take two columns, combining ones
    none.
    """
    return len(text) if text.isascii() else sum(map(_count_columns, text))


def _count_columns(character: str) -> int:
    if character in JOINERS or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    if is_wide(character):
        return 2
    return 1


def choose_dots() -> str:
    """The ellipsis, as one character if the encoding allows."""
    try:
        "…".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "..."
    return "…"


def cut_end(text: str, width: int) -> str:
    """Return the beginning of a text, cut to `width` columns."""
    if count_columns_of(text) <= width:
        return text
    return _take_first(text, width - len(choose_dots())) + choose_dots()


def cut_middle(text: str, width: int) -> str:
    """Return both ends of a text, together cut to `width` columns, a little more of the last."""
    if count_columns_of(text) <= width:
        return text
    room = width - len(choose_dots())
    last = _take_first(text[::-1], (room + 1) // 2)[::-1]
    return _take_first(text, room - count_columns_of(last)) + choose_dots() + last


def _take_first(text: str, width: int) -> str:
    """Return the beginning of a text that takes at most `width` columns."""
    used = 0
    for place, character in enumerate(text):
        used += _count_columns(character)
        if used > width:
            return text[:place]
    return text


def cut_excerpt(text: str, width: int, query: str = "") -> str:
    """Return `width` columns of a text: the part with most words of a query, else the beginning."""
    whole = count_columns_of(text)
    if whole <= width:
        return text
    room = max(1, width * len(text) // whole)
    start = find_best_start(text, query, room)
    if start:
        text = choose_dots() + text[start:]
    return cut_end(text, width)
