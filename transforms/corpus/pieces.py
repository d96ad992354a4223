"""Turn documents into rows of pieces, and compute sums that show whether all pieces exist."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base.arrow_arrays import as_hashes, get_hash_prefixes
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.gather import list_places
from sentence_beam.transforms.corpus.rows import MOST, UnitRows
from sentence_beam.transforms.corpus.spans import estimate_tokens
from sentence_beam.transforms.space import row_hashes

if TYPE_CHECKING:
    from sentence_beam.transforms.corpus.chunks.cut import Cutter, Pieces

# A piece's number in its document, the number of all its pieces, its characters, and the hash of
# the whole document.
PIECES = pa.schema(
    [
        ("piece", pa.int32()),
        ("pieces", pa.int32()),
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("doc_hash", pa.binary(16)),
    ]
)
# Characters of the prefix before the piece in the model's input; not stored in shards.
BEFORE = pa.field("before", pa.int32())
TABLE = PIECES.append(BEFORE)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
Item = TypeVar("Item")


def as_pieces(rows: UnitRows, cuts: "list[Pieces]", text_column: str | None) -> UnitRows:
    """Return the pieces of a unit's documents, a row each; a kept text column holds the piece."""
    texts: list[str] = []
    spans: list[tuple[int, int]] = []
    before: list[int] = []
    for number, (text, pieces) in enumerate(zip(rows.texts, cuts, strict=True)):
        for (start, end), headings in zip(pieces.spans, pieces.headings, strict=True):
            prefix = make_prefix(rows, number, headings)
            texts.append(prefix + text[start:end])
            spans.append((start, end))
            before.append(len(prefix))
    counts = np.array([len(pieces.spans) for pieces in cuts], np.int64)
    document = np.repeat(np.arange(len(cuts)), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    hashes = np.frombuffer(b"".join(row_hashes(rows.texts)), np.uint8).reshape(-1, 16)
    columns = [
        np.arange(len(document)) - first,
        np.repeat(counts, counts),
        *np.array(spans, np.int64).reshape(-1, 2).T,
        [bytes(piece_hash) for piece_hash in hashes[document]],
        before,
    ]
    table = pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, TABLE, strict=True)], schema=TABLE
    )
    cut = replace(take_rows(rows, document), texts=texts, prefixes=None, pieces=table)
    return _replace_kept_text(cut, text_column)


def cut_texts(rows: UnitRows, cutter: "Cutter") -> "list[Pieces]":
    """Cut a unit's documents. Raises OptionError if a prefix leaves no room for pieces."""
    pieces_of_documents = []
    for number, pieces in enumerate(cut_where_possible(rows, cutter)):
        if isinstance(pieces, OptionError):
            name = f"document {rows.ids[number]} of {rows.find_file(number)}"
            raise OptionError(f"{name}: {pieces} ({cite('chunk_prefix')})")
        pieces_of_documents.append(pieces)
    return pieces_of_documents


def cut_where_possible(rows: UnitRows, cutter: "Cutter") -> "Sequence[Pieces | OptionError]":
    """Cut each document; the result of one whose prefix leaves no room for pieces is the error."""
    prefix = partial(make_prefix, rows) if rows.prefixes is not None else None
    try:
        return cutter.cut(rows.texts, prefix)
    except OptionError:  # one document or several have no room
        return [_cut_one(rows, number, cutter) for number in range(len(rows.texts))]


def _cut_one(rows: UnitRows, number: int, cutter: "Cutter") -> "Pieces | OptionError":
    try:
        return cutter.cut(
            [rows.texts[number]], lambda _, headings: make_prefix(rows, number, headings)
        )[0]
    except OptionError as error:
        return error


def make_prefix(rows: UnitRows, number: int, headings: str) -> str:
    """Return the prefix of a document's piece below these headings."""
    return headings.join(rows.prefixes[number]) if rows.prefixes is not None else ""


def _replace_kept_text(rows: UnitRows, text_column: str | None) -> UnitRows:
    if text_column is None or rows.kept is None or text_column not in rows.kept.column_names:
        return rows
    place = rows.kept.column_names.index(text_column)
    kind = rows.kept.schema.field(place).type
    texts = pa.array(find_own_texts(rows), pa.string()).cast(kind)
    return replace(rows, kept=rows.kept.set_column(place, text_column, texts))


