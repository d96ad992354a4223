"""Data for fitting a calibration: moments and a sample of a store's pooled vectors, in one pass.

Workers read the shards. Moments travel as accumulators; a sample stays in a file and its name
travels.
"""

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow_arrays import as_hashes
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.calibration.moments import Moments
from sentence_beam.transforms.index.keyed_sample import sample_keys, sample_threshold, select
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.shards.shard_reading import read_pooled


@dataclass(frozen=True)
class GatherJob:
    """A sample of `rows` rows: the `want` with the smallest keyed hashes, into files named
    `prefix`-<part>.npz.

    `whole`: moments of all rows too. `normalized` is the space's.
    """

    prefix: str
    want: int
    rows: int
    normalized: bool
    whole: bool

    @property
    def below(self) -> int:
        """The threshold on keys: a few more rows than wanted lie below it and are dropped later."""
        return sample_threshold(self.want + 6 * math.isqrt(self.want) + 6, self.rows)

    def path(self, number: int) -> str:
        """Return the file of a numbered part."""
        return f"{self.prefix}-{number}.npz"


@dataclass(frozen=True)
class Gathered:
    """Moments of a part of the rows (None: no row), files with its part of the sample, and a
    problem.
    """

    moments: Moments | None = None
    samples: tuple[str, ...] = ()
    problem: Problem | None = None

    def merge(self, other: "Gathered") -> "Gathered":
        """Merge both parts; of two problems the one whose message sorts first is kept."""
        problems = [some.problem for some in (self, other) if some.problem is not None]
        if problems:
            return Gathered(problem=min(problems, key=lambda problem: problem.message))
        fitted = [some.moments for some in (self, other) if some.moments is not None]
        moments = reduce(Moments.merge, fitted) if fitted else None
        return Gathered(moments, self.samples + other.samples)


def gather(part: tuple[int, tuple[str, ...]], job: GatherJob) -> Gathered:
    """Read a numbered part's shards once; returns a problem if a vector is not finite."""
    number, shards = part
    moments: Moments | None = None
    sampled: list[tuple[np.ndarray, np.ndarray]] = []
    try:
        with progress.stage("reading the store", job.rows, "rows"):
            for keys, rows in _read_rows(shards, job):
                chosen = select(keys, job.below)
                sampled.append((keys[chosen], rows[chosen]))
                if job.whole:
                    block = Moments.from_rows(rows)
                    moments = block if moments is None else moments.merge(block)
                progress.step(len(rows))
    except SentenceBeamError as error:
        return Gathered(problem=Problem.from_error(error))
    return Gathered(moments, _write_sample(sampled, job, number))


def _write_sample(
    sampled: list[tuple[np.ndarray, np.ndarray]], job: GatherJob, number: int
) -> tuple[str, ...]:
    """Write a part's sample into a file and return its path; none without rows."""
    if not any(len(keys) for keys, _ in sampled):
        return ()
    data = io.BytesIO()
    keys, rows = (np.concatenate(column) for column in zip(*sampled, strict=True))
    np.savez(data, keys=keys, rows=rows)
    storage.storage_of(job.prefix).put_if_absent(job.path(number), data.getvalue())
    return (job.path(number),)


def _read_rows(shards: tuple[str, ...], job: GatherJob) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield keys uint64 [n] and pooled vectors float32 [n, p], block by block."""
    for path in shards:
        start = 0
        for rows, batch in read_pooled(path, job.normalized, ("id", "row_hash")):
            finite = np.isfinite(rows).all(axis=1)
            if not finite.all():
                row = start + int(np.argmin(finite))
                mend = "remove the shard and run embed, which makes it again"
                raise SentenceBeamError(f"{path}: the vector of row {row} is not finite; {mend}")
            yield (
                sample_keys(as_hashes(batch.column("row_hash")), batch.column("id").to_pylist()),
                rows,
            )
            start += len(rows)


def _read_arrays(path: str) -> dict[str, np.ndarray]:
    data = storage.read_bytes(path)
    with refuse_damage(f"{path} is not what the run wrote", "run again"):
        return dict(np.load(io.BytesIO(data), allow_pickle=False))


def take_sample(gathered: Gathered, want: int) -> np.ndarray:
    """Return the sample, float32 [n, p], by ascending key, an order that never changes."""
    samples = [_read_arrays(path) for path in sorted(gathered.samples)]
    keys = np.concatenate([np.empty(0, np.uint64), *(arrays["keys"] for arrays in samples)])
    rows = [arrays["rows"] for arrays in samples] or [np.empty((0, 0), np.float32)]
    return np.concatenate(rows)[np.argsort(keys, kind="stable")[:want]]
