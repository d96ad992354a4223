"""The rows in which two snapshots differ, listed; memory holds one bucket of ids at a time."""

import os
import tempfile
from collections.abc import Iterator
from itertools import zip_longest

import numpy as np
import pyarrow as pa

from transforms import storage
from transforms.store.changes import differing
from transforms.store.duplicates import hash_ids, in_buckets
from transforms.store.manifest import Manifest
from transforms.store.records import UnitRecord
from transforms.store.shards import read_shard

SCHEMA = pa.schema(
    [("id", pa.string()), ("change", pa.string()), ("old_row_hash", pa.binary(16)), ("new_row_hash", pa.binary(16))]
)
_ROWS = pa.schema([("id", pa.string()), ("row_hash", pa.binary(16)), ("sign", pa.int8())])
BUCKET_ROWS = 250_000
BUCKETS = 256


def diff(old: Manifest, new: Manifest) -> Iterator[pa.Table]:
    """Tables of `SCHEMA`, each with some of the ids that were added, changed or deleted; ids sorted within each.

    A changed id has both hashes, an added one no old and a deleted one no new hash.
    """
    sides = [(old.root, unit, -1) for unit in differing(old.units, new.units)]
    sides += [(new.root, unit, 1) for unit in differing(new.units, old.units)]
    rows = sum(unit.rows for _, unit, _ in sides)
    buckets = min(-(-rows // BUCKET_ROWS), BUCKETS)
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, f"{bucket}.arrow") for bucket in range(buckets)]
        _spill(sides, paths)
        for path in paths:
            with pa.memory_map(path) as source:
                yield _compare(pa.ipc.open_file(source).read_all())
            os.unlink(path)


def _spill(sides: list[tuple[str, UnitRecord, int]], paths: list[str]) -> None:
    """Write every row into the file of its bucket."""
    writers = [pa.ipc.new_file(path, _ROWS) for path in paths]
    for root, unit, sign in sides:
        for batch in read_shard(storage.join(root, unit.path or ""), ["id", "row_hash"], unit.bytes):
            signs = pa.array(np.full(batch.num_rows, sign, np.int8))
            rows = pa.record_batch([*batch.columns, signs], schema=_ROWS)
            for number, places in in_buckets(hash_ids(batch.column(0)), len(paths)):
                writers[number].write_batch(rows.take(pa.array(places)))
    for writer in writers:
        writer.close()


def _compare(rows: pa.Table) -> pa.Table:
    """The differences among the rows of some ids."""
    counts = rows.group_by(["id", "row_hash"]).aggregate([("sign", "sum")])
    lost: dict[str, list[bytes]] = {}
    came: dict[str, list[bytes]] = {}
    for row_id, row_hash, sign in zip(*(column.to_pylist() for column in counts.columns), strict=True):
        if sign:
            (came if sign > 0 else lost).setdefault(row_id, []).extend([row_hash] * abs(sign))
    found = [change for row_id in sorted({*lost, *came}) for change in _of_one_id(row_id, lost, came)]
    return pa.Table.from_pylist(found, schema=SCHEMA)


def _of_one_id(row_id: str, lost: dict[str, list[bytes]], came: dict[str, list[bytes]]) -> Iterator[dict[str, object]]:
    for old, new in zip_longest(sorted(lost.get(row_id, [])), sorted(came.get(row_id, []))):
        change = "added" if old is None else "deleted" if new is None else "changed"
        yield {"id": row_id, "change": change, "old_row_hash": old, "new_row_hash": new}
