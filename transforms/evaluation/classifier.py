"""The classifiers that judge vectors: logistic regression or SentEval's network, regularised by held-out rows."""

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from transforms.errors import MissingExtraError
from transforms.extras import pip_line

LOGISTIC, MLP = "logistic", "mlp"
CLASSIFIERS = (LOGISTIC, MLP)
FOLDS, SEED = 10, 1111
ROUGH, FINE = 1e-4, 1e-5  # where fits end: those by which a strength is chosen, and those whose labels count
STRENGTHS = {LOGISTIC: (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0), MLP: (1e-5, 1e-4, 1e-3, 1e-2)}


def check_installed() -> None:
    """Raise MissingExtraError where scikit-learn is not installed."""
    import importlib.util

    if importlib.util.find_spec("sklearn") is None:
        raise MissingExtraError(f"this kind of task needs scikit-learn: {pip_line('evaluate')}")


def cross_validated(features: np.ndarray, labels: np.ndarray, classifier: str) -> np.ndarray:
    """The label predicted for each row by a classifier fitted on the other nine of ten parts; int64 [n].

    Each of these is regularised by ten parts of its own training rows.
    """
    with _single_threaded():
        predicted = np.empty(len(labels), np.int64)
        for train, test in _folds(labels):
            strength = _chosen(features[train], labels[train], classifier)
            model = _fit(features[train], labels[train], classifier, strength)
            predicted[test] = model.predict(features[test])
    return predicted


def held_out(
    train: tuple[np.ndarray, np.ndarray],
    dev: tuple[np.ndarray, np.ndarray] | None,
    test: np.ndarray,
    classifier: str,
) -> np.ndarray:
    """The labels predicted for test features by a classifier fitted on the training rows; int64 [n].

    It is regularised by the dev rows, without any by ten parts of the training rows.
    """
    with _single_threaded():
        if dev is None:
            strength = _chosen(*train, classifier)
        else:
            rights = [_right(train, dev, classifier, strength) for strength in STRENGTHS[classifier]]
            strength = STRENGTHS[classifier][int(np.argmax(rights))]
        return _fit(*train, classifier, strength).predict(test)


def _chosen(features: np.ndarray, labels: np.ndarray, classifier: str) -> float:
    """The strength with which most held-out rows are right. A network is judged by one part of ten, for its cost."""
    folds = list(_folds(labels))[: None if classifier == LOGISTIC else 1]
    rights = [
        sum(
            _right((features[train], labels[train]), (features[test], labels[test]), classifier, strength)
            for train, test in folds
        )
        for strength in STRENGTHS[classifier]
    ]
    return STRENGTHS[classifier][int(np.argmax(rights))]


def _right(
    train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray], classifier: str, strength: float
) -> int:
    return int((_fit(*train, classifier, strength, ROUGH).predict(test[0]) == test[1]).sum())


def _folds(labels: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Training and test rows of each of ten parts, with about the same share of every label; fewer for few rows."""
    from sklearn.model_selection import KFold, StratifiedKFold

    commonest = int(np.bincount(labels).max())
    kind, parts = (StratifiedKFold, commonest) if commonest > 1 else (KFold, len(labels))
    if len(labels) < 2:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a label with fewer rows than parts
        yield from kind(min(FOLDS, parts), shuffle=True, random_state=SEED).split(np.zeros(len(labels)), labels)


def _fit(features: np.ndarray, labels: np.ndarray, classifier: str, strength: float, end: float = FINE) -> Any:
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    if len(np.unique(labels)) < 2:  # a part may have lost a rare label
        return DummyClassifier().fit(features, labels)
    if classifier == LOGISTIC:
        return LogisticRegression(C=strength, max_iter=1000, tol=end).fit(features, labels)
    model = MLPClassifier(
        (50,), activation="logistic", alpha=strength, batch_size=min(64, len(labels)), max_iter=200, random_state=SEED
    )
    return model.fit(features, labels)


@contextlib.contextmanager
def _single_threaded() -> Iterator[None]:
    """One thread for matrix products, which are so small here that several only wait for each other."""
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the last steps of a fit change no label
        yield


def correct(predicted: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Which rows are right, as float64 of 0 and 1, under the name `correct`."""
    return {"correct": (predicted == labels).astype(np.float64)}


def stacked(predictions: Sequence[Any]) -> np.ndarray:
    """Which rows are right for each method, float64 [m, n]."""
    return np.stack([found["correct"] for found in predictions])
