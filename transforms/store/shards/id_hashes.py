"""Hashes of the ids of a shard, kept in the store once they were needed.

A shard never changes, nor do its hashes. `ids/<unit>-<digest>.xxh3` is a mark, XXH3 of the rest as
8 bytes, then XXH3 of each id as 8 bytes, little-endian.
"""

import contextlib
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_digest, xxh3_64_intdigest

from sentence_beam.transforms import storage
from sentence_beam.transforms.corpus.buckets import split_by_bucket
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.shards.shard_reading import read_shard

MARK = b"SBIDS1\0\0"
HASHES = np.dtype("<u8")


def hash_ids(ids: pa.StringArray) -> np.ndarray:
    """Return uint64 [n], XXH3 of each id's UTF-8 bytes.

    It is the same in every process, unlike Python's own hashes.
    """
    return np.fromiter(
        map(xxh3_64_intdigest, ids.cast(pa.binary()).to_pylist()), np.uint64, len(ids)
    )


def read_id_hashes(root: str, shard: str) -> np.ndarray:
    """Return uint64 [n], the hashes of a shard's ids. `shard` is its path in the store."""
    hashes = read_kept_hashes(root, shard)
    if hashes is not None:
        return hashes
    hashes = hash_ids_in(read_shard(storage.join(root, shard), ["id", "piece"]))
    keep_hashes(root, shard, hashes)
    return hashes


def hash_ids_in(batches: Iterable[pa.RecordBatch]) -> np.ndarray:
    """Return uint64 [n], the hashes of the ids of rows, or of documents that begin there."""
    parts = [hash_ids(select_first_pieces(batch).column("id")) for batch in batches]
    return np.concatenate([np.empty(0, np.uint64), *parts])


def keep_hashes(root: str, shard: str, hashes: np.ndarray) -> None:
    """Write the hashes of a shard's ids, if they can be written: the next run tries again."""
    data = hashes.astype(HASHES).tobytes()
    with contextlib.suppress(Exception):
        path = storage.join(root, layout.ids(shard))
        storage.ensure(path, MARK + xxh3_64_digest(data) + data)


def read_kept_hashes(root: str, shard: str) -> np.ndarray | None:
    """Return the hashes of a shard's ids if the store has them, without reading the shard.

    Returns None if they are missing or were changed.
    """
    path = storage.join(root, layout.ids(shard))
    stored = storage.storage_of(path).read_versioned(path)
    head = len(MARK) + 8
    if stored is None or stored[0][:head] != MARK + xxh3_64_digest(stored[0][head:]):
        return None
    return np.frombuffer(stored[0], HASHES, offset=head).astype(np.uint64)


def pack_hashes(hashes: np.ndarray, buckets: int) -> Iterator[tuple[int, bytes]]:
    """Yield (bucket, its hashes as packed uint64) for some hashes of ids."""
    for number, places in split_by_bucket(hashes % np.uint64(buckets), buckets):
        yield number, hashes[places].tobytes()


def select_first_pieces(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows; of pieces of documents, the first of each."""
    if "piece" in batch.schema.names:
        return batch.filter(pc.equal(batch.column("piece"), 0))
    return batch
