"""Duplicate ids: allowed, counted. Ids are compared by 64-bit hashes, cut into buckets that can be counted apart."""

from collections.abc import Iterable, Iterator

import numpy as np

from transforms.space.hashing import blake2b
from transforms.store.shards import read_shard

BUCKETS = 256


def hash_ids(ids: Iterable[str]) -> np.ndarray:
    """uint64 [n], the first eight bytes of each id's blake2b."""
    return np.frombuffer(b"".join(blake2b(ids, 8)), np.uint64)


def id_hashes(path: str) -> Iterator[tuple[int, bytes]]:
    """For each bucket with ids of this shard in it: the bucket and the ids' hashes, packed uint64."""
    ids = [i for batch in read_shard(path, ["id"]) for i in batch.column(0).to_pylist()]
    hashes = hash_ids(ids)
    bucket = hashes % np.uint64(BUCKETS)
    order = np.argsort(bucket, kind="stable")
    numbers, starts = np.unique(bucket[order], return_index=True)
    for number, part in zip(numbers.tolist(), np.split(hashes[order], starts[1:]), strict=False):
        yield number, part.tobytes()


def repeated(parts: Iterable[bytes]) -> int:
    """Rows of a bucket whose id an earlier row has."""
    hashes = np.sort(np.frombuffer(b"".join(parts), np.uint64))  # np.unique takes twenty times as long
    return int(np.count_nonzero(hashes[1:] == hashes[:-1]))
