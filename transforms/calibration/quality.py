"""Scores of embeddings: correlation with human judgements, uniformity, alignment, anisotropy."""

import math

import numpy as np

from sentence_beam.transforms.space.identity import SHORTEST

BLOCK = 2048
EXACT_UNIFORMITY_ROWS = 20_000
SAMPLED_PAIRS = 10_000_000


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale rows to length 1, float64 [n, d]; a zero row stays zero."""
    wide = np.asarray(vectors, np.float64)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), SHORTEST)


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the cosine of each pair of rows, float64 [n]; 0 if it is undefined."""
    return np.nan_to_num(np.einsum("nd,nd->n", unit(a), unit(b)))


def pearson(a: np.ndarray, b: np.ndarray) -> float:
    """Return Pearson's correlation of two lists of numbers; NaN if one is constant."""
    a = np.asarray(a, np.float64)
    b = np.asarray(b, np.float64)
    a = a - a.mean()
    b = b - b.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 0 else math.nan


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Return Spearman's correlation, ties by average ranks; NaN if a list is constant."""
    return pearson(average_ranks(a), average_ranks(b))


def average_ranks(values: np.ndarray) -> np.ndarray:
    """Return the ranks of values, from 1, float64 [n]; equal values share the mean of theirs."""
    _, place, count = np.unique(
        np.asarray(values, np.float64), return_inverse=True, return_counts=True
    )
    last = np.cumsum(count)
    return (last - (count - 1) / 2.0)[place]


def mean_cosine(vectors: np.ndarray) -> float:
    """Return the mean cosine over all pairs of different rows that are not zero, in (-1, 1].

    NaN below two such rows. It measures anisotropy (Ethayarajh 2019).
    """
    rows = np.asarray(vectors, np.float64)
    rows = rows[np.linalg.norm(rows, axis=1) > 0]
    n = len(rows)
    if n < 2:
        return math.nan
    total = unit(rows).sum(axis=0)
    return (float(total @ total) - n) / (n * (n - 1))


def alignment(a: np.ndarray, b: np.ndarray, gold: np.ndarray, above: float = 4.0) -> float:
    """Return the mean squared distance of the unit vectors of pairs with a gold score above 4.

    NaN without such a pair. Wang & Isola, arXiv:2005.10242; the threshold is SimCSE's
    (arXiv:2104.08821).
    """
    near = np.asarray(gold) > above
    if not near.any():
        return math.nan
    return float(((unit(a[near]) - unit(b[near])) ** 2).sum(axis=1).mean())


def uniformity(vectors: np.ndarray) -> tuple[float, float]:
    """Return ln of the mean of exp(-2 |x-y|^2) over unordered pairs, and its standard error.

    Wang & Isola, arXiv:2005.10242. Up to 20 000 rows all pairs are used, and the error is 0; above,
    a seeded sample of ten million pairs. NaN below two rows.
    """
    rows = unit(vectors)
    if len(rows) < 2:
        return math.nan, 0.0
    if len(rows) > EXACT_UNIFORMITY_ROWS:
        return _sample_uniformity(rows, np.random.default_rng(0))
    total = 0.0
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        potential = np.exp(4 * (block @ rows[start:].T) - 4)  # |x-y|^2 = 2 - 2 cos
        total += float(np.triu(potential, 1).sum())
    return math.log(total / (len(rows) * (len(rows) - 1) / 2)), 0.0


def _sample_uniformity(rows: np.ndarray, generator: np.random.Generator) -> tuple[float, float]:
    total = 0.0
    squares = 0.0
    pairs = 0
    while pairs < SAMPLED_PAIRS:
        i = generator.integers(0, len(rows), 100_000)
        j = (i + generator.integers(1, len(rows), len(i))) % len(rows)
        potential = np.exp(4 * np.einsum("nd,nd->n", rows[i], rows[j]) - 4)
        total += float(potential.sum())
        squares += float(potential @ potential)
        pairs += len(i)
    mean = total / pairs
    error = math.sqrt(max(squares / pairs - mean**2, 0.0) / pairs) / mean
    return math.log(mean), error
