"""The precision of stored vectors: floats, whole numbers between fitted bounds, or bits.

Coding and decoding, the column of a shard that holds the codes, and the bounds as a file of the
store.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow_arrays import as_values
from sentence_beam.transforms.base.errors import SentenceBeamError, cite, refuse_damage
from sentence_beam.transforms.space import Space, canonical_json, sha256_text
from sentence_beam.transforms.space.identity import SHORTEST
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import RangesEntry

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
_SIGN = np.uint8(0x80)  # the bit by which codes from -128 differ from those from 0
_LEVELS = 255
_BLOCK_ROWS = 8192
# in a shard's metadata
SPACE = b"space"
RANGES = b"ranges"


@dataclass(frozen=True, eq=False)
class Ranges:
    """Smallest and largest value of each component, float32 [d] both.

    They are exact in any order and any split of the rows.
    """

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def empty(cls, dim: int) -> "Ranges":
        """Return the ranges of no rows."""
        return cls(np.full(dim, np.inf, np.float32), np.full(dim, -np.inf, np.float32))

    @classmethod
    def from_vectors(cls, vectors: np.ndarray) -> "Ranges":
        """Return the ranges of finite vectors float32 [n, d]."""
        # plus zero: 0 and -0 are equal, and which of them is the smallest is a matter of order
        return cls(
            vectors.min(axis=0, initial=np.inf) + 0.0, vectors.max(axis=0, initial=-np.inf) + 0.0
        )

    def merge(self, other: "Ranges") -> "Ranges":
        """Return the ranges of the rows of both."""
        return Ranges(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    @property
    def digest(self) -> str:
        """sha256 in hex over the bounds."""
        return sha256_text(canonical_json(self._to_lists()))

    @property
    def step(self) -> np.ndarray:
        """The difference of two neighbouring codes, float64 [d]; 1 if the bounds are equal."""
        width = self.high.astype(np.float64) - self.low
        return np.where(width > 0, width / _LEVELS, 1.0)

    def to_bytes(self) -> bytes:
        """The ranges as their file's bytes, JSON."""
        return (json.dumps({**self._to_lists(), "digest": self.digest}) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> "Ranges":
        """Return the ranges of a file that `to_bytes` made.

        Raises SentenceBeamError naming `where` for other bytes.
        """
        with refuse_damage(
            f"{where} holds no ranges of this version, or was changed", "restore it"
        ):
            values = json.loads(data)
            with np.errstate(over="ignore"):
                ranges = cls(
                    np.array(values["low"], np.float32), np.array(values["high"], np.float32)
                )
            if ranges.low.shape != ranges.high.shape or values["digest"] != ranges.digest:
                raise ValueError("its digest differs")
            return ranges

    def _to_lists(self) -> dict[str, list[float]]:
        return {"low": self.low.tolist(), "high": self.high.tolist()}


def compute_code_width(precision: str, dim: int) -> int:
    """Return the codes of a vector of `dim` components: bits are packed by eights."""
    return -(-dim // 8) if precision in _BITS else dim


def count_vector_bytes(precision: str, dim: int) -> int:
    """Return the bytes of a stored vector, with the floats that are kept beside codes."""
    codes = np.dtype(CODES[precision]).itemsize * compute_code_width(precision, dim)
    return codes if precision == "float32" else codes + 4 * dim


def quantize(vectors: np.ndarray, precision: str, ranges: Ranges | None = None) -> np.ndarray:
    """Return codes [n, code_width] of finite vectors float32 [n, d], of the type in `CODES`.

    `uint8` counts 255 steps from the component's lower bound, to the nearest (half to even);
    `float16` rounds likewise. Values outside of the bounds, or of float16, take the nearest value
    within. `ubinary` packs bits (above zero or not), the first component highest. `int8` and
    `binary` are those bytes less 128. Layout as in sentence-transformers' `quantize_embeddings`,
    which cuts off instead of rounding and wraps around.
    """
    if precision == "float16":
        largest = np.finfo(np.float16).max
        return np.clip(vectors, -largest, largest).astype(np.float16)
    if precision == "float32":
        return np.asarray(vectors, np.float32)
    if precision in _BITS:
        codes = np.packbits(vectors > 0, axis=1)
    else:
        assert ranges is not None
        codes = _count_steps(vectors, ranges)
    return (codes ^ _SIGN).view(np.int8) if CODES[precision] is np.int8 else codes


def _count_steps(vectors: np.ndarray, ranges: Ranges) -> np.ndarray:
    """Return the steps of each value from its lower bound, uint8 [n, d]."""
    step = ranges.step
    codes = np.empty(vectors.shape, np.uint8)
    for start in range(0, len(vectors), _BLOCK_ROWS):
        inside = np.clip(vectors[start : start + _BLOCK_ROWS], ranges.low, ranges.high)
        steps = (inside.astype(np.float64) - ranges.low) / step
        codes[start : start + _BLOCK_ROWS] = np.rint(steps)
    return codes


def dequantize(
    codes: np.ndarray, precision: str, dim: int, ranges: Ranges | None = None
) -> np.ndarray:
    """Return vectors float32 [n, d] of codes [n, code_width].

    They are within half a step of those coded, or 1 and -1 for bits.
    """
    if precision in ("float16", "float32"):
        return codes.astype(np.float32, copy=False)
    if CODES[precision] is np.int8:
        codes = codes.view(np.uint8) ^ _SIGN
    if precision in _BITS:
        return np.unpackbits(codes, axis=1, count=dim).astype(np.float32) * 2 - 1
    assert ranges is not None
    values = ranges.low + codes.astype(np.float64) * ranges.step
    # sums may round past the bound
    return np.clip(values.astype(np.float32), ranges.low, ranges.high)


def make_embedding_type(space: Space) -> pa.DataType:
    """Return the type of a shard's column `embedding`."""
    return pa.list_(
        pa.from_numpy_dtype(CODES[space.precision]), compute_code_width(space.precision, space.dim)
    )


@dataclass(frozen=True)
class Coding:
    """The coding of a space's vectors as a column; it has `ranges` for int8 and uint8."""

    space: Space
    ranges: Ranges | None = None

    def __post_init__(self) -> None:
        if (self.space.precision in RANGED) != (self.ranges is not None):
            raise SentenceBeamError(
                f"precision {self.space.precision} and its ranges do not go together"
            )

    @classmethod
    def from_shard(cls, metadata: Mapping[bytes, bytes] | None, where: str) -> "Coding":
        """Return the coding that a shard's metadata describes.

        Raises SentenceBeamError naming the file if it has none.
        """
        about = metadata or {}
        with refuse_damage(f"{where} is not an embedding shard: no space in its metadata"):
            space = Space.from_json(json.loads(about[SPACE]))
        ranges = Ranges.from_bytes(about[RANGES], where) if RANGES in about else None
        return cls(space, ranges)

    @property
    def is_exact(self) -> bool:
        """Whether the column holds the vectors unchanged."""
        return self.space.precision == "float32"

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of a shard with this coding."""
        metadata = {SPACE.decode(): json.dumps(self.space.to_json(), sort_keys=True)}
        if self.ranges is not None:
            metadata[RANGES.decode()] = self.ranges.to_bytes().decode()
        return metadata

    def encode(self, vectors: np.ndarray) -> pa.FixedSizeListArray:
        """Return the column that holds vectors float32 [n, d]."""
        codes = np.ascontiguousarray(quantize(vectors, self.space.precision, self.ranges))
        return pa.FixedSizeListArray.from_arrays(pa.array(codes.reshape(-1)), codes.shape[1])

    def decode(self, column: pa.FixedSizeListArray) -> np.ndarray:
        """Return the vectors float32 [n, d] of a column, of length 1 if the space's are."""
        codes = as_values(column)
        if self.is_exact:
            return codes
        vectors = dequantize(codes, self.space.precision, self.space.dim, self.ranges)
        if not self.space.normalize:
            return vectors
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), SHORTEST)


