"""Score dev data while a model is trained, by the tasks of `evaluate`, with intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sentence_beam.transforms.evaluation.classifier import mark_correct, stack_correct
from sentence_beam.transforms.evaluation.evidence import ALL, Evidence, Means
from sentence_beam.transforms.evaluation.intervals import Belief, compute_beliefs, draw
from sentence_beam.transforms.evaluation.kinds.judgements import KEEP, Judgements
from sentence_beam.transforms.evaluation.kinds.retrieval import Retrieval
from sentence_beam.transforms.evaluation.kinds.sts import Sts
from sentence_beam.transforms.evaluation.kinds.triplets import Triplets
from sentence_beam.transforms.evaluation.pair_files import ScoredPairs
from sentence_beam.transforms.evaluation.task import Predictions, Task, TaskVectors
from sentence_beam.transforms.training.roles import LABEL, NEGATIVE, SCORE
from sentence_beam.transforms.training.train_options import CLASSIFICATION, RANKING, TRIPLET
from sentence_beam.transforms.training.training_examples import Examples

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder.pair_scorer import PairScorer

DEV = "dev"
Encode = Callable[[Sequence[str]], np.ndarray]  # texts -> vectors float32 [n, d]
# two sides' vectors -> numbers of labels, int64 [n]
Classify = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Labelled:
    """Pairs with labels, numbered in the order of training.

    The score is the accuracy of the trained layer.
    """

    first: list[str]
    second: list[str]
    labels: np.ndarray
    classify: Classify
    name: str = DEV
    kind: str = CLASSIFICATION
    queries: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def texts(self) -> list[str]:
        return [*self.first, *self.second]

    def predict(self, vectors: TaskVectors) -> Predictions:
        labels = self.classify(vectors.lookup(self.first), vectors.lookup(self.second))
        return mark_correct(labels, self.labels)

    def predict_pairs(self, scorer: "PairScorer", first: Predictions) -> Predictions:
        """Score a cross-encoder's labels of the pairs."""
        return mark_correct(scorer.label_numbers(self.first, self.second), self.labels)

    def evidence(self, predictions: Sequence[Predictions]) -> dict[str, Evidence]:
        return {"accuracy": Means(stack_correct(predictions))}


def make_task(dev: Examples, objective: str, labels: Sequence[str], classify: Classify) -> Task:
    """Return the task of an objective on some rows.

    It scores Spearman of cosines, accuracy, or nDCG@10 of the anchors' searches.
    """
    columns: dict[str, Any] = dict(dev.columns)
    if objective == CLASSIFICATION:
        places = {label: place for place, label in enumerate(labels)}
        numbers = np.array([places[label] for label in columns[LABEL]])
        return Labelled(columns["text1"], columns["text2"], numbers, classify)
    if objective == TRIPLET:
        return Triplets(DEV, columns["anchor"], columns["positive"], columns[NEGATIVE])
    if objective == RANKING:
        return _make_retrieval(columns)
    gold = np.array(columns[SCORE], np.float64)
    return Sts(DEV, (ScoredPairs(DEV, gold, columns["text1"], columns["text2"]),))


def _make_retrieval(columns: dict[str, list[str]]) -> Retrieval:
    """Return the search of each anchor for its positive texts among all others."""
    documents = list(dict.fromkeys([*columns["positive"], *columns.get(NEGATIVE, ())]))
    ids = {text: f"{place:09d}" for place, text in enumerate(documents)}
    grades: dict[str, dict[str, int]] = {}
    for anchor, positive in zip(columns["anchor"], columns["positive"], strict=True):
        grades.setdefault(anchor, {})[ids[positive]] = 1
    anchors = list(grades)
    return Retrieval(
        DEV,
        Judgements(anchors, anchors, list(grades.values()), KEEP),
        list(ids.values()),
        documents,
    )


def predict(task: Task, encode: Encode) -> Predictions:
    """Return the task's predictions from the vectors of `encode`."""
    texts = list(dict.fromkeys([*task.texts, *task.queries]))
    place = {text: number for number, text in enumerate(texts)}
    return task.predict(TaskVectors(encode(texts), place))


def compute_metric(task: Task, predictions: Predictions) -> tuple[str, float]:
    """Return the name of a task's metric and the score, x100, NaN if it is undefined."""
    metric, evidence = next(iter(task.evidence([predictions]).items()))
    return metric, 100 * float(evidence.scores()[ALL][0])


def score_alone(task: Task, predictions: Predictions) -> dict[str, Any]:
    """Return the metric of a task and its score x100 with a 95 % interval."""
    metric, evidence = next(iter(task.evidence([predictions]).items()))
    (belief,) = compute_beliefs(draw(evidence)[ALL])
    return {"metric": metric, "score": belief.score, "low": belief.low, "high": belief.high}


def compare_scores(task: Task, before: Predictions, after: Predictions) -> tuple[Belief, Belief]:
    """Return the scores before and after training, with intervals and the difference."""
    first, second = compute_beliefs(draw(next(iter(task.evidence([before, after]).values())))[ALL])
    return first, second
