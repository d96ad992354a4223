"""The classifiers that judge vectors: logistic regression or SentEval's network, regularised by
held-out rows.
"""

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from transforms.base.errors import MissingExtraError
from transforms.base.extras import pip_line

LOGISTIC, MLP = "logistic", "mlp"
CLASSIFIERS = (LOGISTIC, MLP)
FOLDS, SEED = 10, 1111
# where fits end: those by which a strength is chosen, and those whose labels count
ROUGH, FINE = 1e-4, 1e-5
STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # of logistic regression
DECAYS = (1e-5, 1e-4, 1e-3, 1e-2)  # of the network's weights, as in SentEval
LAST = 0.05  # of the training rows: those that stop the network if there are no dev rows
Rows = tuple[np.ndarray, np.ndarray]  # features float32 [n, d], labels int64 [n]


def check_installed() -> None:
    """Raise MissingExtraError where scikit-learn is not installed."""
    import importlib.util

    if importlib.util.find_spec("sklearn") is None:
        raise MissingExtraError(f"this kind of task needs scikit-learn: {pip_line('evaluate')}")


def cross_validated(features: np.ndarray, labels: np.ndarray, classifier: str) -> np.ndarray:
    """The label predicted for each row by a classifier fitted on the other nine of ten parts; int64
    [n].

    Each of these is regularised by ten parts of its own training rows.
    """
    with _single_threaded():
        predicted = np.empty(len(labels), np.int64)
        for train, test in _folds(labels):
            predicted[test] = _predicted(
                (features[train], labels[train]), None, features[test], classifier
            )
    return predicted


def held_out(train: Rows, dev: Rows | None, test: np.ndarray, classifier: str) -> np.ndarray:
    """The labels predicted for test features by a classifier fitted on the training rows; int64
    [n].

    It is regularised by the dev rows, without any by ten parts of the training rows.
    """
    with _single_threaded():
        return _predicted(train, dev, test, classifier)


def _predicted(train: Rows, dev: Rows | None, test: np.ndarray, classifier: str) -> np.ndarray:
    if classifier == MLP:
        return _of_network(train, dev, test)
    rights = [_rights(train, dev, strength) for strength in STRENGTHS]
    found: np.ndarray = _fit(*train, STRENGTHS[int(np.argmax(rights))]).predict(test)
    return found


def _rights(train: Rows, dev: Rows | None, strength: float) -> int:
    """How many held-out rows are right: the dev rows, else all training rows, each by a fit on nine
    of ten parts.
    """
    if dev is not None:
        return _right(train, dev, strength)
    features, labels = train
    return sum(
        _right((features[rest], labels[rest]), (features[part], labels[part]), strength)
        for rest, part in _folds(labels)
    )


def _of_network(train: Rows, dev: Rows | None, test: np.ndarray) -> np.ndarray:
    """The labels predicted by SentEval's network, with the weight decay that is best on held-out
    rows.

    Without dev rows, decays are compared on ten parts of the training rows, and the network with
    the best one is stopped by a twentieth of them, as in SentEval.
    """
    from transforms.evaluation.network import train_networks

    features, labels = train
    classes = int(max(labels.max(), 0 if dev is None else dev[1].max())) + 1
    if dev is not None:
        networks = train_networks(train, dev, classes, DECAYS)
        best = max(networks, key=lambda network: round(network.accuracy, 4))
        return best.predict(test)
    accuracies = [
        [
            network.accuracy
            for network in train_networks(
                (features[rest], labels[rest]), (features[part], labels[part]), classes, DECAYS
            )
        ]
        for rest, part in _folds(labels)
    ]
    decay = DECAYS[int(np.argmax(np.mean(accuracies, axis=0).round(4)))]
    order = np.random.default_rng(SEED).permutation(len(labels))
    last, rest = np.split(order, [max(1, int(len(order) * LAST))])
    (network,) = train_networks(
        (features[rest], labels[rest]), (features[last], labels[last]), classes, (decay,)
    )
    return network.predict(test)


def _right(train: Rows, test: Rows, strength: float) -> int:
    return int((_fit(*train, strength, ROUGH).predict(test[0]) == test[1]).sum())


def _folds(labels: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Training and test rows of each of ten parts, with about the same share of every label; fewer
    for few rows.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    commonest = int(np.bincount(labels).max())
    kind, parts = (StratifiedKFold, commonest) if commonest > 1 else (KFold, len(labels))
    if len(labels) < 2:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a label with fewer rows than parts
        yield from kind(min(FOLDS, parts), shuffle=True, random_state=SEED).split(
            np.zeros(len(labels)), labels
        )


def _fit(features: np.ndarray, labels: np.ndarray, strength: float, end: float = FINE) -> Any:
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(labels)) < 2:  # a part may have lost a rare label
        return DummyClassifier().fit(features, labels)
    return LogisticRegression(C=strength, max_iter=1000, tol=end).fit(features, labels)


@contextlib.contextmanager
def _single_threaded() -> Iterator[None]:
    """One thread for matrix products, which are so small here that several only wait for each
    other.
    """
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), warnings.catch_warnings():
        # the last steps of a fit change no label
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def correct(predicted: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Which rows are right, as float64 of 0 and 1, under the name `correct`."""
    return {"correct": (predicted == labels).astype(np.float64)}


def stacked(predictions: Sequence[Any]) -> np.ndarray:
    """Which rows are right for each method, float64 [m, n]."""
    return np.stack([found["correct"] for found in predictions])
