"""Rows that changed between two snapshots: read from shards, compared, and listed in files.

A row is its (id, row hash), a snapshot a multiset of rows. An id with other rows than before is
changed as often as both snapshots have it, and added or deleted for the rest. The files also list
rows of which only values of kept columns, or the place in the document, changed. Rows are compared
in buckets of their ids.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow_arrays import read_parquet_bytes, write_parquet_bytes
from sentence_beam.transforms.base.columns import get_column
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.base.pairing import pair_rows
from sentence_beam.transforms.corpus.buckets import split_by_bucket
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import ChangedRowsEntry, ChangesEntry, RememberedOptions
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.named_files import read_named
from sentence_beam.transforms.store.shards.id_hashes import hash_ids
from sentence_beam.transforms.store.shards.shard_bytes import cast_times
from sentence_beam.transforms.store.shards.shard_columns import PIECE_COLUMNS, PUSHED_COLUMNS
from sentence_beam.transforms.store.shards.shard_reading import read_shard

# Each row stands for `count` rows that only the new snapshot has, or -`count` that only the old
# one has. `values` is a digest of what else a database would be told of the row.
BLOCK = pa.schema(
    [
        ("id", pa.string()),
        ("row_hash", pa.binary(16)),
        ("values", pa.uint64()),
        ("count", pa.int64()),
        ("shard", pa.string()),
    ]
)
CHANGED_ROWS = pa.schema(
    [
        ("id", pa.string()),
        ("old_row_hash", pa.binary(16)),
        ("new_row_hash", pa.binary(16)),
        ("shard", pa.string()),
    ]
)
_ROW = ["id", "row_hash", "values"]
_PLACES = tuple(name for name in PIECE_COLUMNS if name in PUSHED_COLUMNS)


@dataclass(frozen=True)
class Changes:
    """The numbers of rows that were added, changed and deleted since the last snapshot."""

    added: int = 0
    changed: int = 0
    deleted: int = 0

    def __add__(self, other: "Changes") -> "Changes":
        return Changes(
            self.added + other.added, self.changed + other.changed, self.deleted + other.deleted
        )


@dataclass(frozen=True)
class SnapshotShard:
    """A shard of the old or of the new snapshot: its path in the store, and its bytes."""

    path: str
    size: int
    is_new: bool


def list_value_columns(old: RememberedOptions, new: RememberedOptions) -> tuple[str, ...]:
    """Return the columns whose values are compared: those that both snapshots keep.

    The text is not one of them, because the row hash covers it.
    """
    texts = {old.kept_text, new.kept_text}
    kept = [name for name in new.keep_columns if name in old.keep_columns and name not in texts]
    return (*kept, *_PLACES)


def read_block(root: str, shards: Iterable[SnapshotShard], columns: Sequence[str]) -> pa.Table:
    """Return the rows, of `BLOCK`, that some shards of one snapshot have and those of the other
    lack.

    `columns` are those whose values are compared; a shard may lack some. Raises SentenceBeamError
    for a damaged shard.
    """
    tables = [BLOCK.empty_table()]
    for shard in shards:
        path = storage.join(root, shard.path)
        for batch in read_shard(path, ["id", "row_hash", *columns], shard.size):
            tables.append(make_block(batch, shard, columns))
    return find_left_over(pa.concat_tables(tables))


def make_block(batch: pa.RecordBatch, shard: SnapshotShard, columns: Sequence[str]) -> pa.Table:
    """Return rows of a shard as those of `BLOCK`; `columns` are those whose values are compared."""
    n = batch.num_rows
    columns_of_block = [
        batch.column("id").cast(pa.string()),
        batch.column("row_hash"),
        pa.array(_digest_values(batch, columns)),
        pa.array(np.full(n, 1 if shard.is_new else -1)),
        pa.repeat(shard.path, n),
    ]
    return pa.table(columns_of_block, schema=BLOCK)


def _digest_values(rows: pa.RecordBatch, columns: Sequence[str]) -> np.ndarray:
    """Return uint64 [n], a digest of the values of each row; 0 without values."""
    names = [name for name in rows.schema.names if name in columns]
    if not names:
        return np.zeros(rows.num_rows, np.uint64)
    columns = [cast_times(pa.chunked_array([rows.column(name)])).to_pylist() for name in names]
    values = (xxh3_64_intdigest(repr(row).encode()) for row in zip(*columns, strict=True))
    return np.fromiter(values, np.uint64, rows.num_rows)


def find_left_over(rows: pa.Table) -> pa.Table:
    """Return the rows, of `BLOCK`, of which one snapshot has more than the other; each once.

    Its shard is the first, by name, of those that have the row in that snapshot.
    """
    rows = rows.sort_by("shard")
    is_new = pc.greater(rows.column("count"), 0)
    nothing = pa.scalar(None, pa.string())
    shard = rows.column("shard")
    rows = rows.append_column("new", pc.if_else(is_new, shard, nothing))
    rows = rows.append_column("old", pc.if_else(is_new, nothing, shard))
    summed = [("count", "sum"), ("new", "first"), ("old", "first")]
    # in the order of the rows, so that the first is known
    sums = rows.group_by(_ROW, use_threads=False).aggregate(summed)
    sums = sums.filter(pc.not_equal(sums.column("count_sum"), 0))
    count = sums.column("count_sum")
    shard = pc.if_else(pc.greater(count, 0), sums.column("new_first"), sums.column("old_first"))
    return pa.table([*(sums.column(name) for name in _ROW), count, shard], schema=BLOCK)


def by_bucket(block: pa.Table, buckets: int) -> Iterator[tuple[int, bytes]]:
    """Yield (bucket, packed rows) for the ids of a block."""
    hashes = hash_ids(get_column(block, "id"))
    for number, places in split_by_bucket(hashes % np.uint64(buckets), buckets):
        (batch,) = block.take(pa.array(places)).combine_chunks().to_batches()
        yield number, batch.serialize().to_pybytes()  # without the schema


def unpacked(parts: Iterable[bytes]) -> pa.Table:
    """Return the rows of some packed parts."""
    batches = [pa.ipc.read_record_batch(pa.py_buffer(part), BLOCK) for part in parts]
    return pa.Table.from_batches(batches, BLOCK)


def find_changed_rows(block: pa.Table) -> pa.Table:
    """Return the changes, of `CHANGED_ROWS`, among all rows of some ids, sorted.

    Old and new rows of an id are paired, first those with the same text.
    """
    rows = find_left_over(block).sort_by([("row_hash", "ascending"), ("values", "ascending")])
    count = rows.column("count").to_numpy()
    old = rows.take(pa.array(np.repeat(np.arange(len(rows)), np.maximum(-count, 0))))
    new = rows.take(pa.array(np.repeat(np.arange(len(rows)), np.maximum(count, 0))))
    before, after = pair_rows(old, new, by="id", first="row_hash")
    deleted = np.delete(np.arange(len(old)), before)
    added = np.delete(np.arange(len(new)), after)
    changes = pa.concat_tables(
        [
            _pair_changes(old.take(pa.array(before)), new.take(pa.array(after))),
            _pair_changes(old.take(pa.array(deleted)), None),
            _pair_changes(None, new.take(pa.array(added))),
        ]
    )
    return changes.sort_by([(name, "ascending") for name in CHANGED_ROWS.names])


def _pair_changes(old: pa.Table | None, new: pa.Table | None) -> pa.Table:
    """Return the changes of paired rows; None if only the other snapshot has them."""
    some = new if new is not None else old
    assert some is not None
    none = pa.nulls(len(some), pa.binary(16))
    before = old.column("row_hash") if old is not None else none
    after = new.column("row_hash") if new is not None else none
    return pa.table([some.column("id"), before, after, some.column("shard")], schema=CHANGED_ROWS)


def count_changes(changed: pa.Table) -> Changes:
    """Return the numbers of changed rows; those with the same text as before do not count."""
    added = changed.column("old_row_hash").null_count
    deleted = changed.column("new_row_hash").null_count
    same = pc.sum(pc.equal(changed.column("old_row_hash"), changed.column("new_row_hash")))
    return Changes(added, len(changed) - added - deleted - (same.as_py() or 0), deleted)


def write_changes(root: str, run: str, changed: pa.Table) -> ChangedRowsEntry:
    """Write changed rows of some ids, and return the file's entry."""
    data = write_parquet_bytes(changed)
    sha256 = hashlib.sha256(data).hexdigest()
    path = layout.changes(run, sha256)
    storage.ensure(storage.join(root, path), data)
    return ChangedRowsEntry(path, sha256, len(changed))


