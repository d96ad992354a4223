"""The best rows of queries, as arrays, and one of them with what is shown of it."""

from dataclasses import dataclass
from typing import Any

import numpy as np


class Hit(dict[str, Any]):
    """A row that a search found: a dict of `rank`, `score`, `id` and the kept columns, `text` among
    them if kept.

    If a cross-encoder put the hits into their order, `rerank` is its score. If rows are pieces of
    documents it has `piece`, `pieces`, `start`, `end` and, where text is kept, `passage` too.
    """

    @property
    def rank(self) -> int:
        """The place among the hits of its query, from 1."""
        return int(self["rank"])

    @property
    def score(self) -> float:
        """The cosine, inner product or squared distance, as the store's metric is."""
        return float(self["score"])

    @property
    def id(self) -> str:
        """The id of the row, or of the document that it is a piece of."""
        return str(self["id"])


@dataclass(frozen=True)
class Hits:
    """The best rows of queries [q, k]: scores float32, number of the shard and row in it int64, -1
    for none.
    """

    scores: np.ndarray
    shard: np.ndarray
    row: np.ndarray

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores, shards and rows."""
        return self.scores, self.shard, self.row

    def at(self, places: list[list[int]], k: int) -> "Hits":
        """The hits at these places of each query, with nothing behind them up to k."""
        made = no_hits(len(places), k)
        for column, taken in zip(self.columns, made.columns, strict=True):
            for query, which in enumerate(places):
                taken[query, : len(which)] = column[query][which]
        return made


def no_hits(queries: int, k: int) -> Hits:
    """The hits of queries that find nothing."""
    missing = np.full((queries, k), -1, np.int64)
    return Hits(np.full((queries, k), -np.inf, np.float32), missing, missing.copy())


def joined(found: list[Hits]) -> Hits:
    """The hits of several groups of queries, in order."""
    return Hits(
        *(np.concatenate(column) for column in zip(*(hits.columns for hits in found), strict=True))
    )
