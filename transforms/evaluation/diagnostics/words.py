"""Token statistics for figures, and how a model's word embeddings lie by frequency (BERT-flow,
table 1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.evaluation.diagnostics.figures import Row, figure

if TYPE_CHECKING:
    from transforms.pooling.token_statistics import TokenStatistics

RANKS = (0, 100, 500, 5000)
NEIGHBOURS = (3, 5, 7)
LOOKED_AT = 1000  # of each bin, for the neighbours, which are looked for in the whole vocabulary
_BLOCK_BYTES = 64 << 20


@dataclass(frozen=True)
class WordCounts:
    """Counts of each token id, and the information of a token that occurs; `source` says what was
    counted.

    `information` [V] float64: log2 of documents over those that hold the token, or of tokens over
    its occurrences.
    """

    counts: np.ndarray
    information: np.ndarray
    source: str

    @classmethod
    def of(cls, statistics: "TokenStatistics", source: str) -> "WordCounts":
        """The words of token statistics of either method."""
        of_documents = statistics.method == "tfidf"
        total = statistics.documents if of_documents else int(statistics.counts.sum())
        return cls(
            statistics.counts,
            _information(total, statistics.counts),
            f"{source}, {statistics.documents:,} texts",
        )

    @classmethod
    def of_texts(cls, ids: Sequence[np.ndarray], vocabulary: int) -> "WordCounts":
        """The words of the texts that are looked at themselves, by their token ids."""
        held = np.concatenate([np.unique(text) for text in ids])
        holding = np.bincount(held, minlength=vocabulary)
        counts = np.bincount(np.concatenate(ids), minlength=vocabulary)
        return cls(counts, _information(len(ids), holding), f"the {len(ids):,} texts themselves")


def _information(total: int, counts: np.ndarray) -> np.ndarray:
    return np.log2(max(total, 1) / np.maximum(counts, 1))


def bins(counts: np.ndarray, special: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
    """Ids of the tokens that occur, by frequency: first and last rank (from 0, exclusive) of a bin,
    its ids [m].
    """
    plain = np.setdiff1d(np.flatnonzero(counts), special)
    ids = plain[np.argsort(-counts[plain], kind="stable")]
    bounds = [bound for bound in (*RANKS, len(ids)) if bound <= len(ids)]
    return [(low, high, ids[low:high]) for low, high in pairwise(bounds) if high > low]


def of_words(matrix: np.ndarray, words: WordCounts, special: np.ndarray) -> list[Row]:
    """Mean norm of the embeddings [V, E] of each bin, mean distance to the nearest others, dot
    product with these.
    """
    vocabulary = np.setdiff1d(np.arange(len(matrix)), special)
    found: list[Row] = []
    for low, high, ids in bins(words.counts[: len(matrix)], special):
        told: dict[str, Any] = {"low": low, "high": high, "words": words.source}
        norms = np.linalg.norm(matrix[ids].astype(np.float64), axis=1)
        found.append(figure("norm", float(norms.mean()), len(ids), **told))
        chosen = ids[np.linspace(0, len(ids) - 1, min(len(ids), LOOKED_AT)).astype(int)]
        distances, products = nearest(matrix, chosen, vocabulary, max(NEIGHBOURS))
        for k in NEIGHBOURS:
            near = {**told, "neighbours": k}
            found.append(
                figure("neighbour-distance", float(distances[:, :k].mean()), len(chosen), **near)
            )
            found.append(
                figure("neighbour-product", float(products[:, :k].mean()), len(chosen), **near)
            )
    return found


def nearest(
    matrix: np.ndarray, ids: np.ndarray, among: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Euclidean distances of tokens to their `k` nearest others, ascending, and dot products with
    them, [n, k] each.
    """
    others = matrix[among].astype(np.float32)
    squares = np.square(others, dtype=np.float64).sum(axis=1)
    k = min(k, len(among) - 1)
    distances, products = np.empty((len(ids), k)), np.empty((len(ids), k))
    size = max(1, _BLOCK_BYTES // (8 * len(among)))
    for start in range(0, len(ids), size):
        block = ids[start : start + size]
        dots = (matrix[block].astype(np.float32) @ others.T).astype(np.float64)
        own = np.square(matrix[block], dtype=np.float64).sum(axis=1)
        apart = own[:, None] + squares - 2 * dots
        apart[among[None, :] == block[:, None]] = np.inf
        places = np.argpartition(apart, k - 1, axis=1)[:, :k]
        order = np.take_along_axis(
            places, np.take_along_axis(apart, places, 1).argsort(axis=1, kind="stable"), 1
        )
        distances[start : start + size] = np.sqrt(
            np.maximum(np.take_along_axis(apart, order, 1), 0)
        )
        products[start : start + size] = np.take_along_axis(dots, order, 1)
    return distances, products


def weights_of(ids: Sequence[np.ndarray], words: WordCounts) -> np.ndarray:
    """tf * idf of each token of texts, one text after the other: its occurrences in its text times
    its information.
    """
    parts = []
    for text in ids:
        _, inverse, times = np.unique(text, return_inverse=True, return_counts=True)
        parts.append(times[inverse] * words.information[text])
    return np.concatenate(parts) if parts else np.empty(0)
