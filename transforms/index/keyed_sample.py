"""A choice of rows by a keyed hash: the same rows in any order, on any workers, at any retry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np

_SAMPLE = b"sentence-beam/train"
_HELD_OUT = b"sentence-beam/held-out"
_ALL = 1 << 64


def sample_keys(row_hashes: np.ndarray, ids: Sequence[str]) -> np.ndarray:
    """The key of each row for the training sample, from its row hash and id; uint64 [n].

    `row_hashes` uint8 [n, 16], `ids` n strings. Keys are uniform and independent of
    `held_out_keys`.
    """
    pairs = zip(_split_hashes(row_hashes), ids, strict=True)
    return _hash_rows(
        _SAMPLE,
        (row_hash + row_id.encode("utf8", "surrogatepass") for row_hash, row_id in pairs),
        len(ids),
    )


def held_out_keys(row_hashes: np.ndarray) -> np.ndarray:
    """The key of each row for the held-out choice, from its row hash; uint64 [n].

    All copies of a text have the same key.
    """
    return _hash_rows(_HELD_OUT, _split_hashes(row_hashes), len(row_hashes))


def sample_threshold(want: int, n_rows: int) -> int:
    """The threshold below which about `want` of `n_rows` keys lie: 0 (none) to 2**64 (all)."""
    return _ALL if want >= n_rows else max(want, 0) * _ALL // n_rows


def select(keys: np.ndarray, threshold: int) -> np.ndarray:
    """Whether each key is below the threshold, bool [n]."""
    if threshold >= _ALL:
        return np.ones(len(keys), dtype=bool)
    return keys < np.uint64(threshold)


def _split_hashes(row_hashes: np.ndarray) -> list[bytes]:
    flat = np.ascontiguousarray(row_hashes, dtype=np.uint8).tobytes()
    return [flat[start : start + 16] for start in range(0, len(flat), 16)]


def _hash_rows(purpose: bytes, rows: Iterable[bytes], n: int) -> np.ndarray:
    digests = b"".join([blake2b(row, digest_size=8, key=purpose).digest() for row in rows])
    return np.frombuffer(digests, dtype="<u8", count=n).astype(np.uint64)
