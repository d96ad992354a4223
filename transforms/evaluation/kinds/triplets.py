"""Triplets: is a text nearer to the one that belongs to it than to the one that does not?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transforms.base.errors import OptionError
from transforms.calibration.quality import cosines
from transforms.evaluation import tables
from transforms.evaluation.evidence import Evidence, Means
from transforms.evaluation.task import Predictions, TaskVectors

COLUMNS = ("anchor", "positive", "negative")


@dataclass(frozen=True)
class Triplets:
    """Triplets of texts; the score is the share whose anchor has a larger cosine with the positive
    text.

    SBERT's protocol (arXiv:1908.10084, section 4.4) by cosine; equal cosines are wrong.
    """

    name: str
    anchors: list[str]
    positives: list[str]
    negatives: list[str]
    kind: str = "triplets"
    queries: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def read(cls, name: str, paths: Sequence[str]) -> "Triplets":
        """The task of files with the columns anchor, positive, negative."""
        rows = [row for path in paths for _, row in tables.read_table(path, COLUMNS)]
        if not rows:
            raise OptionError(f"--task triplets:{name} holds no triplet; check the file")
        anchors, positives, negatives = (list(column) for column in zip(*rows, strict=True))
        return cls(name, anchors, positives, negatives)

    @property
    def texts(self) -> list[str]:
        return [*self.anchors, *self.positives, *self.negatives]

    def predict(self, vectors: TaskVectors) -> Predictions:
        anchors = vectors.of(self.anchors)
        near, far = (
            cosines(anchors, vectors.of(side)) for side in (self.positives, self.negatives)
        )
        return {"correct": (near > far).astype(np.float64)}

    def evidence(self, predictions: Sequence[Predictions]) -> dict[str, Evidence]:
        return {"accuracy": Means(np.stack([found["correct"] for found in predictions]))}
