"""Duplicate detection: find duplicate pairs by the similarity of their vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.evaluation import task_files
from sentence_beam.transforms.evaluation.detections import Detections, best_threshold
from sentence_beam.transforms.evaluation.evidence import ALL, Evidence
from sentence_beam.transforms.evaluation.pair_files import NO, YES, find_label_column, find_sides
from sentence_beam.transforms.evaluation.similarity import COSINE, similarities
from sentence_beam.transforms.evaluation.task import Predictions, TaskVectors

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder.pair_scorer import PairScorer


@dataclass(frozen=True)
class Duplicates:
    """Pairs of sentences with the label 1 (duplicates) or 0.

    They are scored by average precision and by the best F1.
    """

    name: str
    labels: np.ndarray
    first: list[str]
    second: list[str]
    kind: str = "pairs"
    queries: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    similarity: str = COSINE

    @classmethod
    def read(cls, name: str, paths: Sequence[str], similarity: str = COSINE) -> "Duplicates":
        """Read files with label, sentence1, sentence2, or with QQP's columns."""
        labels = []
        first = []
        second = []
        for path in paths:
            header = task_files.read_header(path)
            columns = (find_label_column(header), *find_sides(header))
            for line, (label, text_a, text_b) in task_files.read_table(path, columns):
                word = task_files.parse_label(path, line, label).lower()
                if word not in YES + NO:
                    raise task_files.make_line_error(path, line, f"label {label!r} is not 1 or 0")
                labels.append(word in YES)
                first.append(text_a)
                second.append(text_b)
        if len(set(labels)) < 2:
            raise OptionError(
                f"{cite('task')} pairs:{name} needs pairs with label 1 and pairs with label 0;"
                " check the file"
            )
        return cls(name, np.array(labels), first, second, similarity=similarity)

    @property
    def texts(self) -> list[str]:
        return [*self.first, *self.second]

    def predict(self, vectors: TaskVectors) -> Predictions:
        return self._add_threshold(
            similarities(self.similarity, vectors.lookup(self.first), vectors.lookup(self.second))
        )

    def predict_pairs(self, scorer: "PairScorer", first: Predictions) -> Predictions:
        """Score the pairs by a cross-encoder."""
        return self._add_threshold(scorer.scores(self.first, self.second))

    def _add_threshold(self, scores: np.ndarray) -> Predictions:
        return {"score": scores, f"{ALL}/threshold": np.array(best_threshold(scores, self.labels))}

    def evidence(self, predictions: Sequence[Predictions]) -> dict[str, Evidence]:
        values = np.stack([prediction["score"] for prediction in predictions])
        return {measure: Detections(values, self.labels, measure) for measure in ("ap", "f1")}
