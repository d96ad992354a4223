"""Relatedness by a trained regressor, as SentEval scores SICK-R and the STS benchmark."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.evaluation.correlations import Correlations, correlation
from sentence_beam.transforms.evaluation.evidence import Evidence
from sentence_beam.transforms.evaluation.pair_files import ScoredPairs, read_pairs, read_splits
from sentence_beam.transforms.evaluation.task import (
    Predictions,
    TaskVectors,
    note_overlap,
    pair_features,
)

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder.pair_scorer import PairScorer

BINS = 5
BATCH = 64
RATE = 1e-3
SEED = 1111
EPOCHS = 50  # of a round
MOST_EPOCHS = 1000  # of all rounds
PATIENCE = 3  # rounds without a better dev score before the training ends


@dataclass(frozen=True)
class Relatedness:
    """Pairs with scores from 0 to 5, predicted by a softmax over 1 to 5.

    It is trained on the training pairs, stopped by the dev score, and scored on the test pairs by
    Pearson's correlation. Features are |u-v| and u*v of the vectors as they are pooled and
    calibrated.
    """

    name: str
    train: ScoredPairs
    dev: ScoredPairs
    test: ScoredPairs
    kind: str = "relatedness"
    queries: tuple[str, ...] = ()

    @classmethod
    def read(cls, name: str, paths: Sequence[str]) -> "Relatedness":
        """Read three files, or one SICK.txt."""
        splits = read_splits(paths, read_pairs)
        if len(splits) != 3:
            raise OptionError(
                f"{cite('task')} relatedness:{name}: say TRAIN,DEV,TEST, or one SICK.txt that has"
                " all three"
            )
        for split in splits:
            outside = (split.gold < 0) | (split.gold > BINS)
            if outside.any():
                raise OptionError(
                    f"{cite('task')} relatedness:{name}: score {split.gold[outside][0]:g} is not"
                    f" from 0 to {BINS}"
                )
        train, dev, test = splits
        return cls(name, train, dev, test)

    @property
    def _splits(self) -> tuple[ScoredPairs, ...]:
        return (self.train, self.dev, self.test)

    @property
    def texts(self) -> list[str]:
        return [text for split in self._splits for text in (*split.first, *split.second)]

    @cached_property
    def notes(self) -> list[str]:
        return note_overlap(
            [*self.train.first, *self.train.second], [*self.test.first, *self.test.second]
        )

    def predict(self, vectors: TaskVectors) -> Predictions:
        """Train until the dev score stops improving; predict with the best weights."""
        train, dev, test = (
            pair_features(vectors.lookup(s.first), vectors.lookup(s.second)) for s in self._splits
        )
        best = -np.inf
        predicted = np.zeros(len(test))
        waited = 0
        for on_dev, on_test in _train_rounds(train, self.train.gold, dev, test):
            score = float(np.nan_to_num(correlation(on_dev[None], self.dev.gold)[0], nan=-1.0))
            if score > best:
                best = score
                predicted = on_test
                continue
            waited += 1
            if waited > PATIENCE:
                break
        return {"predicted": predicted}

    def predict_pairs(self, scorer: "PairScorer", first: Predictions) -> Predictions:
        """Score the test pairs by a cross-encoder; no regressor is trained."""
        return {"predicted": scorer.scores(self.test.first, self.test.second)}

    def evidence(self, predictions: Sequence[Predictions]) -> dict[str, Evidence]:
        values = np.stack([prediction["predicted"] for prediction in predictions])
        pairs = ((self.test.name, len(self.test.gold)),)
        return {
            "pearson": Correlations(values, self.test.gold, pairs, ranked=False),
            "spearman": Correlations(values, self.test.gold, pairs),
        }


def bins(gold: np.ndarray) -> np.ndarray:
    """Return scores [n] as shares of the whole numbers from 1 to 5, float32 [n, 5].

    A score below 1 loses its share of 0.
    """
    below = np.floor(gold)
    shares = np.zeros((len(gold), BINS + 2), np.float32)
    rows = np.arange(len(gold))
    place = below.astype(int)
    shares[rows, place] = below - gold + 1
    shares[rows, place + 1] += (gold - below).astype(np.float32)
    return shares[:, 1 : BINS + 1]


def _train_rounds(
    train: np.ndarray, gold: np.ndarray, dev: np.ndarray, test: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the predictions on dev and test features after each round of training."""
    generator = np.random.default_rng(SEED)
    targets = bins(gold)
    bound = train.shape[1] ** -0.5
    size = (train.shape[1] + 1, BINS)  # the last row is the bias
    weights = generator.uniform(-bound, bound, size).astype(np.float32)
    train, dev, test = (
        np.append(x, np.ones((len(x), 1), np.float32), axis=1) for x in (train, dev, test)
    )
    adam = _Adam(weights)
    for _ in range(MOST_EPOCHS // EPOCHS):
        for _ in range(EPOCHS):
            order = generator.permutation(len(train))
            for start in range(0, len(order), BATCH):
                rows = order[start : start + BATCH]
                adam.step(train[rows].T @ _slope(_softmax(train[rows] @ weights), targets[rows]))
        yield _expected_score(dev @ weights), _expected_score(test @ weights)


def _expected_score(logits: np.ndarray) -> np.ndarray:
    """Return the expected scores, float64 [n]."""
    return _softmax(logits).astype(np.float64) @ np.arange(1, BINS + 1)


def _softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def _slope(shares: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the gradient of the mean squared error of shares [n, 5] at the softmax's input."""
    slope = 2 * (shares - targets) / shares.size
    return shares * (slope - (slope * shares).sum(axis=1, keepdims=True))


class _Adam:
    """The optimiser of arXiv:1412.6980 with its usual constants; changes the weights in place."""

    def __init__(self, weights: np.ndarray) -> None:
        self._weights = weights
        self._steps = 0
        self._mean = np.zeros_like(weights)
        self._square = np.zeros_like(weights)

    def step(self, gradient: np.ndarray) -> None:
        """Descend one step along a gradient."""
        self._steps += 1
        self._mean += 0.1 * (gradient - self._mean)
        self._square += 0.001 * (gradient**2 - self._square)
        mean = self._mean / (1 - 0.9**self._steps)
        square = self._square / (1 - 0.999**self._steps)
        self._weights -= RATE * mean / (np.sqrt(square) + 1e-8)
