"""Rows: a span read, checked and cut into units. Bad rows are set aside with a reason, never
dropped.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
import pyarrow as pa

from transforms.corpus.column_values import EXCERPT
from transforms.corpus.files import InputFile
from transforms.corpus.formats.registry import reader_of
from transforms.corpus.row_blocks import BLANK_LINE, NULL_ID, NULL_TEXT, Block, Columns, Rows
from transforms.corpus.spans import BYTES_PER_TOKEN, TOKENS_PER_ROW, Span

# times a unit's tokens: two neighbours of that together are one unit, and what is left makes no
# tiny shard
MOST = 1.25


_Good = tuple[list[str], list[str], list[int]]  # ids, texts and positions of good rows


@dataclass(frozen=True)
class Rejected:
    """A row that is not embedded; `row` is its number or the byte offset of its line in `file`."""

    id: str | None
    row: int
    reason: str
    excerpt: str
    file: str


def blank_lines(rejects: Iterable[Rejected]) -> int:
    """The number of rejected rows that are blank lines of text files."""
    return sum(reject.reason == BLANK_LINE for reject in rejects)


@dataclass(frozen=True)
class Parts:
    """The pieces of each document of a unit, as they go into the model, and their own tokens."""

    texts: list[list[str]]
    tokens: list[list[int]]


class DocumentWindows(Protocol):
    """Documents in windows, as an encoder makes them: pieces with equal `keys` [P] have equal
    vectors.
    """

    @property
    def keys(self) -> list[bytes]:
        """16 bytes over what the vector of each piece is made from."""


@dataclass(frozen=True)
class UnitRows:
    """The rows of one unit in order; all columns hold the good rows only.

    [start, stop) is their part of `file`. For a unit that is a bucket, `file` is None, [start,
    stop) has the number of the bucket, and `files` has the file of each row; so for a group of
    small files, whose `sources` are these files and whose rows [start, stop) count. `prefixes` are
    those of documents that are to be cut; where they are cut, `pieces` has the place of each row
    (`corpus.pieces`), and `texts` are what goes into the model. If that is not the texts, `parts`
    (documents whose vectors are means of pieces) or `windows` (late chunking) say what it is.
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
        """The number of rows read, good and rejected; of pieces, that of the documents that begin
        here.
        """
        return self.documents + len(self.rejects)

    @property
    def documents(self) -> int:
        """The number of good rows; of pieces, that of the documents that begin here."""
        if self.pieces is None:
            return len(self.ids)
        return int(np.count_nonzero(self.pieces.column("piece").to_numpy() == 0))

    @property
    def relative(self) -> str:
        """The relative path of the file, "" for rows of several files."""
        return self.file.relative if self.file else ""

    def file_of(self, row: int) -> str:
        """The relative path of the file that a row is from."""
        return self.files[row] if self.files is not None else self.relative


def blocks_of(span: Span, columns: Columns) -> Iterator[Block]:
    """The rows of a span in order. Raises SentenceBeamError naming a file that cannot be read."""
    return reader_of(span.file).blocks(span, columns.reading(span.file))


def read_span(span: Span, columns: Columns, unit_tokens: int) -> Iterator[UnitRows]:
    """The span's units in order; at least one, if only an empty one.

    Each has a quarter more than `unit_tokens` at most, or is one row that is larger. A unit is
    named like the span, with `.0`, `.1`, ... where there are several. Memory holds two units at
    most. Raises SentenceBeamError naming a file that cannot be read, InputChangedError one that
    changed.
    """
    pieces = _cut(blocks_of(span, columns), unit_tokens)
    previous, held = next(pieces, (Rows(), 0.0))
    number, start = 0, span.start
    for piece, tokens in pieces:
        if held + tokens <= MOST * unit_tokens:
            previous.extend(piece)
            held += tokens
            continue
        yield _unit(span, f"{span.name}.{number}", (start, piece.positions[0]), previous)
        previous, held, number, start = piece, tokens, number + 1, piece.positions[0]
    name = f"{span.name}.{number}" if number else span.name
    yield _unit(span, name, (start, span.stop), previous)


def _cut(blocks: Iterator[Block], unit_tokens: int) -> Iterator[tuple[Rows, float]]:
    """Runs of rows of at most `unit_tokens` (estimated), or of one row that is larger, and their
    tokens.
    """
    current, used = Rows(), 0.0
    for block, sizes in blocks:
        cost = sizes / BYTES_PER_TOKEN + TOKENS_PER_ROW
        total = np.cumsum(cost)
        start = 0
        while start < len(total):
            spent = total[start - 1] if start else 0.0
            stop = int(np.searchsorted(total, spent + unit_tokens - used, side="right"))
            if stop == start and not current.positions:
                stop += 1
            current.extend(block.slice(start, stop))
            used += (total[stop - 1] if stop else 0.0) - spent
            if stop < len(total):
                yield current, used
                current, used = Rows(), 0.0
            start = stop
    if current.positions:
        yield current, used


def _unit(span: Span, name: str, bounds: tuple[int, int | None], rows: Rows) -> UnitRows:
    faults = _faults(rows, reader_of(span.file).blank_reason)
    if not faults:
        kept = pa.concat_tables(rows.kept) if rows.kept else None
        ids, texts, positions = cast(_Good, (rows.ids, rows.texts, rows.positions))
        return UnitRows(
            name,
            span.file,
            *bounds,
            ids,
            texts,
            positions,
            kept,
            [],
            prefixes=rows.prefixes or None,
        )
    rejects = [
        Rejected(
            rows.ids[i],
            rows.positions[i],
            reason,
            (rows.texts[i] or "")[:EXCERPT],
            span.file.relative,
        )
        for i, reason in faults.items()
    ]
    good = [i for i in range(len(rows.ids)) if i not in faults]
    kept = pa.concat_tables(rows.kept).take(pa.array(good, pa.int64())) if rows.kept else None
    columns = ([column[i] for i in good] for column in (rows.ids, rows.texts, rows.positions))
    ids, texts, positions = cast(_Good, tuple(columns))
    prefixes = [rows.prefixes[i] for i in good] if rows.prefixes else None
    return UnitRows(
        name, span.file, *bounds, ids, texts, positions, kept, rejects, prefixes=prefixes
    )


def _faults(rows: Rows, empty: str) -> dict[int, str]:
    """The reason against each row that is not good, by its place; `empty` is the one against a text
    that is blank.
    """
    columns = zip(rows.reasons, rows.texts, rows.ids, strict=True)
    found = [
        i
        for i, (why, text, id_) in enumerate(columns)
        if why or id_ is None or not text or text.isspace()
    ]
    return {i: rows.reasons[i] or _fault(rows.texts[i], rows.ids[i], empty) for i in found}


def _fault(text: str | None, row_id: str | None, empty: str) -> str:
    if text is None:
        return NULL_TEXT
    return NULL_ID if row_id is None else empty
