"""Pack rows for their buckets as Arrow IPC, with every distinct text once, and unpack them."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.arrow_arrays import as_hashes, read_stream, write_stream
from sentence_beam.transforms.corpus.buckets import BUCKETS_PER_GROUP, Buckets, find_buckets
from sentence_beam.transforms.corpus.rows import Rejected, UnitRows
from sentence_beam.transforms.corpus.waiting import WaitingRows
from sentence_beam.transforms.space import row_hash, row_hashes

HELD_BYTES = 64 << 20  # of rows in memory before they are packed or written to disk
SPILLED_PARTS = 128
KEPT = "kept:"  # prefix of the names of kept columns, so that they differ from ours
PIECE = "piece:"  # prefix of the names of columns about pieces of documents


@dataclass(frozen=True)
class PackedRows:
    """Packed rows of one group of buckets.

    `counts` are the rows of each bucket; the pieces of a document count as one row in all.
    `read_ms` is the time to read the rows.
    """

    counts: tuple[float, ...]
    data: bytes
    read_ms: float = 0.0


@dataclass
class Packer:
    """Collects rows as they are read, and packs them into one block for each group of buckets.

    If there are so many groups that blocks would have only a few rows, rows wait on disk for more.
    `read_ms` is the time spent on reading them.
    """

    buckets: Buckets
    tables: list[pa.Table] = field(default_factory=list)
    size: int = 0
    read_ms: float = 0.0
    spill: WaitingRows | None = None

    def add(self, rows: UnitRows) -> None:
        """Add rows of a file, the rejected ones too."""
        if rows.read:
            self.tables.append(_make_table(rows))
            self.size += self.tables[-1].nbytes

    def relieve(self) -> Iterator[tuple[int, PackedRows]]:
        """If too many rows are in memory, yield blocks; write them to disk if blocks are small."""
        if self.size <= HELD_BYTES:
            return
        rows = sum(map(len, self.tables)) + (self.spill.rows if self.spill else 0)
        # twice, because the last blocks may be small
        if rows >= 2 * self.buckets.block_rows * self.buckets.groups:
            yield from self.flush()
        else:
            self._write_down()

    def flush(self) -> Iterator[tuple[int, PackedRows]]:
        """Yield (group, packed rows) for the collected rows, and forget them."""
        tables: Iterator[pa.Table] = iter(())
        rows = sum(map(len, self.tables))
        if self.spill is not None:
            self._write_down()
            tables = (sort_by_hash(table) for _, table in self.spill.read() if table is not None)
            rows = self.spill.rows
        elif self.tables:
            tables = iter([self._sort_tables()])
        read_ms = self.read_ms
        self.read_ms = 0.0
        self.tables = []
        self.size = 0
        self.spill = None
        for table in tables:
            yield from _make_blocks(table, self.buckets, read_ms / rows)

    def _sort_tables(self) -> pa.Table:
        return sort_by_hash(pa.concat_tables(self.tables))

    def _write_down(self) -> None:
        """Move the rows in memory to disk."""
        if not self.tables:
            return
        parts = min(self.buckets.groups, SPILLED_PARTS)
        self.spill = self.spill or WaitingRows(parts)
        table = self._sort_tables()
        bucket = find_buckets(as_hashes(table.column("hash")), self.buckets.bits)
        group = bucket // self.buckets.per_group
        self.spill.add(table, group * parts // self.buckets.groups)
        self.tables = []
        self.size = 0


def sort_by_hash(table: pa.Table) -> pa.Table:
    """Sort the rows by their hash, in one chunk."""
    table = table.combine_chunks()
    return table.take(pc.sort_indices(table, sort_keys=[("hash", "ascending")]))


def _make_blocks(
    table: pa.Table, buckets: Buckets, read_ms: float
) -> Iterator[tuple[int, PackedRows]]:
    """Yield (group, packed rows) for rows sorted by hash; reading one took `read_ms`."""
    table = _encode_texts(table)
    bucket = find_buckets(as_hashes(table.column("hash")), buckets.bits)
    per_group = buckets.per_group
    parts = _find_shares(table)
    groups, starts = np.unique(bucket // per_group, return_index=True)
    for group, start, stop in zip(groups, starts, [*starts[1:], len(table)], strict=True):
        weights = parts[start:stop] if parts is not None else None
        counts = np.bincount(bucket[start:stop] - group * per_group, weights, per_group)
        data = pack(table.slice(start, stop - start))
        yield int(group), PackedRows(tuple(counts.tolist()), data, read_ms * float(stop - start))


def _find_shares(table: pa.Table) -> np.ndarray | None:
    """Return each row's share of its document, float64 [n]; None if rows are whole documents."""
    if f"{PIECE}pieces" not in table.column_names:
        return None
    return 1.0 / pc.fill_null(table.column(f"{PIECE}pieces"), 1).to_numpy()


