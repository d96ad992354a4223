"""Embeddings as a shard holds them: the column of a space's precision, and the vectors back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transforms.calibration.quality import SHORTEST
from transforms.errors import SentenceBeamError
from transforms.space import Space
from transforms.store.precision import CODES, RANGED, Ranges, code_width, dequantize, quantize

SPACE, RANGES = b"space", b"ranges"


def embedding_type(space: Space) -> pa.DataType:
    """The type of a shard's column `embedding`."""
    return pa.list_(pa.from_numpy_dtype(CODES[space.precision]), code_width(space.precision, space.dim))


@dataclass(frozen=True)
class Coding:
    """How the vectors of a space become a column, and come back; `ranges` where its precision is of whole steps."""

    space: Space
    ranges: Ranges | None = None

    def __post_init__(self) -> None:
        if (self.space.precision in RANGED) != (self.ranges is not None):
            raise SentenceBeamError(f"precision {self.space.precision} and its ranges do not go together")

    @classmethod
    def of_shard(cls, metadata: Mapping[bytes, bytes] | None, where: str) -> "Coding":
        """From a shard's own metadata. Raises SentenceBeamError naming the file where it has none."""
        found = metadata or {}
        try:
            space = Space.from_json(json.loads(found[SPACE]))
        except (KeyError, ValueError, TypeError) as error:
            raise SentenceBeamError(f"{where} is not an embedding shard (no space in its metadata)") from error
        return cls(space, Ranges.from_bytes(found[RANGES], where) if RANGES in found else None)

    @property
    def is_exact(self) -> bool:
        """Whether the column holds the vectors as they are."""
        return self.space.precision == "float32"

    @property
    def metadata(self) -> dict[str, str]:
        """What a shard has to say of it."""
        said = {SPACE.decode(): json.dumps(self.space.to_json(), sort_keys=True)}
        return said | ({RANGES.decode(): self.ranges.to_bytes().decode()} if self.ranges else {})

    def encode(self, vectors: np.ndarray) -> pa.FixedSizeListArray:
        """The column of vectors float32 [n, d]."""
        codes = np.ascontiguousarray(quantize(vectors, self.space.precision, self.ranges))
        return pa.FixedSizeListArray.from_arrays(pa.array(codes.reshape(-1)), codes.shape[1])

    def decode(self, column: pa.FixedSizeListArray) -> np.ndarray:
        """Vectors float32 [n, d] that the column stands for, of length 1 where the space's are."""
        codes = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), column.type.list_size)
        if self.is_exact:
            return codes
        vectors = dequantize(codes, self.space.precision, self.space.dim, self.ranges)
        if not self.space.normalize:
            return vectors
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), SHORTEST)
