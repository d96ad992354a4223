"""The rows of each shard that an index has, as a count and a sum of hashes: 20 bytes a shard."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from sentence_beam.transforms.base.columns import get_numbers

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def _hash_rows(rows: np.ndarray) -> np.ndarray:
    """Return 64 bits for each number of a row (splitmix64, Steele et al. 2014)."""
    mixed = (rows.astype(np.uint64) + np.uint64(1)) * _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX[0]
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX[1]
    return mixed ^ (mixed >> np.uint64(31))


@dataclass(frozen=True, eq=False)
class Coverage:
    """The rows of some shards, by the shard's number among all of a snapshot, ascending.

    `counts` are the rows of each, int64 [n]; `sums` those of their hashes, modulo 2^64, uint64 [n].
    """

    shards: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    counts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    sums: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))

    @classmethod
    def from_shards(cls, shards: np.ndarray, rows: np.ndarray) -> "Coverage":
        """Return the coverage of rows, each of the shard of this number."""
        return _sum_up(shards.astype(np.int32), np.ones(len(rows), np.int64), _hash_rows(rows))

    def merge(self, other: "Coverage") -> "Coverage":
        """Return the rows of both, one that is in both twice."""
        return _sum_up(
            np.concatenate([self.shards, other.shards]),
            np.concatenate([self.counts, other.counts]),
            np.concatenate([self.sums, other.sums]),
        )

    def faults(self, every: pa.Table) -> Iterator[str]:
        """Yield a line for each shard without exactly its rows.

        `every` has the columns path and rows of all shards, in order.
        """
        wanted = get_numbers(every, "rows")
        longest = int(wanted.max(initial=0))
        sums_of = np.zeros(longest + 1, np.uint64)
        np.cumsum(_hash_rows(np.arange(longest)), out=sums_of[1:])
        counts = np.zeros(len(wanted), np.int64)
        counts[self.shards] = self.counts
        sums = np.zeros(len(wanted), np.uint64)
        sums[self.shards] = self.sums
        is_other = (counts != wanted) | (sums != sums_of[wanted])
        for number in np.flatnonzero(is_other).tolist():
            path = every.column("path")[number]
            yield f"{path}: {_describe_difference(int(counts[number] - wanted[number]))}"


def _sum_up(shards: np.ndarray, counts: np.ndarray, sums: np.ndarray) -> Coverage:
    order = np.argsort(shards, kind="stable")
    numbers, starts = np.unique(shards[order], return_index=True)
    if not len(numbers):
        return Coverage()
    return Coverage(
        numbers, np.add.reduceat(counts[order], starts), np.add.reduceat(sums[order], starts)
    )


def _describe_difference(rows: int) -> str:
    if rows < 0:
        return f"{-rows} rows are not in the index"
    if rows > 0:
        return f"{rows} rows are in the index twice"
    return "some rows are in the index twice, and as many are not in it"
