"""Documents cut into pieces: rows into more rows, and the sums that say whether all pieces are
there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from transforms.base.arrow import as_hashes, hash_prefixes
from transforms.base.errors import OptionError
from transforms.corpus.rows import MOST, UnitRows
from transforms.corpus.spans import estimated_tokens
from transforms.space import row_hashes

if TYPE_CHECKING:
    from transforms.corpus.chunks.cut import Cutter, Pieces

# A piece's number in its document, how many it has, the characters that it is, and the hash of the
# whole document.
PIECES = pa.schema(
    [
        ("piece", pa.int32()),
        ("pieces", pa.int32()),
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("doc_hash", pa.binary(16)),
    ]
)
# characters before the piece in what goes into the model; in no shard
BEFORE = pa.field("before", pa.int32())
TABLE = PIECES.append(BEFORE)
_STEP, _MIX = (
    np.uint64(0x9E3779B97F4A7C15),
    (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)),
)


def as_pieces(rows: UnitRows, found: "list[Pieces]", text_column: str | None) -> UnitRows:
    """The pieces of a unit's documents, a row each; a kept column with the text has the piece
    there.
    """
    texts, spans, before = [], [], []
    for number, (text, pieces) in enumerate(zip(rows.texts, found, strict=True)):
        for (start, end), headings in zip(pieces.spans, pieces.headings, strict=True):
            prefix = prefix_of(rows, number, headings)
            texts.append(prefix + text[start:end])
            spans.append((start, end))
            before.append(len(prefix))
    counts = np.array([len(pieces.spans) for pieces in found], np.int64)
    document = np.repeat(np.arange(len(found)), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    hashes = np.frombuffer(b"".join(row_hashes(rows.texts)), np.uint8).reshape(-1, 16)
    columns = [
        np.arange(len(document)) - first,
        np.repeat(counts, counts),
        *np.array(spans, np.int64).reshape(-1, 2).T,
        [bytes(one) for one in hashes[document]],
        before,
    ]
    table = pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, TABLE, strict=True)], schema=TABLE
    )
    cut = replace(_of_documents(rows, document), texts=texts, prefixes=None, pieces=table)
    return _with_own_text(cut, text_column)


def cut_texts(rows: UnitRows, cutter: "Cutter") -> "list[Pieces]":
    """The pieces of a unit's documents. Raises OptionError naming one whose prefix leaves no room
    for a piece.
    """
    found = []
    for number, pieces in enumerate(cut_where_possible(rows, cutter)):
        if isinstance(pieces, OptionError):
            name = f"document {rows.ids[number]} of {rows.file_of(number)}"
            raise OptionError(f"{name}: {pieces} (--chunk-prefix)")
        found.append(pieces)
    return found


def cut_where_possible(rows: UnitRows, cutter: "Cutter") -> "Sequence[Pieces | OptionError]":
    """The pieces of each document, or the error of one whose prefix leaves no room for a piece."""
    prefix = (
        None
        if rows.prefixes is None
        else lambda number, headings: prefix_of(rows, number, headings)
    )
    try:
        return cutter.cut(rows.texts, prefix)
    except OptionError:  # of one of them, or of several
        return [_pieces_or_error(rows, number, cutter) for number in range(len(rows.texts))]


def _pieces_or_error(rows: UnitRows, number: int, cutter: "Cutter") -> "Pieces | OptionError":
    try:
        return cutter.cut(
            [rows.texts[number]], lambda _, headings: prefix_of(rows, number, headings)
        )[0]
    except OptionError as error:
        return error


def prefix_of(rows: UnitRows, number: int, headings: str) -> str:
    """What stands before a piece of a document that has these headings above it."""
    return headings.join(rows.prefixes[number]) if rows.prefixes is not None else ""


def _of_documents(rows: UnitRows, document: np.ndarray) -> UnitRows:
    """The documents' ids, places and kept values, for every piece of them."""
    places = document.tolist()
    return replace(
        rows,
        ids=[rows.ids[i] for i in places],
        positions=[rows.positions[i] for i in places],
        kept=rows.kept.take(pa.array(document)) if rows.kept is not None else None,
        files=[rows.files[i] for i in places] if rows.files is not None else None,
    )


