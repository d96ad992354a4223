"""Duplicate detection: pairs that are duplicates or not, found by the cosine of their vectors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transforms.base.errors import OptionError
from transforms.calibration.quality import cosines
from transforms.evaluation import tables
from transforms.evaluation.detections import Detections, best_threshold
from transforms.evaluation.evidence import ALL, Evidence
from transforms.evaluation.pair_files import SIDES
from transforms.evaluation.task import Predictions, TaskVectors

YES, NO = ("1", "true", "yes"), ("0", "false", "no")


@dataclass(frozen=True)
class Duplicates:
    """Pairs of sentences with the label 1 (duplicates) or 0; scored by average precision and by the
    best F1.
    """

    name: str
    labels: np.ndarray
    first: list[str]
    second: list[str]
    kind: str = "pairs"
    queries: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def read(cls, name: str, paths: Sequence[str]) -> "Duplicates":
        """The task of files with the columns label, sentence1, sentence2."""
        labels, first, second = [], [], []
        for path in paths:
            for line, (label, one, other) in tables.read_table(path, ("label", *SIDES)):
                word = tables.label(path, line, label).lower()
                if word not in YES + NO:
                    raise tables.bad_line(path, line, f"label {label!r} is not 1 or 0")
                labels.append(word in YES)
                first.append(one)
                second.append(other)
        if len(set(labels)) < 2:
            raise OptionError(
                f"--task pairs:{name} needs pairs with label 1 and pairs with label 0; check the"
                " file"
            )
        return cls(name, np.array(labels), first, second)

    @property
    def texts(self) -> list[str]:
        return [*self.first, *self.second]

    def predict(self, vectors: TaskVectors) -> Predictions:
        cosine = cosines(vectors.of(self.first), vectors.of(self.second))
        return {"cosine": cosine, f"{ALL}/threshold": np.array(best_threshold(cosine, self.labels))}

    def evidence(self, predictions: Sequence[Predictions]) -> dict[str, Evidence]:
        values = np.stack([found["cosine"] for found in predictions])
        return {measure: Detections(values, self.labels, measure) for measure in ("ap", "f1")}
