"""Duplicate ids: allowed, counted. Ids are compared by 64-bit hashes, cut into buckets that can be counted apart."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from transforms.store.shards import read_shard

BUCKET_ROWS = 1_000_000
BUCKETS = 256


def hash_ids(ids: pa.StringArray) -> np.ndarray:
    """uint64 [n], XXH3 of each id's UTF-8 bytes: the same in every process, as Python's own hashes are not."""
    return np.fromiter(map(xxh3_64_intdigest, ids.cast(pa.binary()).to_pylist()), np.uint64, len(ids))


def buckets_for(rows: int) -> int:
    """How many buckets the ids of so many rows are cut into."""
    return min(1 + rows // BUCKET_ROWS, BUCKETS)


def in_buckets(hashes: np.ndarray, buckets: int) -> Iterator[tuple[int, np.ndarray]]:
    """Each bucket that has some of the hashes in it, and where these are, int64 in order."""
    bucket = (hashes % np.uint64(buckets)).astype(np.int64)
    ends = np.cumsum(np.bincount(bucket, minlength=buckets))
    for number, places in enumerate(np.split(np.argsort(bucket, kind="stable"), ends[:-1])):
        if len(places):
            yield number, places


def id_hashes(path: str, buckets: int) -> Iterator[tuple[int, bytes]]:
    """For each bucket with ids of this shard in it: the bucket and the ids' hashes, packed uint64."""
    parts = [hash_ids(batch.column(0)) for batch in read_shard(path, ["id"])]
    hashes = np.concatenate(parts) if parts else np.empty(0, np.uint64)
    for number, places in in_buckets(hashes, buckets):
        yield number, hashes[places].tobytes()


def repeated(parts: Iterable[bytes]) -> int:
    """Rows of a bucket whose id an earlier row has."""
    hashes = np.sort(np.frombuffer(b"".join(parts), np.uint64))  # np.unique takes twenty times as long
    return int(np.count_nonzero(hashes[1:] == hashes[:-1]))
