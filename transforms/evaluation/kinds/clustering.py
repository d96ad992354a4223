"""Clustering: k-means of texts, compared with their labels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.calibration.quality import unit
from sentence_beam.transforms.evaluation import classifier, task_files
from sentence_beam.transforms.evaluation.clusterings import Clusterings
from sentence_beam.transforms.evaluation.evidence import Evidence
from sentence_beam.transforms.evaluation.task import Predictions, TaskVectors, number_labels

SEEDS = 10


@dataclass(frozen=True)
class Clustering:
    """Labelled texts; the score is the mean v-measure of k-means from 10 seeds.

    There are as many clusters as labels. The vectors are scaled to length 1.
    """

    name: str
    labels: np.ndarray
    texts: list[str]
    kind: str = "clustering"
    queries: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def read(cls, name: str, paths: Sequence[str]) -> "Clustering":
        """Read files with the columns label and text."""
        classifier.check_installed()
        rows = [
            (task_files.parse_label(path, line, label), text)
            for path in paths
            for line, (label, text) in task_files.read_table(path, ("label", "text"))
        ]
        if not rows:
            raise OptionError(
                f"{cite('task')} clustering:{name} holds no labelled text; check the file"
            )
        labels, _ = number_labels([label for label, _ in rows], f"clustering:{name}")
        return cls(name, labels, [text for _, text in rows])

    def predict(self, vectors: TaskVectors) -> Predictions:
        from sklearn.cluster import KMeans

        rows = unit(vectors.lookup(self.texts)).astype(np.float32)
        number = int(self.labels.max()) + 1
        labels = [
            KMeans(number, n_init=1, random_state=seed).fit_predict(rows) for seed in range(SEEDS)
        ]
        return {"clusters": np.stack(labels).astype(np.int32)}

    def evidence(self, predictions: Sequence[Predictions]) -> dict[str, Evidence]:
        return {
            "v_measure": Clusterings(
                np.stack([prediction["clusters"] for prediction in predictions]), self.labels
            )
        }
