"""Token statistics for figures, and norms of word embeddings by frequency (BERT-flow, table 1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from sentence_beam.transforms.evaluation.diagnostics.figure_rows import Row, figure

if TYPE_CHECKING:
    from sentence_beam.transforms.pooling.token_statistics import TokenStatistics

RANKS = (0, 100, 500, 5000)
NEIGHBOURS = (3, 5, 7)
SEARCHED = 1000  # tokens of each bin whose neighbours are searched in the whole vocabulary
_BLOCK_BYTES = 64 << 20


@dataclass(frozen=True)
class WordCounts:
    """Counts and information of each token id; `source` names what was counted.

    `information` [V] float64: log2 of documents over those that hold the token, or of tokens over
    its occurrences.
    """

    counts: np.ndarray
    information: np.ndarray
    source: str

    @classmethod
    def from_statistics(cls, statistics: "TokenStatistics", source: str) -> "WordCounts":
        """Return the words of token statistics of either method."""
        total = int(statistics.counts.sum())
        if statistics.method == "tfidf":
            total = statistics.documents
        return cls(
            statistics.counts,
            _information(total, statistics.counts),
            f"{source}, {statistics.documents:,} texts",
        )

    @classmethod
    def count_texts(cls, ids: Sequence[np.ndarray], vocabulary: int) -> "WordCounts":
        """Count the words of the examined texts themselves, by their token ids."""
        held = np.concatenate([np.unique(text) for text in ids])
        holding = np.bincount(held, minlength=vocabulary)
        counts = np.bincount(np.concatenate(ids), minlength=vocabulary)
        return cls(counts, _information(len(ids), holding), f"the {len(ids):,} texts themselves")


def _information(total: int, counts: np.ndarray) -> np.ndarray:
    return np.log2(max(total, 1) / np.maximum(counts, 1))


def bin_tokens(counts: np.ndarray, special: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
    """Return ids of the tokens that occur, in bins by frequency.

    Each bin has its first and last rank (from 0, exclusive) and its ids [m].
    """
    plain = np.setdiff1d(np.flatnonzero(counts), special)
    ids = plain[np.argsort(-counts[plain], kind="stable")]
    bounds = [bound for bound in (*RANKS, len(ids)) if bound <= len(ids)]
    return [(low, high, ids[low:high]) for low, high in pairwise(bounds) if high > low]


def word_figures(matrix: np.ndarray, words: WordCounts, special: np.ndarray) -> list[Row]:
    """Return norms and nearest neighbours of the embeddings [V, E] in each bin.

    For each bin: the mean norm, the mean distance to the nearest others and the mean dot product
    with these.
    """
    vocabulary = np.setdiff1d(np.arange(len(matrix)), special)
    rows: list[Row] = []
    for low, high, ids in bin_tokens(words.counts[: len(matrix)], special):
        more: dict[str, Any] = {"low": low, "high": high, "words": words.source}
        norms = np.linalg.norm(matrix[ids].astype(np.float64), axis=1)
        rows.append(figure("norm", float(norms.mean()), len(ids), **more))
        chosen = ids[np.linspace(0, len(ids) - 1, min(len(ids), SEARCHED)).astype(int)]
        distances, products = find_nearest(matrix, chosen, vocabulary, max(NEIGHBOURS))
        for k in NEIGHBOURS:
            near = {**more, "neighbours": k}
            rows.append(
                figure("neighbour-distance", float(distances[:, :k].mean()), len(chosen), **near)
            )
            rows.append(
                figure("neighbour-product", float(products[:, :k].mean()), len(chosen), **near)
            )
    return rows


def find_nearest(
    matrix: np.ndarray, ids: np.ndarray, among: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return distances of tokens to their `k` nearest others, ascending, and dot products.

    Both are [n, k]; the distances are Euclidean.
    """
    others = matrix[among].astype(np.float32)
    squares = np.square(others, dtype=np.float64).sum(axis=1)
    k = min(k, len(among) - 1)
    distances = np.empty((len(ids), k))
    products = np.empty((len(ids), k))
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


def weigh_tokens(ids: Sequence[np.ndarray], words: WordCounts) -> np.ndarray:
    """Return tf * idf of each token of texts, one text after the other.

    It is the token's occurrences in its text times its information.
    """
    parts = []
    for text in ids:
        _, inverse, times = np.unique(text, return_inverse=True, return_counts=True)
        parts.append(times[inverse] * words.information[text])
    return np.concatenate([np.empty(0), *parts])
