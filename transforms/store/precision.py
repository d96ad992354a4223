"""The type in which final vectors are stored: floats, whole numbers between fitted bounds, or bits. numpy alone."""

import json
from dataclasses import dataclass

import numpy as np

from transforms.errors import SentenceBeamError
from transforms.space import canonical_json, sha256_text

PRECISIONS = ("float32", "float16", "int8", "uint8", "binary", "ubinary")
RANGED = ("int8", "uint8")
CODES: dict[str, type[np.generic]] = {
    "float32": np.float32,
    "float16": np.float16,
    "int8": np.int8,
    "uint8": np.uint8,
    "binary": np.int8,
    "ubinary": np.uint8,
}
_BITS = ("binary", "ubinary")
_FIRST = {"int8": -128, "uint8": 0}
_LEVELS = 255
_BLOCK_ROWS = 8192


@dataclass(frozen=True, eq=False)
class Ranges:
    """Smallest and largest value of each component, float32 [d] both: exact whatever the order and the split."""

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def empty(cls, dim: int) -> "Ranges":
        """Of no rows."""
        return cls(np.full(dim, np.inf, np.float32), np.full(dim, -np.inf, np.float32))

    @classmethod
    def of(cls, vectors: np.ndarray) -> "Ranges":
        """Of finite vectors float32 [n, d]."""
        # plus zero: 0 and -0 are equal, and which of them is the smallest is a matter of order
        return cls(vectors.min(axis=0, initial=np.inf) + 0.0, vectors.max(axis=0, initial=-np.inf) + 0.0)

    def merge(self, other: "Ranges") -> "Ranges":
        """Of both together."""
        return Ranges(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    @property
    def digest(self) -> str:
        """sha256 in hex over the bounds."""
        return sha256_text(canonical_json(self._values()))

    @property
    def step(self) -> np.ndarray:
        """What one code stands for, float64 [d]; 1 where the bounds are equal."""
        width = self.high.astype(np.float64) - self.low
        return np.where(width > 0, width / _LEVELS, 1.0)

    def to_bytes(self) -> bytes:
        """As JSON."""
        return (json.dumps({**self._values(), "digest": self.digest}) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> "Ranges":
        """The inverse of `to_bytes`; `SentenceBeamError` naming `where` for other bytes."""
        try:
            values = json.loads(data)
            ranges = cls(np.array(values["low"], np.float32), np.array(values["high"], np.float32))
            whole = ranges.low.shape == ranges.high.shape and values["digest"] == ranges.digest
        except (ValueError, KeyError, TypeError):
            whole = False
        if not whole:
            raise SentenceBeamError(f"{where} holds no ranges of this version, or was changed; restore it")
        return ranges

    def _values(self) -> dict[str, list[float]]:
        return {"low": self.low.tolist(), "high": self.high.tolist()}


def code_width(precision: str, dim: int) -> int:
    """Codes of a vector of `dim` components: bits are packed by eights."""
    return -(-dim // 8) if precision in _BITS else dim


def vector_bytes(precision: str, dim: int) -> int:
    """Bytes of a stored vector, with the floats that are kept beside codes."""
    codes = np.dtype(CODES[precision]).itemsize * code_width(precision, dim)
    return codes + (0 if precision == "float32" else 4 * dim)


def quantize(vectors: np.ndarray, precision: str, ranges: Ranges | None = None) -> np.ndarray:
    """Codes [n, code_width] of finite vectors float32 [n, d], of the type `CODES` says.

    `int8` and `uint8` count 255 steps from the component's lower bound, to the nearest (half to even); `float16` rounds
    likewise. What lies outside of the bounds, or of float16, takes the nearest value that there is. `ubinary` packs
    bits (above zero or not), the first component highest; `binary` is that byte less 128. Layout as in
    sentence-transformers' `quantize_embeddings`, which cuts off instead of rounding and wraps around.
    """
    if precision == "float16":
        largest = np.finfo(np.float16).max
        return np.clip(vectors, -largest, largest).astype(np.float16)
    if precision in _BITS:
        packed = np.packbits(vectors > 0, axis=1)
        return packed if precision == "ubinary" else (packed ^ 0x80).view(np.int8)
    if precision in RANGED:
        assert ranges is not None
        return _count_steps(vectors, precision, ranges)
    return np.asarray(vectors, np.float32)


def _count_steps(vectors: np.ndarray, precision: str, ranges: Ranges) -> np.ndarray:
    step, codes = ranges.step, np.empty(vectors.shape, CODES[precision])
    for start in range(0, len(vectors), _BLOCK_ROWS):
        inside = np.clip(vectors[start : start + _BLOCK_ROWS], ranges.low, ranges.high)
        codes[start : start + _BLOCK_ROWS] = (
            np.rint((inside.astype(np.float64) - ranges.low) / step) + _FIRST[precision]
        )
    return codes


def dequantize(codes: np.ndarray, precision: str, dim: int, ranges: Ranges | None = None) -> np.ndarray:
    """Vectors float32 [n, d] that codes [n, code_width] stand for: within half a step, or 1 and -1 for bits."""
    if precision in _BITS:
        packed = codes.view(np.uint8) ^ np.uint8(0x80 if precision == "binary" else 0)
        return np.unpackbits(packed, axis=1, count=dim).astype(np.float32) * 2 - 1
    if precision in RANGED:
        assert ranges is not None
        values = ranges.low + (codes.astype(np.float64) - _FIRST[precision]) * ranges.step
        return np.clip(values.astype(np.float32), ranges.low, ranges.high)  # sums may round past the bound
    return codes.astype(np.float32, copy=False)
