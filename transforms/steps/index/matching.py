"""Matching rows of rewritten shards with rows of the index: by text, first by id.

Rows are cut into buckets by their hash, so that every bucket can be matched alone. A matched row
keeps its place in the index, whatever shard it is in now; its vector is that of the same text in
the same space.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base.arrow_arrays import as_hashes, get_hash_prefixes
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.corpus.buckets import split_by_bucket

BUCKET_ROWS = 2_000_000
ADDED = pa.schema(
    [("row_hash", pa.binary(16)), ("id", pa.string()), ("shard", pa.int32()), ("row", pa.int64())]
)
REMOVED = pa.schema([("row_hash", pa.binary(16)), ("id", pa.string()), ("local", pa.int64())])
MOVED = pa.schema(
    [("local", pa.int64()), ("shard", pa.int32()), ("row", pa.int64()), ("id", pa.string())]
)
NEW = pa.schema([("shard", pa.int32()), ("row", pa.int64())])
HELD = pa.schema([("row_hash", pa.binary(16)), ("local", pa.int64())])
_OFFSET = 8  # bytes


def cut_by_bucket(table: pa.Table, buckets: int) -> list[pa.Table]:
    """Return the table's rows by the first bits of their hash, in the table's order."""
    if buckets == 1:
        return [table]
    first = get_hash_prefixes(as_hashes(table.column("row_hash"))) >> np.uint64(32)
    rows = dict(split_by_bucket(first * np.uint64(buckets) >> np.uint64(32), buckets))
    return [table.take(pa.array(rows.get(bucket, []), pa.int64())) for bucket in range(buckets)]


def to_bytes(tables: Sequence[pa.Table]) -> bytes:
    """Return tables of one schema as a file from which `read` takes some.

    The file begins with their offsets, int64 [n + 1].
    """
    parts = [_serialize(table) for table in tables]
    ends = np.cumsum([_OFFSET * (len(parts) + 1), *map(len, parts)])
    return b"".join([ends.astype("<i8").tobytes(), *parts])


def _serialize(table: pa.Table) -> bytes:
    """Return the rows of a table without their schema; nothing for none."""
    if not len(table):
        return b""
    arrays = [
        column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        for column in table.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema).serialize().to_pybytes()


def read(
    fetch: Callable[[int, int], bytes], schema: pa.Schema, first: int, count: int = 1
) -> list[pa.Table]:
    """Return some consecutive tables of a file that `to_bytes` made.

    `fetch(start, stop)` returns bytes of the file. Raises SentenceBeamError for other bytes.
    """
    damaged = "what a step of the run left for another is not what it wrote"
    ends = np.frombuffer(fetch(_OFFSET * first, _OFFSET * (first + count + 1)), "<i8")
    if ends[0] < 0 or (np.diff(ends) < 0).any():
        raise SentenceBeamError(f"{damaged}; run again")
    data = fetch(int(ends[0]), int(ends[-1])) if ends[-1] > ends[0] else b""
    parts = [data[start:stop] for start, stop in pairwise((ends - ends[0]).tolist())]
    with refuse_damage(damaged, "run again"):
        return [_parse(part, schema) for part in parts]


def _parse(part: bytes, schema: pa.Schema) -> pa.Table:
    if not part:
        return schema.empty_table()
    return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(part), schema)])
