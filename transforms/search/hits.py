"""The best rows of queries as arrays, and one such row as a search returns it."""

from dataclasses import dataclass
from typing import Any

import numpy as np


class Hit(dict[str, Any]):
    """A row that a search found: a dict of `rank`, `score`, `id` and the kept columns.

    `rerank` is the score of a cross-encoder, if one sorted the hits. If rows are pieces of
    documents, a hit also has `piece`, `pieces`, `start` and `end`, and, if text is kept, `passage`.
    """

    @property
    def rank(self) -> int:
        """The place among the hits of its query, from 1."""
        return int(self["rank"])

    @property
    def score(self) -> float:
        """The cosine, inner product or squared distance, by the store's metric."""
        return float(self["score"])

    @property
    def id(self) -> str:
        """The id of the row, or of the document that it is a piece of."""
        return str(self["id"])


@dataclass(frozen=True)
class Hits:
    """The best rows of queries [q, k]: scores float32, shard number and row in the shard int64.

    Missing rows have shard -1.
    """

    scores: np.ndarray
    shard: np.ndarray
    row: np.ndarray

    @classmethod
    def from_positions(cls, scores: np.ndarray, positions: np.ndarray) -> "Hits":
        """Return hits at positions: the number of a shard << 32, and the row in it; -1 is none."""
        return cls(scores, np.where(positions >= 0, positions >> 32, -1), positions & 0xFFFFFFFF)

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores, shards and rows."""
        return self.scores, self.shard, self.row

    def at(self, places: list[list[int]], k: int) -> "Hits":
        """Return the hits at these places of each query, filled up to k with missing rows."""
        hits = make_no_hits(len(places), k)
        for source, target in zip(self.columns, hits.columns, strict=True):
            for query, chosen in enumerate(places):
                target[query, : len(chosen)] = source[query][chosen]
        return hits


def make_no_hits(queries: int, k: int) -> Hits:
    """Return hits [queries, k] that are all missing."""
    missing = np.full((queries, k), -1, np.int64)
    return Hits(np.full((queries, k), -np.inf, np.float32), missing, missing.copy())


def join_hits(groups: list[Hits]) -> Hits:
    """Return the hits of several groups of queries as one, in order."""
    columns = zip(*(hits.columns for hits in groups), strict=True)
    return Hits(*(np.concatenate(column) for column in columns))
