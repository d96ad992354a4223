"""Scoring a task of sentence pairs: correlations over all pairs, per subset, and their averages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transforms.calibration.quality import alignment, cosines, mean_cosine, pearson, spearman, uniformity


@dataclass(frozen=True)
class Subset:
    """Pairs that are scored together: gold scores float64 [n] and the rows of each side's vectors, int64 [n]."""

    name: str
    gold: np.ndarray
    first: np.ndarray
    second: np.ndarray


@dataclass(frozen=True)
class Score:
    """Correlation of cosines with gold scores, x100, over `n` pairs of a subset; NaN where undefined.

    Subset `all` is one correlation over the union of the task's files, `mean` and `wmean` average those of the files,
    the latter weighted by size.
    """

    subset: str
    n: int
    spearman: float
    pearson: float


@dataclass(frozen=True)
class Geometry:
    """The spread of a task's vectors: uniformity and alignment (arXiv:2005.10242), mean cosine of different rows."""

    uniformity: float
    alignment: float
    mean_cosine: float


def score_task(subsets: Sequence[Subset], vectors: np.ndarray) -> list[Score]:
    """The scores `all`, `mean` and `wmean`, then that of each subset; for a single subset all four are the same."""
    similar = [cosines(vectors[subset.first], vectors[subset.second]) for subset in subsets]
    each = [_score(subset.name, subset.gold, found) for subset, found in zip(subsets, similar, strict=True)]
    weights = np.array([score.n for score in each], np.float64)
    union = _score("all", np.concatenate([subset.gold for subset in subsets]), np.concatenate(similar))
    values = np.array([[score.spearman, score.pearson] for score in each])
    mean = Score("mean", union.n, *map(float, values.mean(axis=0)))
    wmean = Score("wmean", union.n, *map(float, np.average(values, axis=0, weights=weights)))
    return [union, mean, wmean, *each]


def _score(subset: str, gold: np.ndarray, cosine: np.ndarray) -> Score:
    if len(gold) < 2:
        return Score(subset, len(gold), math.nan, math.nan)
    return Score(subset, len(gold), 100 * spearman(cosine, gold), 100 * pearson(cosine, gold))


def geometry(subsets: Sequence[Subset], vectors: np.ndarray) -> Geometry:
    """The geometry of the vectors of a task's first and second sentences, duplicates kept."""
    first, second = (
        vectors[np.concatenate([getattr(subset, side) for subset in subsets])] for side in ("first", "second")
    )
    both, gold = np.concatenate([first, second]), np.concatenate([subset.gold for subset in subsets])
    return Geometry(uniformity(both)[0], alignment(first, second, gold), mean_cosine(both))