def find_own_texts(rows: UnitRows) -> list[str]:
    """Return the rows' texts; those of pieces without their prefixes."""
    if rows.pieces is None:
        return rows.texts
    return [
        text[n:]
        for text, n in zip(rows.texts, rows.pieces.column("before").to_pylist(), strict=True)
    ]


def split(rows: UnitRows, unit_tokens: int) -> Iterator[UnitRows]:
    """Split pieces into units of about `unit_tokens`; a document may fill more than one.

    In the file, a unit that ends inside a document ends at the document's beginning. The last unit
    has the rejected rows, and the whole range of a group.
    """
    ends = np.cumsum([estimate_tokens(len(text.encode()), 1) for text in rows.texts])
    if not len(ends) or ends[-1] <= 2 * MOST * unit_tokens:
        yield rows
        return
    start = 0
    tokens_before = 0
    place = rows.start
    while start < len(ends):
        stop = int(np.searchsorted(ends, unit_tokens + tokens_before, side="right"))
        stop = max(stop, start + 1)
        part = take_rows(rows, np.arange(start, stop))
        if stop == len(ends):
            yield replace(part, start=place, stop=rows.stop)
            return
        end = rows.positions[stop] if not rows.sources else place
        yield replace(part, start=place, stop=end, rejects=[])
        start = stop
        tokens_before = ends[stop - 1]
        place = end


def take_rows(rows: UnitRows, places: np.ndarray) -> UnitRows:
    """Return the rows at these places, int64 [n]."""
    which = places.tolist()
    return replace(
        rows,
        ids=[rows.ids[i] for i in which],
        texts=[rows.texts[i] for i in which],
        positions=[rows.positions[i] for i in which],
        kept=_take_rows(rows.kept, places),
        files=_take(rows.files, which),
        prefixes=_take(rows.prefixes, which),
        pieces=_take_rows(rows.pieces, places),
    )


def _take(values: list[Item] | None, places: list[int]) -> list[Item] | None:
    return [values[i] for i in places] if values is not None else None


def _take_rows(table: pa.Table | None, places: np.ndarray) -> pa.Table | None:
    return table.take(pa.array(places)) if table is not None else None


def number_units(units: Iterator[UnitRows], name: str) -> Iterator[UnitRows]:
    """Yield the units of a span by its `name`, with `.0`, `.1`, ... if there are several."""
    number = 0
    previous = next(units, None)
    for unit in units:
        if previous is not None:
            yield replace(previous, name=f"{name}.{number}")
        previous = unit
        number += 1
    if previous is not None:
        last_name = f"{name}.{number}" if number else name
        yield replace(previous, name=last_name)


def sum_pieces(pieces: pa.Table) -> tuple[int, int]:
    """Return sums of hashes, below 2**64: over the existing pieces, and over the required ones.

    Required are all pieces of the documents that begin here. Over all units of a snapshot the two
    sums are equal if every document has its pieces 0 to n - 1, once each.
    """
    hashes = as_hashes(pieces.column("doc_hash"))
    piece, count = (
        pieces.column(name).to_numpy().astype(np.uint64) for name in ("piece", "pieces")
    )
    document = _mix_bits(
        get_hash_prefixes(hashes) ^ get_hash_prefixes(hashes[:, 8:]) + count * _STEP
    )
    first = piece == 0
    required = count[first].astype(np.int64)
    each = list_places(np.zeros(len(required), np.int64), required)
    existing_sum = _sum_hashes(document, piece)
    required_sum = _sum_hashes(np.repeat(document[first], required), each.astype(np.uint64))
    return existing_sum, required_sum


def _sum_hashes(document: np.ndarray, piece: np.ndarray) -> int:
    return int(_mix_bits(document + (piece + np.uint64(1)) * _STEP).sum(dtype=np.uint64))


def _mix_bits(values: np.ndarray) -> np.ndarray:
    values = (values ^ (values >> np.uint64(30))) * _MIX[0]
    values = (values ^ (values >> np.uint64(27))) * _MIX[1]
    return values ^ (values >> np.uint64(31))
