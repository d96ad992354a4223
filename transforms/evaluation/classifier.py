"""Classifiers that judge vectors: logistic regression or SentEval's network, regularised."""

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sentence_beam.transforms.base.extras import require_package

LOGISTIC = "logistic"
MLP = "mlp"
CLASSIFIERS = (LOGISTIC, MLP)
FOLDS = 10
SEED = 1111
ROUGH = 1e-4  # tolerance of the fits by which a strength is chosen
FINE = 1e-5  # tolerance of the fits whose labels count
STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # of logistic regression
DECAYS = (1e-5, 1e-4, 1e-3, 1e-2)  # of the network's weights, as in SentEval
LAST = 0.05  # of the training rows: those that stop the network if there are no dev rows
Rows = tuple[np.ndarray, np.ndarray]  # features float32 [n, d], labels int64 [n]


def check_installed() -> None:
    """Raise MissingExtraError if scikit-learn is not installed."""
    require_package("sklearn", "evaluate", "this kind of task")


def cross_validate(features: np.ndarray, labels: np.ndarray, classifier: str) -> np.ndarray:
    """Return the label, int64 [n], that a classifier predicts for each row in ten folds.

    Each classifier is fitted on nine folds and regularised by ten parts of these.
    """
    with _with_one_thread():
        predicted = np.empty(len(labels), np.int64)
        for train, test in _split_folds(labels):
            predicted[test] = _predict(
                (features[train], labels[train]), None, features[test], classifier
            )
    return predicted


def predict_held_out(
    train: Rows, dev: Rows | None, test: np.ndarray, classifier: str
) -> np.ndarray:
    """Return the labels, int64 [n], that a classifier predicts for the test features.

    It is fitted on the training rows, and regularised by the dev rows, or by ten parts of the
    training rows if there are no dev rows.
    """
    with _with_one_thread():
        return _predict(train, dev, test, classifier)


def _predict(train: Rows, dev: Rows | None, test: np.ndarray, classifier: str) -> np.ndarray:
    if classifier == MLP:
        return _predict_by_network(train, dev, test)
    rights = [_count_right_held_out(train, dev, strength) for strength in STRENGTHS]
    predicted: np.ndarray = _fit(*train, STRENGTHS[int(np.argmax(rights))]).predict(test)
    return predicted


def _count_right_held_out(train: Rows, dev: Rows | None, strength: float) -> int:
    """Count the held-out rows that a strength gets right.

    They are the dev rows, or else all training rows, each by a fit on nine of ten parts.
    """
    if dev is not None:
        return _count_right(train, dev, strength)
    return sum(
        _count_right(_select(train, rest), _select(train, part), strength)
        for rest, part in _split_folds(train[1])
    )


def _predict_by_network(train: Rows, dev: Rows | None, test: np.ndarray) -> np.ndarray:
    """Predict labels by SentEval's network with the weight decay that is best on held-out rows.

    Without dev rows, decays are compared on ten parts of the training rows. A twentieth of the
    training rows then stops the network with the best decay, as in SentEval.
    """
    from sentence_beam.transforms.evaluation.network import train_networks

    _, labels = train
    if dev is not None:
        classes = int(max(labels.max(), dev[1].max())) + 1
        networks = train_networks(train, dev, classes, DECAYS)
        best = max(networks, key=lambda network: round(network.accuracy, 4))
        return best.predict(test)
    classes = int(labels.max()) + 1
    accuracies = []
    for rest, part in _split_folds(labels):
        networks = train_networks(_select(train, rest), _select(train, part), classes, DECAYS)
        accuracies.append([network.accuracy for network in networks])
    decay = DECAYS[int(np.argmax(np.mean(accuracies, axis=0).round(4)))]
    order = np.random.default_rng(SEED).permutation(len(labels))
    last, rest = np.split(order, [max(1, int(len(order) * LAST))])
    (network,) = train_networks(_select(train, rest), _select(train, last), classes, (decay,))
    return network.predict(test)


def _select(rows: Rows, places: np.ndarray) -> Rows:
    features, labels = rows
    return features[places], labels[places]


def _count_right(train: Rows, test: Rows, strength: float) -> int:
    return int((_fit(*train, strength, ROUGH).predict(test[0]) == test[1]).sum())


def _split_folds(labels: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the training and test rows of ten folds, fewer if there are few rows.

    Each fold has about the same share of every label.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    if len(labels) < 2:
        return
    commonest = int(np.bincount(labels).max())
    if commonest > 1:
        folds = StratifiedKFold(min(FOLDS, commonest), shuffle=True, random_state=SEED)
    else:
        folds = KFold(min(FOLDS, len(labels)), shuffle=True, random_state=SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a label with fewer rows than parts
        yield from folds.split(np.zeros(len(labels)), labels)


def _fit(features: np.ndarray, labels: np.ndarray, strength: float, end: float = FINE) -> Any:
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(labels)) < 2:  # a part may have lost a rare label
        return DummyClassifier().fit(features, labels)
    return LogisticRegression(C=strength, max_iter=1000, tol=end).fit(features, labels)


@contextlib.contextmanager
def _with_one_thread() -> Iterator[None]:
    """Compute matrix products on one thread.

    They are so small here that several threads only wait for each other.
    """
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), warnings.catch_warnings():
        # the last steps of a fit change no label
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def mark_correct(predicted: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return the rows that are right, as float64 of 0 and 1, under the name `mark_correct`."""
    return {"correct": (predicted == labels).astype(np.float64)}


def stack_correct(predictions: Sequence[Any]) -> np.ndarray:
    """Return the rows that each method gets right, float64 [m, n]."""
    return np.stack([predicted["correct"] for predicted in predictions])