def read_changes(root: str, entry: ChangedRowsEntry) -> pa.Table:
    """Return the rows of a file, of `CHANGED_ROWS`.

    Raises SentenceBeamError if it is missing or was changed.
    """
    path = storage.join(root, entry.path)
    mend = "without these changed rows, snapshots are compared by their shards"
    data = read_named(path, entry.sha256, mend)
    with refuse_damage(f"{path}: not a file of changed rows"):
        return read_parquet_bytes(data, CHANGED_ROWS.names).cast(CHANGED_ROWS)


@dataclass(frozen=True)
class Step:
    """The changes from one snapshot to the next, and the manifest of the latter."""

    manifest: Manifest
    changes: ChangesEntry


def find_steps(old: Manifest, new: Manifest) -> list[Step] | None:
    """Return the recorded changes from one snapshot to a later one, the latest first.

    Returns None if some of them are unknown, or if the one does not follow the other. Only
    manifests are read.
    """
    steps: list[Step] = []
    manifest: Manifest | None = new
    while manifest is not None and manifest.run != old.run:
        changes = manifest.changes
        if changes is None or changes.since != manifest.previous:
            return None
        steps.append(Step(manifest, changes))
        manifest = _read_snapshot(new.root, changes.since)
    return None if manifest is None else steps


def _read_snapshot(root: str, run: str) -> Manifest | None:
    """Return a snapshot; None if it was removed or is damaged."""
    try:
        return read_manifest(root, run)
    except SentenceBeamError:
        return None
