"""Buckets: 2**bits equal ranges of row hashes; each is a unit of rows from any files."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import numpy as np

from sentence_beam.transforms.base.arrow_arrays import get_hash_prefixes
from sentence_beam.transforms.base.json_entries import count
from sentence_beam.transforms.corpus.spans import BYTES_PER_TOKEN

HEAVY = 4  # times the planned rows; a larger bucket is cut by id
GROWTH = 2  # times the rows for which the number of buckets was chosen
BUCKETS_PER_GROUP = 8
GROUPS_WANTED = 64
GROUP_BYTES = 128 << 20  # of text at most: Flink holds a group in memory
BLOCK_ROWS = 384
BLOCK_BYTES = 384 << 10  # of text, enough for a block
READS_LEAST = 32  # elements of the plan that read; each makes a block for every group
READ_BYTES = 2 << 30  # of text in one such element, which may wait on the worker's disk
NAME = re.compile(r"(\d{1,2})-([0-9a-f]+)(?:\.(\d+))?")


@dataclass(frozen=True)
class Buckets:
    """2**`bits` buckets for `rows` rows.

    They were chosen for `chosen_rows` rows with `chosen_tokens` estimated tokens in all.
    """

    bits: Annotated[int, partial(count, most=32)]
    rows: int
    chosen_rows: int
    chosen_tokens: int

    @classmethod
    def choose(cls, rows: int, tokens: int, unit_tokens: int, least: int = 0) -> "Buckets":
        """Buckets of at most a unit's size on average; at least 2**`least` of them."""
        units = max(1, -(-tokens // unit_tokens))
        bits = max(least, (units - 1).bit_length())
        return cls(bits, rows, rows, tokens)

    def for_rows(self, rows: int, tokens: int, unit_tokens: int) -> "Buckets":
        """Buckets for the rows of another run: the same, or more if rows have more than doubled.

        >>> first = Buckets.choose(rows=100, tokens=1000, unit_tokens=500)
        >>> [first.for_rows(rows, 10 * rows, 500).bits for rows in (10, 100, 200, 201, 500)]
        [1, 1, 1, 3, 4]
        """
        if rows > GROWTH * self.chosen_rows:
            return Buckets.choose(rows, tokens, unit_tokens, least=self.bits)
        return replace(self, rows=rows)

    @property
    def count(self) -> int:
        """The number of buckets."""
        return 1 << self.bits

    @property
    def row_bytes(self) -> float:
        """The estimated bytes of a row's text."""
        return BYTES_PER_TOKEN * self.chosen_tokens / max(1, self.chosen_rows)

    @property
    def block_rows(self) -> int:
        """The average number of rows for a block: 384, so that few blocks have less than 256.

        For long texts, this is the number of rows with 384 KB of text.
        """
        return max(1, min(BLOCK_ROWS, int(BLOCK_BYTES / max(1.0, self.row_bytes))))

    @property
    def per_group(self) -> int:
        """The number of buckets that are shuffled and embedded as one group: a power of two.

        It is eight, or less if there would be fewer than 64 groups. For a large corpus it is more,
        up to 128 MB of text, so that a reader does not have to read too much before each group has
        the rows of a block.

        >>> bits = (4, 8, 12, 16, 20, 24)
        >>> [Buckets(n, 2600 << n, 2600 << n, 250_000 << n).per_group for n in bits]
        [1, 4, 8, 8, 128, 128]
        """
        most = max(1, self.count // GROUPS_WANTED)
        size = min(BUCKETS_PER_GROUP, most)
        while (
            2 * size <= most and 2 * size * self.rows * self.row_bytes <= GROUP_BYTES * self.count
        ):
            read = self.block_rows * self.count // size
            if read * READS_LEAST <= self.rows and read * self.row_bytes <= READ_BYTES:
                break
            size *= 2
        return size

    @property
    def groups(self) -> int:
        """The number of groups of buckets."""
        return self.count // self.per_group

    def name(self, bucket: int) -> str:
        """The name of a bucket's unit."""
        return Bucket(self.bits, bucket).name

    def pieces(self, rows: float) -> int:
        """The number of pieces of a bucket with these rows: a power of two, 1 unless it is heavy.

        >>> [Buckets(2, 400, 400, 4000).pieces(rows) for rows in (0, 400, 401, 801)]
        [1, 1, 8, 16]
        """
        planned = self.rows / self.count
        if rows <= HEAVY * planned:
            return 1
        return 1 << (int(np.ceil(rows / planned)) - 1).bit_length()


def find_buckets(hashes: np.ndarray, bits: int) -> np.ndarray:
    """The bucket of each row hash, uint8 [n, 16]: its first bits; int64 [n]."""
    if bits == 0:
        return np.zeros(len(hashes), np.int64)
    return (get_hash_prefixes(hashes) >> np.uint64(64 - bits)).astype(np.int64)


def split_by_bucket(bucket: np.ndarray, buckets: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (number, rows) of each bucket with rows; `bucket` [n] has the number of each row.

    Rows are int64, in order.
    """
    numbers = bucket.astype(np.int64, copy=False)
    ends = np.cumsum(np.bincount(numbers, minlength=buckets))
    for number, places in enumerate(np.split(np.argsort(numbers, kind="stable"), ends[:-1])):
        if len(places):
            yield number, places


def find_piece(row_id: str, pieces: int) -> int:
    """The number of a row's piece of a heavy bucket: the first bits of its id's hash."""
    first = int.from_bytes(hashlib.blake2b(row_id.encode(), digest_size=8).digest(), "big")
    return first * pieces >> 64


@dataclass(frozen=True)
class Bucket:
    """A bucket among 2**`bits`, or one of its pieces; `piece` is None for the whole bucket."""

    bits: int
    number: int
    piece: int | None = None

    @property
    def name(self) -> str:
        """The name of the whole bucket.

        >>> Bucket(bits=6, number=10).name
        '6-0a'
        """
        return f"{self.bits}-{self.number:0{max(1, -(-self.bits // 4))}x}"

    def at(self, bits: int) -> range:
        """The numbers of the buckets among 2**`bits` that share hashes with this one.

        >>> Bucket(3, 5).at(2), Bucket(3, 5).at(3), Bucket(3, 5).at(4)
        (range(2, 3), range(5, 6), range(10, 12))
        """
        if bits <= self.bits:
            number = self.number >> (self.bits - bits)
            return range(number, number + 1)
        more = bits - self.bits
        return range(self.number << more, (self.number + 1) << more)


def parse_name(unit: str) -> Bucket | None:
    """The bucket, or piece of a bucket, that a unit is; None for a unit of a file.

    >>> parse_name("6-0a.3"), parse_name("0123456789abcdef-000000000000")
    (Bucket(bits=6, number=10, piece=3), None)
    """
    match = NAME.fullmatch(unit)
    if match is None:
        return None
    bucket = Bucket(int(match[1]), int(match[2], 16))
    return replace(bucket, piece=int(match[3])) if match[3] is not None else bucket
