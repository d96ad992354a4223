"""A sample of a store's pooled vectors: the rows with the smallest keyed hashes, whatever the shards or the workers.

Each worker leaves its rows in a file; descriptors travel.
"""

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from transforms.beam.moments import not_finite
from transforms.errors import SentenceBeamError
from transforms.index.sample import sample_keys, sample_threshold, select
from transforms.store import storage
from transforms.store.pooled import read_pooled
from transforms.store.records import Problem
from transforms.store.shards import as_hashes


@dataclass(frozen=True)
class SampleJob:
    """Which rows to leave where: the `want` smallest keys of `rows`, in files whose names begin with `prefix`."""

    prefix: str
    want: int
    rows: int
    normalized: bool

    @property
    def below(self) -> int:
        """The threshold on keys; a little more than wanted lie below it, and the last are left out in the end."""
        return sample_threshold(self.want + 6 * math.isqrt(self.want) + 6, self.rows)

    def path(self, number: int) -> str:
        """The file of a numbered part."""
        return f"{self.prefix}-{number}.npz"


@dataclass(frozen=True)
class Sampled:
    """The file with a part's share of the sample, None where it has none, and what went wrong."""

    path: str | None = None
    problem: Problem | None = None


def leave_sample(part: tuple[int, tuple[str, ...]], job: SampleJob) -> Sampled:
    """Write the sampled rows of a numbered part's shards, with their keys."""
    number, shards = part
    keys, rows = [], []
    try:
        for path in shards:
            for key, row in _sampled(path, job):
                keys.append(key)
                rows.append(row)
    except SentenceBeamError as error:
        return Sampled(problem=Problem.of(error))
    if not sum(map(len, keys)):
        return Sampled()
    data = io.BytesIO()
    np.savez(data, keys=np.concatenate(keys), rows=np.concatenate(rows))
    storage.storage_of(job.prefix).put_if_absent(job.path(number), data.getvalue())
    return Sampled(job.path(number))


def _sampled(path: str, job: SampleJob) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Keys uint64 [m] and rows float32 [m, p] of a shard, block by block."""
    start = 0
    for rows, batch in read_pooled(path, job.normalized, ("id", "row_hash")):
        keys = sample_keys(as_hashes(batch.column("row_hash")), batch.column("id").to_pylist())
        chosen = select(keys, job.below)
        if not np.isfinite(rows[chosen]).all():
            raise not_finite(path, start, rows).error()
        yield keys[chosen], rows[chosen]
        start += len(rows)


def take_sample(parts: Sequence[Sampled], want: int) -> np.ndarray:
    """The sample, float32 [n, p], by ascending key: an order that means nothing and never changes."""
    paths = [part.path for part in parts if part.path is not None]
    found = [np.load(io.BytesIO(storage.read_bytes(path)), allow_pickle=False) for path in paths]
    keys = np.concatenate([np.empty(0, np.uint64), *(arrays["keys"] for arrays in found)])
    rows = np.concatenate([arrays["rows"] for arrays in found]) if found else np.empty((0, 0), np.float32)
    return rows[np.argsort(keys, kind="stable")[:want]]