def to_float_space(space: Space) -> Space:
    """Return the space of the vectors before they are stored in fewer bits."""
    return replace(space, precision="float32")


def needs_ranges(space: Space) -> bool:
    """Return whether a space's precision needs fitted bounds (int8, uint8)."""
    return space.precision in RANGED


def select_fitting(entry: RangesEntry | None, space: Space) -> RangesEntry | None:
    """Return the manifest's entry of its ranges if they were fitted on this space's floats.

    Returns None otherwise.
    """
    fits = entry and needs_ranges(space) and entry.space == to_float_space(space).id
    return entry if fits else None


def keep_ranges(root: str, ranges: Ranges, space: Space) -> RangesEntry:
    """Write ranges into a store, once, and return the manifest's entry."""
    path = layout.ranges(ranges.digest)
    storage.ensure(storage.join(root, path), ranges.to_bytes())
    return RangesEntry(path, ranges.digest, to_float_space(space).id)


def read_kept_ranges(root: str, entry: RangesEntry) -> Ranges:
    """Return the ranges that a manifest names.

    Raises SentenceBeamError naming the file if it is missing or changed.
    """
    path = storage.join(root, entry.path)
    stored = storage.storage_of(path).read_versioned(path)
    if stored is None:
        raise SentenceBeamError(
            f"{path} is missing; restore it, or embed with {cite('precision')} float32 and then"
            " again"
        )
    ranges = Ranges.from_bytes(stored[0], path)
    if ranges.digest != entry.digest:
        raise SentenceBeamError(f"{path} is not the file that the manifest names; restore it")
    return ranges
