"""Semantic textual similarity: correlate the vectors' similarity with scores of people."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from sentence_beam.transforms.calibration.quality import alignment, mean_cosine, uniformity
from sentence_beam.transforms.evaluation.correlations import Correlations
from sentence_beam.transforms.evaluation.evidence import ALL, Evidence
from sentence_beam.transforms.evaluation.pair_files import ScoredPairs, number_names, read_subsets
from sentence_beam.transforms.evaluation.similarity import COSINE, similarities
from sentence_beam.transforms.evaluation.task import Predictions, TaskVectors

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder.pair_scorer import PairScorer


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
        """Read files and folders."""
        subsets = number_names([subset for path in paths for subset in read_subsets(path)])
        return cls(name, subsets, similarity=similarity)

    @property
    def texts(self) -> list[str]:
        return [*self._list_side("first"), *self._list_side("second")]

    def predict(self, vectors: TaskVectors) -> Predictions:
        first = vectors.lookup(self._list_side("first"))
        second = vectors.lookup(self._list_side("second"))
        predictions = self._add_pearson(similarities(self.similarity, first, second))
        for name, value in asdict(measure_geometry(first, second, self.gold)).items():
            predictions[f"{ALL}/{name}"] = np.array(value)
        return predictions

    def predict_pairs(self, scorer: "PairScorer", first: Predictions) -> Predictions:
        """Score the pairs by a cross-encoder."""
        return self._add_pearson(scorer.scores(self._list_side("first"), self._list_side("second")))

    def _add_pearson(self, scores: np.ndarray) -> dict[str, np.ndarray]:
        pearson = self._correlate(scores[None], ranked=False).scores()
        return {
            "score": scores,
            **{f"{subset}/pearson": 100 * values[0] for subset, values in pearson.items()},
        }

    def evidence(self, predictions: Sequence[Predictions]) -> dict[str, Evidence]:
        return {
            "spearman": self._correlate(
                np.stack([prediction["score"] for prediction in predictions])
            )
        }

    @property
    def gold(self) -> np.ndarray:
        """The gold scores of all pairs, float64 [n]."""
        return np.concatenate([subset.gold for subset in self.subsets])

    def _list_side(self, side: str) -> list[str]:
        return [text for subset in self.subsets for text in getattr(subset, side)]

    def _correlate(self, values: np.ndarray, ranked: bool = True) -> Correlations:
        return Correlations(
            values, self.gold, tuple((s.name, len(s.gold)) for s in self.subsets), ranked
        )


@dataclass(frozen=True)
class Geometry:
    """The spread of a task's vectors: uniformity, alignment, mean cosine of different rows.

    Uniformity and alignment are those of arXiv:2005.10242.
    """

    uniformity: float
    alignment: float
    mean_cosine: float


def measure_geometry(first: np.ndarray, second: np.ndarray, gold: np.ndarray) -> Geometry:
    """Return the geometry of the vectors of both sentences of each pair, duplicates kept."""
    both = np.concatenate([first, second])
    return Geometry(uniformity(both)[0], alignment(first, second, gold), mean_cosine(both))
