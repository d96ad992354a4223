"""Vectors of a unit's rows, from the encoder and as a shard holds them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Vectors:
    """The encoder's results for the rows of a unit.

    `embedding` float32 [n, d], `norm` float32 [n] (length of the pooled vector), `pooled` float32
    [n, p] if it does not follow from those two, `tokens` int32 [n] before truncation, `truncated`
    bool [n], `lost` int32 [n] tokens cut off.
    """

    embedding: np.ndarray
    norm: np.ndarray
    tokens: np.ndarray
    truncated: np.ndarray
    lost: np.ndarray
    pooled: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> "Vectors":
        """Return the given rows, in the given order; copy nothing if these are all in order."""
        if np.array_equal(rows, np.arange(len(self.norm))):
            return self
        pooled = None if self.pooled is None else self.pooled[rows]
        return Vectors(
            self.embedding[rows],
            self.norm[rows],
            self.tokens[rows],
            self.truncated[rows],
            self.lost[rows],
            pooled,
        )

    @classmethod
    def concat(cls, parts: "Sequence[Vectors]") -> "Vectors":
        """Return the rows of all parts (one at least, of one space), in order."""
        if len(parts) == 1:
            return parts[0]
        names = [name for name, column in vars(parts[0]).items() if column is not None]
        return cls(
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        )


def compute_pooled(vectors: Vectors, normalized: bool) -> np.ndarray:
    """Return pooled vectors float32 [n, p] of final ones, which were `normalized` or not."""
    if vectors.pooled is not None:
        return vectors.pooled
    return vectors.embedding * vectors.norm[:, None] if normalized else vectors.embedding