def _make_table(rows: UnitRows) -> pa.Table:
    """Return the table of a unit's rows with their hashes.

    That of a rejected row is over id, reason and excerpt.
    """
    hashes = row_hashes(rows.texts)
    hashes += [row_hash(json.dumps([r.id, r.reason, r.excerpt])) for r in rows.rejects]
    return tabulate_rows(rows).add_column(0, "hash", pa.array(hashes, pa.binary(16)))


def tabulate_rows(rows: UnitRows) -> pa.Table:
    """Return the good rows as a table, then the rejected ones, with the excerpt as text."""
    bad = rows.rejects
    texts = [*rows.texts, *(r.excerpt for r in bad)]
    files = [*map(rows.find_file, range(len(rows.texts))), *(r.file for r in bad)]
    columns = {
        "id": pa.array([*rows.ids, *(r.id for r in bad)], pa.string()),
        "text": pa.array(texts, pa.large_string()),
        "file": pa.array(files, pa.string()),
        "row": pa.array([*rows.positions, *(r.row for r in bad)], pa.int64()),
        "reason": pa.array([None] * len(rows.texts) + [r.reason for r in bad], pa.string()),
    }
    for prefix, table in ((KEPT, rows.kept), (PIECE, rows.pieces)):
        if table is None:
            continue
        for name, column in zip(table.column_names, table.columns, strict=True):
            nulls = pa.nulls(len(bad), column.type)
            columns[prefix + name] = pa.chunked_array([*column.chunks, nulls], column.type)
    return pa.table(columns)


def _encode_texts(table: pa.Table) -> pa.Table:
    """Replace the texts of a table, sorted by hash, by a dictionary in that order."""
    hashes = as_hashes(table.column("hash"))
    new = np.ones(len(table), bool)
    new[1:] = (hashes[1:] != hashes[:-1]).any(axis=1)
    texts = table.column("text").combine_chunks().take(pa.array(np.flatnonzero(new)))
    return _set_texts(table, np.cumsum(new) - 1, texts)


def _set_texts(table: pa.Table, places: np.ndarray, texts: pa.Array) -> pa.Table:
    column = pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32)), texts)
    return table.set_column(table.column_names.index("text"), "text", column)


def pack(table: pa.Table) -> bytes:
    """Pack rows sorted by hash as Arrow IPC, with the texts of these rows only."""
    text = table.column("text").combine_chunks()
    used, places = np.unique(text.indices.to_numpy(), return_inverse=True)
    table = _set_texts(table, places, text.dictionary.take(pa.array(used)))
    return write_stream(table)


def unpack(blocks: Iterable[bytes]) -> pa.Table | None:
    """Unpack the rows of blocks, sorted by hash, id and kept values; None without a block."""
    tables = list(map(read_stream, blocks))
    if not tables:
        return None
    return _sort_rows(pa.concat_tables(tables).unify_dictionaries().combine_chunks())


def _sort_rows(table: pa.Table) -> pa.Table:
    """Sort the rows by hash, id and kept values."""
    keys = [("hash", "ascending"), ("id", "ascending")]
    return _sort_ties(table.take(pc.sort_indices(table, sort_keys=keys)))


