"""Rows on their way to their bucket, packed as Arrow IPC with every distinct text once."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.base.arrow import as_hashes
from transforms.corpus.buckets import BUCKETS_PER_GROUP, Buckets, buckets_of
from transforms.corpus.pieces import TABLE
from transforms.corpus.rows import Rejected, UnitRows
from transforms.corpus.waiting import WaitingRows
from transforms.space import row_hash, row_hashes

HELD_BYTES = 64 << 20  # of rows in memory before they are packed, or wait on disk
SPILLED_PARTS = 128
KEPT = "kept:"  # before the name of a kept column, so that it cannot be one of ours
PIECE = "piece:"  # before the name of a column about pieces of documents
# A third less than lz4 on the way, for 4 core-hours a terabyte.
COMPRESSION = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1))


@dataclass(frozen=True)
class PackedRows:
    """Packed rows of one group of buckets; `counts` are the rows of each bucket, `read_ms` the time
    to read them.

    Pieces of documents count as parts of one: a document is one row in all.
    """

    counts: tuple[float, ...]
    data: bytes
    read_ms: float = 0.0


@dataclass
class Packer:
    """Rows, collected as they are read and returned as one packed block for each group of buckets.

    Where the groups are so many that their blocks would be of a few rows, rows wait on disk for
    more. `read_ms` is the time that reading them took.
    """

    buckets: Buckets
    tables: list[pa.Table] = field(default_factory=list)
    size: int = 0
    read_ms: float = 0.0
    spill: WaitingRows | None = None

    def add(self, rows: UnitRows) -> None:
        """Add rows of a file, the rejected ones too."""
        if rows.read:
            self.tables.append(_table(rows))
            self.size += self.tables[-1].nbytes

    def relieve(self) -> Iterator[tuple[int, PackedRows]]:
        """Where more rows are in memory than may be: their blocks if these are large enough, else
        none, for now.
        """
        if self.size <= HELD_BYTES:
            return
        waiting = sum(map(len, self.tables)) + (self.spill.rows if self.spill else 0)
        if (
            waiting >= 2 * self.buckets.block_rows * self.buckets.groups
        ):  # what is left for the last blocks may be little
            yield from self.flush()
        else:
            self._write_down()

    def flush(self) -> Iterator[tuple[int, PackedRows]]:
        """(group, packed rows) for the rows collected so far, which are then forgotten."""
        if self.spill is None:
            tables = iter([self._sorted()] if self.tables else [])
        else:
            self._write_down()
            tables = (by_hash(table) for _, table in self.spill.read() if table is not None)
        rows = self.spill.rows if self.spill else sum(map(len, self.tables))
        read_ms, self.read_ms = self.read_ms, 0.0
        self.tables, self.size, self.spill = [], 0, None
        for table in tables:
            yield from _blocks(table, self.buckets, read_ms / rows)

    def _sorted(self) -> pa.Table:
        return by_hash(pa.concat_tables(self.tables))

    def _write_down(self) -> None:
        """Move what is in memory to disk."""
        if not self.tables:
            return
        parts = min(self.buckets.groups, SPILLED_PARTS)
        self.spill = self.spill or WaitingRows(parts)
        table = self._sorted()
        group = (
            buckets_of(as_hashes(table.column("hash")), self.buckets.bits) // self.buckets.per_group
        )
        self.spill.add(table, group * parts // self.buckets.groups)
        self.tables, self.size = [], 0


def by_hash(table: pa.Table) -> pa.Table:
    """The rows in order of their hash, in one chunk."""
    table = table.combine_chunks()
    return table.take(pc.sort_indices(table, sort_keys=[("hash", "ascending")]))


def _blocks(table: pa.Table, buckets: Buckets, read_ms: float) -> Iterator[tuple[int, PackedRows]]:
    """(group, packed rows) for rows in order of their hash; `read_ms` is the time that reading one
    of them took.
    """
    table = _texts_once(table)
    bucket, per_group = buckets_of(as_hashes(table.column("hash")), buckets.bits), buckets.per_group
    parts = _parts(table)
    groups, starts = np.unique(bucket // per_group, return_index=True)
    for group, start, stop in zip(groups, starts, [*starts[1:], len(table)], strict=True):
        here = slice(start, stop)
        counts = np.bincount(
            bucket[here] - group * per_group, None if parts is None else parts[here], per_group
        )
        data = pack(table.slice(start, stop - start))
        yield int(group), PackedRows(tuple(counts.tolist()), data, read_ms * float(stop - start))


def _parts(table: pa.Table) -> np.ndarray | None:
    """The part of a document that each row is, float64 [n]; None where rows are whole."""
    if f"{PIECE}pieces" not in table.column_names:
        return None
    return 1.0 / pc.fill_null(table.column(f"{PIECE}pieces"), 1).to_numpy()


def _table(rows: UnitRows) -> pa.Table:
    """The good rows as a table, then the rejected ones, with their excerpt as text and a hash of
    all that is known.
    """
    bad, texts = rows.rejects, [*rows.texts, *(r.excerpt for r in rows.rejects)]
    hashes = row_hashes(rows.texts) + [
        row_hash(json.dumps([r.id, r.reason, r.excerpt])) for r in bad
    ]
    columns = {
        "hash": pa.array(hashes, pa.binary(16)),
        "id": pa.array([*rows.ids, *(r.id for r in bad)], pa.string()),
        "text": pa.array(texts, pa.large_string()),
        "file": pa.array(
            [*map(rows.file_of, range(len(rows.texts))), *(r.file for r in bad)], pa.string()
        ),
        "row": pa.array([*rows.positions, *(r.row for r in bad)], pa.int64()),
        "reason": pa.array([None] * len(rows.texts) + [r.reason for r in bad], pa.string()),
    }
    for name, column in (
        zip(rows.kept.column_names, rows.kept.columns, strict=True) if rows.kept is not None else ()
    ):
        columns[KEPT + name] = pa.chunked_array(
            [*column.chunks, pa.nulls(len(bad), column.type)], column.type
        )
    for name, column in (
        zip(TABLE.names, rows.pieces.columns, strict=True) if rows.pieces is not None else ()
    ):
        columns[PIECE + name] = pa.chunked_array(
            [*column.chunks, pa.nulls(len(bad), column.type)], column.type
        )
    return pa.table(columns)


def _texts_once(table: pa.Table) -> pa.Table:
    """The table, sorted by hash, with its texts as a dictionary in that order."""
    hashes = as_hashes(table.column("hash"))
    new = np.ones(len(table), bool)
    new[1:] = (hashes[1:] != hashes[:-1]).any(axis=1)
    texts = table.column("text").combine_chunks().take(pa.array(np.flatnonzero(new)))
    return _with_texts(table, np.cumsum(new) - 1, texts)


def _with_texts(table: pa.Table, places: np.ndarray, texts: pa.Array) -> pa.Table:
    column = pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32)), texts)
    return table.set_column(table.column_names.index("text"), "text", column)


def pack(table: pa.Table) -> bytes:
    """Rows sorted by hash as Arrow IPC, with the texts of these rows only."""
    text = table.column("text").combine_chunks()
    used, places = np.unique(text.indices.to_numpy(), return_inverse=True)
    table = _with_texts(table, places, text.dictionary.take(pa.array(used)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=COMPRESSION) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def unpack(blocks: Iterable[bytes]) -> pa.Table | None:
    """The rows of blocks, in order of hash, id and kept values; None where there is none."""
    tables = [pa.ipc.open_stream(data).read_all() for data in blocks]
    if not tables:
        return None
    return _in_order(pa.concat_tables(tables).unify_dictionaries().combine_chunks())


def _in_order(table: pa.Table) -> pa.Table:
    """The rows in order of hash, id and kept values."""
    return _ties_ordered(
        table.take(pc.sort_indices(table, sort_keys=[("hash", "ascending"), ("id", "ascending")]))
    )


def _ties_ordered(table: pa.Table) -> pa.Table:
    """The rows, those of one hash and id by all else that is stored: their order in the input must
    not show.
    """
    kept = [name for name in table.column_names if name.startswith((KEPT, PIECE))]
    ids, hashes = table.column("id").combine_chunks(), as_hashes(table.column("hash"))
    if not kept or len(table) < 2:
        return table
    same = (hashes[1:] == hashes[:-1]).all(axis=1)
    same &= pc.fill_null(pc.equal(ids[1:], ids[:-1]), False).to_numpy(zero_copy_only=False)
    order, tied = np.arange(len(table)), np.flatnonzero(same)
    for run in np.split(tied, np.flatnonzero(np.diff(tied) > 1) + 1) if len(tied) else ():
        start, stop = run[0], run[-1] + 2
        values = [repr(row) for row in table.slice(start, stop - start).select(kept).to_pylist()]
        order[start:stop] = start + np.array(sorted(range(stop - start), key=values.__getitem__))
    return table.take(pa.array(order)) if len(tied) else table


def slices(
    packed: list[bytes], buckets: Buckets, group: int
) -> Iterator[tuple[int, pa.Table | None]]:
    """(bucket, its rows) for every bucket of a group, from the group's blocks.

    The rows of a large group wait on disk: those of eight buckets are in memory at a time.
    """
    first = group * buckets.per_group
    if buckets.per_group <= BUCKETS_PER_GROUP:
        yield from _slices(unpack(packed), buckets, range(first, first + buckets.per_group))
        return
    spill = WaitingRows(buckets.per_group // BUCKETS_PER_GROUP)
    for data in packed:
        table = pa.ipc.open_stream(data).read_all()
        table = table.set_column(
            table.column_names.index("text"), "text", table.column("text").cast(pa.large_string())
        )
        bucket = buckets_of(as_hashes(table.column("hash")), buckets.bits)
        spill.add(table, (bucket - first) // BUCKETS_PER_GROUP)
    for part, rows in spill.read():
        here = range(first + part * BUCKETS_PER_GROUP, first + (part + 1) * BUCKETS_PER_GROUP)
        yield from _slices(
            None if rows is None else _texts_once(_in_order(rows.combine_chunks())), buckets, here
        )


def _slices(
    table: pa.Table | None, buckets: Buckets, numbers: range
) -> Iterator[tuple[int, pa.Table | None]]:
    """(bucket, its rows) for each of these buckets, from their rows in order of hash."""
    if table is None:
        yield from ((number, None) for number in numbers)
        return
    bucket = buckets_of(as_hashes(table.column("hash")), buckets.bits)
    starts, stops = (
        np.searchsorted(bucket, numbers, "left"),
        np.searchsorted(bucket, numbers, "right"),
    )
    for number, start, stop in zip(numbers, starts, stops, strict=True):
        yield number, table.slice(start, stop - start)


def unit_rows(name: str, bucket: int, table: pa.Table | None) -> UnitRows:
    """The rows of a bucket, or of a piece of one, as a unit."""
    bounds = (bucket, bucket + 1)
    if table is None or not len(table):
        return UnitRows(name, None, *bounds, [], [], [], None, [])
    good = table.filter(pc.is_null(table.column("reason")))
    text = good.column("text").combine_chunks()
    used = pc.unique(text.indices)
    values = dict(zip(used.to_pylist(), text.dictionary.take(used).to_pylist(), strict=True))
    kept = [column for column in table.column_names if column.startswith(KEPT)]
    pieces = [column for column in table.column_names if column.startswith(PIECE)]
    return UnitRows(
        name,
        None,
        *bounds,
        ids=good.column("id").to_pylist(),
        texts=[values[place] for place in text.indices.to_pylist()],
        positions=good.column("row").to_pylist(),
        kept=good.select(kept).rename_columns([c.removeprefix(KEPT) for c in kept])
        if kept
        else None,
        rejects=_rejects(table.filter(pc.is_valid(table.column("reason")))),
        files=good.column("file").to_pylist(),
        pieces=good.select(pieces).rename_columns([c.removeprefix(PIECE) for c in pieces])
        if pieces
        else None,
    )


def _rejects(table: pa.Table) -> list[Rejected]:
    columns = [table.column(name).to_pylist() for name in ("id", "row", "reason", "text", "file")]
    return [Rejected(*values) for values in zip(*columns, strict=True)]
