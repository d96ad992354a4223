"""Semantic textual similarity: correlation of the vectors' similarity with the scores that people
gave.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from transforms.calibration.quality import alignment, mean_cosine, uniformity
from transforms.evaluation.correlations import Correlations
from transforms.evaluation.evidence import ALL, Evidence
from transforms.evaluation.pair_files import ScoredPairs, distinct, read_subsets
from transforms.evaluation.similarity import COSINE, similarities
from transforms.evaluation.task import Predictions, TaskVectors

if TYPE_CHECKING:
    from transforms.encoder.pair_scorer import PairScorer


@dataclass(frozen=True)
class Sts:
    """Pairs with gold scores, in one or more subsets that are scored together and one by one."""

    name: str
    subsets: tuple[ScoredPairs, ...]
    kind: str = "sts"
    queries: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    similarity: str = COSINE

    @classmethod
    def read(cls, name: str, paths: Sequence[str], similarity: str = COSINE) -> "Sts":
        """The task of some files and folders."""
        subsets = distinct([subset for path in paths for subset in read_subsets(path)])
        return cls(name, subsets, similarity=similarity)

    @property
    def texts(self) -> list[str]:
        return [*self._side("first"), *self._side("second")]

    def predict(self, vectors: TaskVectors) -> Predictions:
        first, second = vectors.of(self._side("first")), vectors.of(self._side("second"))
        figures = {
            f"{ALL}/{name}": value
            for name, value in asdict(geometry(first, second, self.gold)).items()
        }
        scores = self._scored(similarities(self.similarity, first, second))
        return {**scores, **{name: np.array(value) for name, value in figures.items()}}

    def predict_pairs(self, scorer: "PairScorer", first: Predictions) -> Predictions:
        """What a cross-encoder makes of the pairs."""
        return self._scored(scorer.scores(self._side("first"), self._side("second")))

    def _scored(self, scores: np.ndarray) -> dict[str, np.ndarray]:
        pearson = self._correlations(scores[None], ranked=False).scores()
        return {
            "score": scores,
            **{f"{subset}/pearson": 100 * values[0] for subset, values in pearson.items()},
        }

    def evidence(self, predictions: Sequence[Predictions]) -> dict[str, Evidence]:
        return {"spearman": self._correlations(np.stack([found["score"] for found in predictions]))}

    @property
    def gold(self) -> np.ndarray:
        """The gold scores of all pairs, float64 [n]."""
        return np.concatenate([subset.gold for subset in self.subsets])

    def _side(self, side: str) -> list[str]:
        return [text for subset in self.subsets for text in getattr(subset, side)]

    def _correlations(self, values: np.ndarray, ranked: bool = True) -> Correlations:
        return Correlations(
            values, self.gold, tuple((s.name, len(s.gold)) for s in self.subsets), ranked
        )


@dataclass(frozen=True)
class Geometry:
    """The spread of a task's vectors: uniformity and alignment (arXiv:2005.10242), mean cosine of
    different rows.
    """

    uniformity: float
    alignment: float
    mean_cosine: float


def geometry(first: np.ndarray, second: np.ndarray, gold: np.ndarray) -> Geometry:
    """The geometry of the vectors of pairs' first and second sentences, duplicates kept."""
    both = np.concatenate([first, second])
    return Geometry(uniformity(both)[0], alignment(first, second, gold), mean_cosine(both))
