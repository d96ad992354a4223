"""Read a span, check its rows, and cut them into units. Bad rows are rejected with a reason."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.corpus.column_values import EXCERPT
from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.formats.registry import choose_reader
from sentence_beam.transforms.corpus.row_blocks import (
    BLANK_LINE,
    NULL_ID,
    NULL_TEXT,
    Block,
    Columns,
    Rows,
)
from sentence_beam.transforms.corpus.spans import BYTES_PER_TOKEN, MOST, TOKENS_PER_ROW, Span
from sentence_beam.transforms.space import row_hash

FORGOTTEN = "forgotten"  # the reason against a row that was erased from the store
_Good = tuple[list[str], list[str], list[int]]  # ids, texts and positions of good rows


@dataclass(frozen=True)
class Rejected:
    """A row that is not embedded; `row` is its number or the byte offset of its line in `file`.

    `text` is the hash of its text, None if it has none. It is written nowhere.
    """

    id: str | None
    row: int
    reason: str
    excerpt: str
    file: str
    text: bytes | None = field(default=None, compare=False)


def forgotten_rows(rejects: Iterable[Rejected]) -> int:
    """The number of rejected rows that were erased from the store."""
    return sum(reject.reason == FORGOTTEN for reject in rejects)


def blank_lines(rejects: Iterable[Rejected]) -> int:
    """The number of rejected rows that are blank lines of text files."""
    return sum(reject.reason == BLANK_LINE for reject in rejects)


@dataclass(frozen=True)
class Parts:
    """The pieces of each document of a unit, as the model reads them, and their own tokens."""

    texts: list[list[str]]
    tokens: list[list[int]]


class DocumentWindows(Protocol):
    """Documents in windows, as an encoder makes them.

    Pieces with equal `keys` [P] have equal vectors.
    """

    @property
    def keys(self) -> list[bytes]:
        """16 bytes for each piece: a hash of everything that decides its vector."""


@dataclass(frozen=True)
class UnitRows:
    """The rows of one unit in order; all columns hold the good rows only.

    [start, stop) is their part of `file`. For a unit that is a bucket, `file` is None, [start,
    stop) has the number of the bucket, and `files` has the file of each row. This also holds for a
    group of small files; `sources` are these files, and [start, stop) counts their rows. `prefixes`
    are those of documents that are not cut yet. If they are cut, `pieces` has the place of each row
    (`corpus.pieces`), and `texts` are the model's input. If the input is another, `parts`
    (documents whose vectors are means of pieces) or `windows` (late chunking) have it.
    """

    name: str
    file: InputFile | None
    start: int
    stop: int | None
    ids: list[str]
    texts: list[str]
    positions: list[int]
    kept: pa.Table | None
    rejects: list[Rejected]
    files: list[str] | None = None
    prefixes: list[tuple[str, ...]] | None = None
    pieces: pa.Table | None = None
    parts: Parts | None = None
    windows: DocumentWindows | None = None
    sources: tuple[InputFile, ...] = ()

    @property
    def read(self) -> int:
        """The number of rows read, good and rejected; for pieces, of documents that begin here."""
        return self.documents + len(self.rejects)

    @property
    def documents(self) -> int:
        """The number of good rows; for pieces, of the documents that begin here."""
        if self.pieces is None:
            return len(self.ids)
        return int(np.count_nonzero(self.pieces.column("piece").to_numpy() == 0))

    @property
    def relative(self) -> str:
        """The relative path of the file; "" for rows of several files."""
        return self.file.relative if self.file is not None else ""

    def find_file(self, row: int) -> str:
        """The relative path of the file that a row is from."""
        return self.files[row] if self.files is not None else self.relative

    def reject(self, row: int, reason: str) -> Rejected:
        """Return a row as a rejected one."""
        excerpt = self.texts[row][:EXCERPT]
        return Rejected(self.ids[row], self.positions[row], reason, excerpt, self.find_file(row))


def read_blocks(span: Span, columns: Columns) -> Iterator[Block]:
    """The rows of a span in order. Raises SentenceBeamError naming an unreadable file."""
    return choose_reader(span.file).blocks(span, columns.reading(span.file))


def read_span(span: Span, columns: Columns, unit_tokens: int) -> Iterator[UnitRows]:
    """Yield the span's units in order; at least one, which may be empty.

    A unit has at most a quarter more than `unit_tokens`, or is a single row that is larger. It is
    named like the span, with `.0`, `.1`, ... if there are several. Memory holds at most two units.
    Raises SentenceBeamError naming a file that cannot be read, InputChangedError one that changed.
    """
    pieces = _cut(read_blocks(span, columns), unit_tokens)
    previous, held = next(pieces, (Rows(), 0.0))
    number = 0
    start = span.start
    for piece, tokens in pieces:
        if held + tokens <= MOST * unit_tokens:
            previous.extend(piece)
            held += tokens
            continue
        yield make_unit(span, f"{span.name}.{number}", (start, piece.positions[0]), previous)
        previous = piece
        held = tokens
        number += 1
        start = piece.positions[0]
    name = f"{span.name}.{number}" if number else span.name
    yield make_unit(span, name, (start, span.stop), previous)


def _cut(blocks: Iterator[Block], unit_tokens: int) -> Iterator[tuple[Rows, float]]:
    """Yield rows of at most `unit_tokens`, or one larger row, and their estimated tokens."""
    current = Rows()
    used = 0.0
    for block, sizes in blocks:
        cost = sizes / BYTES_PER_TOKEN + TOKENS_PER_ROW
        total = np.concatenate([[0.0], np.cumsum(cost)])  # before each row, and at the end
        start = 0
        while start < len(cost):
            most = total[start] + unit_tokens - used
            stop = max(start, int(np.searchsorted(total, most, side="right")) - 1)
            if stop == start and not current.positions:
                stop += 1
            current.extend(block.slice(start, stop))
            used += total[stop] - total[start]
            if stop < len(cost):
                yield current, used
                current = Rows()
                used = 0.0
            start = stop
    if current.positions:
        yield current, used


def make_unit(span: Span, name: str, bounds: tuple[int, int | None], rows: Rows) -> UnitRows:
    """Return rows of a span as a unit, the bad ones apart with a reason."""
    faults = _find_faults(rows, choose_reader(span.file).blank_reason)
    rejects = [_reject(rows, place, reason, span.file) for place, reason in faults.items()]
    if faults:
        rows = _take([place for place in range(len(rows.ids)) if place not in faults], rows)
    kept = pa.concat_tables(rows.kept) if rows.kept else None
    ids, texts, positions = cast(_Good, (rows.ids, rows.texts, rows.positions))
    prefixes = rows.prefixes or None
    return UnitRows(
        name, span.file, *bounds, ids, texts, positions, kept, rejects, prefixes=prefixes
    )


def _reject(rows: Rows, place: int, reason: str, file: InputFile) -> Rejected:
    text = rows.texts[place]
    excerpt = text[:EXCERPT] if text else ""
    text_hash = row_hash(text) if text else None
    position = rows.positions[place]
    return Rejected(rows.ids[place], position, reason, excerpt, file.relative, text_hash)


def _take(places: list[int], rows: Rows) -> Rows:
    """The rows at these places, which are good."""
    kept = [pa.concat_tables(rows.kept).take(pa.array(places, pa.int64()))] if rows.kept else []
    prefixes = [rows.prefixes[place] for place in places] if rows.prefixes else []
    return Rows(
        [rows.positions[place] for place in places],
        [rows.texts[place] for place in places],
        [rows.ids[place] for place in places],
        [None] * len(places),
        kept,
        prefixes,
    )


def _find_faults(rows: Rows, empty: str) -> dict[int, str]:
    """The reasons against bad rows, by their places.

    `empty` is the reason against a blank text.
    """
    faults: dict[int, str] = {}
    if _are_all_good(rows):
        return faults
    columns = zip(rows.reasons, rows.texts, rows.ids, strict=True)
    for place, (reason, text, row_id) in enumerate(columns):
        if reason or row_id is None or not text or text.isspace():
            faults[place] = reason or _name_fault(text, row_id, empty)
    return faults


def _are_all_good(rows: Rows) -> bool:
    """Whether no row has a fault, found without a loop in Python."""
    if any(rows.reasons) or None in rows.ids or not all(rows.texts):
        return False
    return not any(map(str.isspace, cast(list[str], rows.texts)))


def _name_fault(text: str | None, row_id: str | None, empty: str) -> str:
    if text is None:
        return NULL_TEXT
    if row_id is None:
        return NULL_ID
    return empty