def _with_own_text(rows: UnitRows, text_column: str | None) -> UnitRows:
    if text_column is None or rows.kept is None or text_column not in rows.kept.column_names:
        return rows
    place = rows.kept.column_names.index(text_column)
    kind = rows.kept.schema.field(place).type
    texts = pa.array(own_texts(rows), pa.string()).cast(kind)
    return replace(rows, kept=rows.kept.set_column(place, text_column, texts))


def own_texts(rows: UnitRows) -> list[str]:
    """The rows' texts; of pieces without what stands before them."""
    if rows.pieces is None:
        return rows.texts
    return [
        text[n:]
        for text, n in zip(rows.texts, rows.pieces.column("before").to_pylist(), strict=True)
    ]


def split(rows: UnitRows, unit_tokens: int) -> Iterator[UnitRows]:
    """The pieces in units of about `unit_tokens`: one document may have more of them than a unit
    should hold.

    A unit that ends inside a document ends, in its file, where that begins. The rejected rows are
    in the last one, and so is the whole range of a group.
    """
    ends = np.cumsum([estimated_tokens(len(text.encode()), 1) for text in rows.texts])
    if not len(ends) or ends[-1] <= 2 * MOST * unit_tokens:
        yield rows
        return
    start, place = 0, rows.start
    while start < len(ends):
        stop = int(
            np.searchsorted(ends, unit_tokens + (ends[start - 1] if start else 0), side="right")
        )
        stop = max(stop, start + 1)
        is_last = stop == len(ends)
        end = rows.stop if is_last else place if rows.sources else rows.positions[stop]
        part = taken(rows, np.arange(start, stop))
        yield replace(part, start=place, stop=end, rejects=rows.rejects if is_last else [])
        start, place = stop, end or 0


def taken(rows: UnitRows, places: np.ndarray) -> UnitRows:
    """The given rows only."""
    which = places.tolist()
    return replace(
        rows,
        ids=[rows.ids[i] for i in which],
        texts=[rows.texts[i] for i in which],
        positions=[rows.positions[i] for i in which],
        kept=rows.kept.take(pa.array(places)) if rows.kept is not None else None,
        files=[rows.files[i] for i in which] if rows.files is not None else None,
        prefixes=[rows.prefixes[i] for i in which] if rows.prefixes is not None else None,
        pieces=rows.pieces.take(pa.array(places)) if rows.pieces is not None else None,
    )


def numbered(units: Iterator[UnitRows], name: str) -> Iterator[UnitRows]:
    """The units of a span by its `name`, with `.0`, `.1`, ... where there are several."""
    number, previous = 0, next(units, None)
    for unit in units:
        if previous is not None:
            yield replace(previous, name=f"{name}.{number}")
        previous, number = unit, number + 1
    if previous is not None:
        yield replace(previous, name=f"{name}.{number}" if number else name)


def piece_sums(pieces: pa.Table) -> tuple[int, int]:
    """Sums of hashes, below 2**64: over the pieces there are, and over those that documents which
    begin here must have.

    Over all units of a snapshot the two are equal, where every document's pieces 0 to n - 1 are
    there, once each.
    """
    hashes = as_hashes(pieces.column("doc_hash"))
    piece, count = (
        pieces.column(name).to_numpy().astype(np.uint64) for name in ("piece", "pieces")
    )
    document = _mixed(hash_prefixes(hashes) ^ hash_prefixes(hashes[:, 8:]) + count * _STEP)
    first = piece == 0
    wanted = count[first].astype(np.int64)
    each = np.arange(wanted.sum()) - np.repeat(np.cumsum(wanted) - wanted, wanted)
    return _summed(document, piece), _summed(
        np.repeat(document[first], wanted), each.astype(np.uint64)
    )


def _summed(document: np.ndarray, piece: np.ndarray) -> int:
    return int(_mixed(document + (piece + np.uint64(1)) * _STEP).sum(dtype=np.uint64))


def _mixed(values: np.ndarray) -> np.ndarray:
    values = (values ^ (values >> np.uint64(30))) * _MIX[0]
    values = (values ^ (values >> np.uint64(27))) * _MIX[1]
    return values ^ (values >> np.uint64(31))
