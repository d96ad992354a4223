"""Relatedness by a trained regressor, as SentEval scores SICK-R and the STS benchmark."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from transforms.base.errors import OptionError
from transforms.evaluation.correlations import Correlations, correlation
from transforms.evaluation.evidence import Evidence
from transforms.evaluation.pair_files import ScoredPairs, read_pairs, read_splits
from transforms.evaluation.task import Predictions, TaskVectors, overlap, pair_features

if TYPE_CHECKING:
    from transforms.encoder.pair_scorer import PairScorer

BINS = 5
BATCH, RATE, SEED = 64, 1e-3, 1111
# a round; all; rounds without a better dev score before it ends
EPOCHS, MOST_EPOCHS, PATIENCE = 50, 1000, 3


@dataclass(frozen=True)
class Relatedness:
    """Pairs with scores from 0 to 5: a softmax over 1 to 5 is trained, by dev scores it ends, on
    test pairs it counts.

    Features are |u-v| and u*v of the vectors as they are pooled and calibrated; the score is
    Pearson's correlation.
    """

    name: str
    train: ScoredPairs
    dev: ScoredPairs
    test: ScoredPairs
    kind: str = "relatedness"
    queries: tuple[str, ...] = ()

    @classmethod
    def read(cls, name: str, paths: Sequence[str]) -> "Relatedness":
        """The task of three files, or of one SICK.txt."""
        splits = read_splits(paths, read_pairs)
        if len(splits) != 3:
            raise OptionError(
                f"--task relatedness:{name}: say TRAIN,DEV,TEST, or one SICK.txt that has all three"
            )
        for split in splits:
            outside = (split.gold < 0) | (split.gold > BINS)
            if outside.any():
                raise OptionError(
                    f"--task relatedness:{name}: score {split.gold[outside][0]:g} is not from 0 to"
                    f" {BINS}"
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
        return overlap(
            [*self.train.first, *self.train.second], [*self.test.first, *self.test.second]
        )

    def predict(self, vectors: TaskVectors) -> Predictions:
        train, dev, test = (
            pair_features(vectors.of(s.first), vectors.of(s.second)) for s in self._splits
        )
        best, found, waited = -np.inf, np.zeros(len(test)), 0
        for on_dev, on_test in _rounds(train, self.train.gold, dev, test):
            score = float(np.nan_to_num(correlation(on_dev[None], self.dev.gold)[0], nan=-1.0))
            if score > best:
                best, found = score, on_test
                continue
            waited += 1
            if waited > PATIENCE:
                break
        return {"predicted": found}

    def predict_pairs(self, scorer: "PairScorer", first: Predictions) -> Predictions:
        """What a cross-encoder makes of the test pairs; no regressor is trained."""
        return {"predicted": scorer.scores(self.test.first, self.test.second)}

    def evidence(self, predictions: Sequence[Predictions]) -> dict[str, Evidence]:
        values = np.stack([found["predicted"] for found in predictions])
        pairs = ((self.test.name, len(self.test.gold)),)
        return {
            "pearson": Correlations(values, self.test.gold, pairs, ranked=False),
            "spearman": Correlations(values, self.test.gold, pairs),
        }


def bins(gold: np.ndarray) -> np.ndarray:
    """Scores [n] as shares of the whole numbers from 1 to 5, float32 [n, 5]; what is below 1 has a
    share of 0 lost.
    """
    below = np.floor(gold)
    shares = np.zeros((len(gold), BINS + 2), np.float32)
    rows, place = np.arange(len(gold)), below.astype(int)
    shares[rows, place] = below - gold + 1
    shares[rows, place + 1] += (gold - below).astype(np.float32)
    return shares[:, 1 : BINS + 1]


def _rounds(
    train: np.ndarray, gold: np.ndarray, dev: np.ndarray, test: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Predictions on dev and test features after each round of training."""
    generator, targets = np.random.default_rng(SEED), bins(gold)
    bound = train.shape[1] ** -0.5
    weights = generator.uniform(-bound, bound, (train.shape[1] + 1, BINS)).astype(
        np.float32
    )  # the last row is the bias
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
        yield _expected(dev @ weights), _expected(test @ weights)


def _expected(logits: np.ndarray) -> np.ndarray:
    """The expected scores, float64 [n]."""
    return _softmax(logits).astype(np.float64) @ np.arange(1, BINS + 1)


def _softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def _slope(shares: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The gradient of the mean squared error of shares [n, 5] with respect to what the softmax is
    of.
    """
    slope = 2 * (shares - targets) / shares.size
    return shares * (slope - (slope * shares).sum(axis=1, keepdims=True))


class _Adam:
    """The optimiser of arXiv:1412.6980 with its usual constants; changes the weights in place."""

    def __init__(self, weights: np.ndarray) -> None:
        self._weights, self._steps = weights, 0
        self._mean, self._square = np.zeros_like(weights), np.zeros_like(weights)

    def step(self, gradient: np.ndarray) -> None:
        """Go a step down a gradient."""
        self._steps += 1
        self._mean += 0.1 * (gradient - self._mean)
        self._square += 0.001 * (gradient**2 - self._square)
        mean = self._mean / (1 - 0.9**self._steps)
        square = self._square / (1 - 0.999**self._steps)
        self._weights -= RATE * mean / (np.sqrt(square) + 1e-8)
