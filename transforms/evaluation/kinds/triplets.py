"""Triplets: is a text nearer to its positive text than to the negative one?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.evaluation import classifier, task_files
from sentence_beam.transforms.evaluation.evidence import Evidence, Means
from sentence_beam.transforms.evaluation.similarity import COSINE, similarities
from sentence_beam.transforms.evaluation.task import Predictions, TaskVectors

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder.pair_scorer import PairScorer

COLUMNS = ("anchor", "positive", "negative")


@dataclass(frozen=True)
class Triplets:
    """Triplets of texts; the score is the share whose anchor is more similar to the positive text.

    SBERT's protocol (arXiv:1908.10084, section 4.4); equal similarities are wrong.
    """

    name: str
    anchors: list[str]
    positives: list[str]
    negatives: list[str]
    kind: str = "triplets"
    queries: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    similarity: str = COSINE

    @classmethod
    def read(cls, name: str, paths: Sequence[str], similarity: str = COSINE) -> "Triplets":
        """Read files with the columns anchor, positive, negative."""
        rows = [row for path in paths for _, row in task_files.read_table(path, COLUMNS)]
        if not rows:
            raise OptionError(f"{cite('task')} triplets:{name} holds no triplet; check the file")
        anchors, positives, negatives = (list(column) for column in zip(*rows, strict=True))
        return cls(name, anchors, positives, negatives, similarity=similarity)

    @property
    def texts(self) -> list[str]:
        return [*self.anchors, *self.positives, *self.negatives]

    def predict(self, vectors: TaskVectors) -> Predictions:
        anchors = vectors.lookup(self.anchors)
        near = similarities(self.similarity, anchors, vectors.lookup(self.positives))
        far = similarities(self.similarity, anchors, vectors.lookup(self.negatives))
        return {"correct": (near > far).astype(np.float64)}

    def predict_pairs(self, scorer: "PairScorer", first: Predictions) -> Predictions:
        """Score the triplets by a cross-encoder."""
        near = scorer.scores(self.anchors, self.positives)
        far = scorer.scores(self.anchors, self.negatives)
        return {"correct": (near > far).astype(np.float64)}

    def evidence(self, predictions: Sequence[Predictions]) -> dict[str, Evidence]:
        return {"accuracy": Means(classifier.stack_correct(predictions))}