def _sort_ties(table: pa.Table) -> pa.Table:
    """Sort rows of the same hash and id by their stored values, not by their order in the input."""
    stored = [name for name in table.column_names if name.startswith((KEPT, PIECE))]
    if not stored or len(table) < 2:
        return table
    ids = table.column("id").combine_chunks()
    hashes = as_hashes(table.column("hash"))
    same = (hashes[1:] == hashes[:-1]).all(axis=1)
    same &= pc.fill_null(pc.equal(ids[1:], ids[:-1]), False).to_numpy(zero_copy_only=False)
    tied = np.flatnonzero(same)
    if not len(tied):
        return table
    order = np.arange(len(table))
    for run in np.split(tied, np.flatnonzero(np.diff(tied) > 1) + 1):
        start = run[0]
        stop = run[-1] + 2
        values = [repr(row) for row in table.slice(start, stop - start).select(stored).to_pylist()]
        order[start:stop] = start + np.array(sorted(range(stop - start), key=values.__getitem__))
    return table.take(pa.array(order))


def slice_group(
    packed: list[bytes], buckets: Buckets, group: int
) -> Iterator[tuple[int, pa.Table | None]]:
    """Yield (bucket, its rows) for every bucket of a group, from the group's blocks.

    The rows of a large group wait on disk; those of eight buckets are in memory at a time.
    """
    first = group * buckets.per_group
    if buckets.per_group <= BUCKETS_PER_GROUP:
        yield from _slice_buckets(unpack(packed), buckets, range(first, first + buckets.per_group))
        return
    spill = WaitingRows(buckets.per_group // BUCKETS_PER_GROUP)
    for data in packed:
        table = read_stream(data)
        table = table.set_column(
            table.column_names.index("text"), "text", table.column("text").cast(pa.large_string())
        )
        bucket = find_buckets(as_hashes(table.column("hash")), buckets.bits)
        spill.add(table, (bucket - first) // BUCKETS_PER_GROUP)
    for part, rows in spill.read():
        if rows is not None:
            rows = _encode_texts(_sort_rows(rows.combine_chunks()))
        start = first + part * BUCKETS_PER_GROUP
        yield from _slice_buckets(rows, buckets, range(start, start + BUCKETS_PER_GROUP))


def _slice_buckets(
    table: pa.Table | None, buckets: Buckets, numbers: range
) -> Iterator[tuple[int, pa.Table | None]]:
    """Yield (bucket, its rows) for each of these buckets, from their rows sorted by hash."""
    if table is None:
        yield from ((number, None) for number in numbers)
        return
    bucket = find_buckets(as_hashes(table.column("hash")), buckets.bits)
    starts = np.searchsorted(bucket, numbers, "left")
    stops = np.searchsorted(bucket, numbers, "right")
    for number, start, stop in zip(numbers, starts, stops, strict=True):
        yield number, table.slice(start, stop - start)


def make_bucket_unit(name: str, bucket: int, table: pa.Table | None) -> UnitRows:
    """Return the rows of a bucket, or of a part of one, as a unit."""
    unit = UnitRows(name, None, bucket, bucket + 1, [], [], [], None, [])
    if table is None or not len(table):
        return unit
    good = table.filter(pc.is_null(table.column("reason")))
    text = good.column("text").combine_chunks()
    used = pc.unique(text.indices)
    values = dict(zip(used.to_pylist(), text.dictionary.take(used).to_pylist(), strict=True))
    texts = [values[place] for place in text.indices.to_pylist()]
    return replace(fill_unit(unit, table, texts), files=good.column("file").to_pylist())


def fill_unit(unit: UnitRows, table: pa.Table, texts: list[str]) -> UnitRows:
    """Return the unit with the rows of a table that `tabulate_rows` made.

    `texts` are those of the good rows.
    """
    good = table.filter(pc.is_null(table.column("reason")))
    return replace(
        unit,
        ids=good.column("id").to_pylist(),
        texts=texts,
        positions=good.column("row").to_pylist(),
        kept=_select_prefixed(good, KEPT),
        rejects=_read_rejects(table.filter(pc.is_valid(table.column("reason")))),
        pieces=_select_prefixed(good, PIECE),
    )


def _select_prefixed(table: pa.Table, prefix: str) -> pa.Table | None:
    """Return the columns whose names have a prefix, without it; None if there are none."""
    names = [name for name in table.column_names if name.startswith(prefix)]
    if not names:
        return None
    return table.select(names).rename_columns([name.removeprefix(prefix) for name in names])


def _read_rejects(table: pa.Table) -> list[Rejected]:
    columns = [table.column(name).to_pylist() for name in ("id", "row", "reason", "text", "file")]
    return [Rejected(*values) for values in zip(*columns, strict=True)]
