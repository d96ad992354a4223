"""The rows in which two snapshots differ, listed; and ids that rows of one snapshot share.

Units that both snapshots have, byte for byte, cancel out and are not read. If the runs between the
snapshots recorded what they changed, only that is read. Duplicate ids are allowed, and counted. Ids
are compared in buckets of their 64-bit hashes, which are counted separately.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.columns import sum_column
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.corpus.buckets import split_by_bucket
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.changed_rows import (
    BLOCK,
    SnapshotShard,
    Step,
    find_changed_rows,
    find_steps,
    read_block,
    read_changes,
)
from sentence_beam.transforms.store.shards.id_hashes import hash_ids
from sentence_beam.transforms.store.tables.unit_rows import find_differing_parts

BUCKET_ROWS = 1_000_000
BUCKETS = 256  # of a comparison in one process: each is a file on its disk
LISTED_ROWS = 250_000  # of a bucket that is listed: its rows are held as Python objects
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("change", pa.string()),
        ("old_row_hash", pa.binary(16)),
        ("new_row_hash", pa.binary(16)),
    ]
)


def count_buckets(rows: int) -> int:
    """Return the number of buckets for the ids of so many rows: one a million rows."""
    return 1 + rows // BUCKET_ROWS


def count_repeated(parts: Iterable[bytes]) -> int:
    """Return the number of a bucket's rows whose id an earlier row has."""
    # np.unique takes twenty times as long
    hashes = np.sort(np.frombuffer(b"".join(parts), np.uint64))
    return int(np.count_nonzero(hashes[1:] == hashes[:-1]))


def diff(old: Manifest, new: Manifest) -> Iterator[pa.Table]:
    """Yield tables of `SCHEMA` with the ids that were added, changed or deleted.

    Each table has some of the ids, sorted. A changed id has both hashes, an added one no old and a
    deleted one no new hash.
    """
    changed = _read_recorded(old, new) or _read_shards(old, new)
    buckets = min(-(-changed.rows // LISTED_ROWS), BUCKETS)
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, f"{bucket}.arrow") for bucket in range(buckets)]
        _spill(changed.blocks, paths)
        for path in progress.count_over(paths, "comparing", "parts"):
            with pa.memory_map(path) as file:
                yield _name_changes(find_changed_rows(pa.ipc.open_file(file).read_all()))
            os.unlink(path)


@dataclass(frozen=True)
class _DiffRows:
    """Blocks of rows that one of two snapshots has, and their number at most."""

    rows: int
    blocks: Iterator[pa.Table]


def _read_recorded(old: Manifest, new: Manifest) -> _DiffRows | None:
    """Return the rows that the runs between two snapshots recorded; None if some are unknown.

    Either snapshot may be the later one.
    """
    for earlier, later, sign in ((old, new, 1), (new, old, -1)):
        steps = find_steps(earlier, later)
        if steps is not None:
            try:
                tables = list(_read_steps(steps))
            except SentenceBeamError:
                return None
            blocks = (_make_block(table, sign) for table in tables)
            return _DiffRows(2 * sum(map(len, tables)), blocks)
    return None


def _read_steps(steps: list[Step]) -> Iterator[pa.Table]:
    files = [(step.manifest.root, file) for step in steps for file in step.changes.files]
    for root, file in progress.count_over(files, "reading", "files"):
        yield read_changes(root, file).drop_columns(["shard"])


def _make_block(changed: pa.Table, sign: int) -> pa.Table:
    """Return recorded changes as the rows that were lost and that came; `sign` -1 reverses them."""
    tables = []
    for name, count in (("old_row_hash", -sign), ("new_row_hash", sign)):
        there = changed.filter(pc.is_valid(changed.column(name)))
        n = len(there)
        columns = [
            there.column("id"),
            there.column(name),
            pa.array(np.zeros(n, np.uint64)),
            pa.array(np.full(n, count)),
            pa.repeat("", n),
        ]
        tables.append(pa.table(columns, schema=BLOCK))
    return pa.concat_tables(tables)


def _read_shards(old: Manifest, new: Manifest) -> _DiffRows:
    """Return the rows of all shards that only one snapshot has."""
    before, after = find_differing_parts(new.root, old.units, new.units)
    shards = [
        SnapshotShard(unit["path"], unit["bytes"], is_new)
        for units, is_new in ((before, False), (after, True))
        for unit in units.select(["path", "bytes"]).to_pylist()
    ]

    def blocks() -> Iterator[pa.Table]:
        for shard in progress.count_over(shards, "reading", "shards"):
            yield read_block(new.root, [shard], ())

    return _DiffRows(sum_column(before, "rows") + sum_column(after, "rows"), blocks())


def _spill(blocks: Iterator[pa.Table], paths: list[str]) -> None:
    """Write every row into the file of its bucket."""
    writers = [pa.ipc.new_file(path, BLOCK) for path in paths]
    for block in blocks:
        for batch in block.to_batches():
            bucket = hash_ids(batch.column(0)) % np.uint64(len(paths))
            for number, places in split_by_bucket(bucket, len(paths)):
                writers[number].write_batch(batch.take(pa.array(places)))
    for writer in writers:
        writer.close()


def _name_changes(changed: pa.Table) -> pa.Table:
    """Return changed rows with the word for each change; those with the same text are left out."""
    before = changed.column("old_row_hash")
    after = changed.column("new_row_hash")
    same = pc.fill_null(pc.equal(before, after), False)
    word = pc.if_else(pc.is_null(after), "deleted", "changed")
    word = pc.if_else(pc.is_null(before), "added", word)
    columns = [changed.column("id"), word, before, after]
    return pa.table(columns, schema=SCHEMA).filter(pc.invert(same))
