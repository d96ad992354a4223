"""Cut heavy buckets, in which many rows have the same text, into the pieces that share them."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow_arrays import as_hashes, read_stream
from sentence_beam.transforms.corpus.blocks import HELD_BYTES, SPILLED_PARTS, pack
from sentence_beam.transforms.corpus.buckets import Buckets, find_buckets, find_piece
from sentence_beam.transforms.corpus.waiting import WaitingRows

PIECE = "number of the piece"  # a column while rows wait


def cut(
    packed: Iterable[bytes], buckets: Buckets, heavy: dict[int, int]
) -> Iterator[tuple[int, int, bytes]]:
    """Yield (bucket, piece, block) for the rows in heavy buckets; `heavy` has their pieces.

    A piece gets one block of all its rows, since most given blocks have few rows for each of many
    pieces. Rows wait on disk if they do not fit in memory.
    """
    pieces = [(bucket, k) for bucket, count in heavy.items() for k in range(count)]
    parts = min(len(pieces), SPILLED_PARTS)
    held: list[pa.Table] = []
    size = 0
    spill = None
    for data in packed:
        held.append(_take_heavy_rows(data, buckets, heavy))
        size += held[-1].nbytes
        if size > HELD_BYTES:
            spill = spill or WaitingRows(parts)
            _write_down(held, spill, parts, len(pieces))
            held = []
            size = 0
    tables: Iterator[pa.Table] = iter(())
    if spill is not None:
        _write_down(held, spill, parts, len(pieces))
        tables = (table for _, table in spill.read() if table is not None)
    elif held:
        tables = iter([pa.concat_tables(held)])
    for table in tables:
        for number, rows in _split_pieces(table):
            yield *pieces[number], pack(rows.drop_columns([PIECE]))


def drop_heavy(data: bytes, buckets: Buckets, heavy: Iterable[int]) -> bytes:
    """The block without the rows of heavy buckets."""
    table = read_stream(data)
    light = ~np.isin(find_buckets(as_hashes(table.column("hash")), buckets.bits), list(heavy))
    return pack(table.take(pa.array(np.flatnonzero(light))))


def _take_heavy_rows(data: bytes, buckets: Buckets, heavy: dict[int, int]) -> pa.Table:
    """The rows of a block in heavy buckets, only with their texts, and the number of their piece.

    Pieces are numbered through all heavy buckets.
    """
    table = read_stream(data)
    bucket = find_buckets(as_hashes(table.column("hash")), buckets.bits)
    places = np.flatnonzero(np.isin(bucket, list(heavy)))
    table = read_stream(pack(table.take(pa.array(places))))
    bucket = bucket[places]
    firsts = dict(zip(heavy, np.cumsum([0, *heavy.values()]).tolist(), strict=False))
    pairs = zip(_name_rows(table), bucket.tolist(), strict=True)
    numbers = [firsts[own] + find_piece(name, heavy[own]) for name, own in pairs]
    return table.append_column(PIECE, pa.array(numbers, pa.int64()))


def _write_down(held: list[pa.Table], spill: WaitingRows, parts: int, pieces: int) -> None:
    """Move rows to disk, those of neighbouring pieces together.

    Each part has only the texts of its rows.
    """
    if not held:
        return
    table = pa.concat_tables(held)
    part = table.column(PIECE).to_numpy() * parts // pieces
    for number in np.unique(part):
        rows = table.take(pa.array(np.flatnonzero(part == number)))
        spill.add(read_stream(pack(rows)), np.full(len(rows), number))


def _split_pieces(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield (number, rows) of each piece with rows."""
    table = table.unify_dictionaries().combine_chunks()
    table = table.take(pc.sort_indices(table, sort_keys=[(PIECE, "ascending")]))
    numbers, starts = np.unique(table.column(PIECE).to_numpy(), return_index=True)
    for number, start, stop in zip(
        numbers.tolist(), starts, [*starts[1:], len(table)], strict=True
    ):
        yield number, table.slice(start, stop - start)


def _name_rows(table: pa.Table) -> Iterator[str]:
    """Yield the id of each row, or its file and row if it has none."""
    columns = (table.column(name).to_pylist() for name in ("id", "file", "row"))
    for row_id, file, row in zip(*columns, strict=True):
        yield f"{file}#{row}" if row_id is None else row_id
