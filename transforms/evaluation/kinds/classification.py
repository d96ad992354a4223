"""Classify single texts and pairs by their vectors alone, as SentEval does."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.calibration.quality import unit
from sentence_beam.transforms.evaluation import classifier as classifiers
from sentence_beam.transforms.evaluation import task_files
from sentence_beam.transforms.evaluation.detections import Decisions
from sentence_beam.transforms.evaluation.evidence import Evidence, Means
from sentence_beam.transforms.evaluation.pair_files import (
    NO,
    YES,
    LabelledPairs,
    read_labelled,
    read_splits,
)
from sentence_beam.transforms.evaluation.task import (
    Predictions,
    TaskVectors,
    note_overlap,
    number_labels,
    pair_features,
)

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder.pair_scorer import PairScorer

PARTS = ("tr", "va", "te")
WORD_CONTENT = "word-content"


@dataclass(frozen=True)
class LabelledTexts:
    """Texts with a label each."""

    labels: list[str]
    texts: list[str]


@dataclass(frozen=True)
class Classification:
    """Labelled texts in one, two (training, test) or three (training, dev, test) parts.

    The score is the accuracy of a classifier that sees vectors of length 1. One part: ten-fold
    cross-validation, nested; two: regularised by ten folds of the training rows; three: by the dev
    rows.
    """

    name: str
    parts: tuple[LabelledTexts, ...]
    classifier: str = classifiers.LOGISTIC
    kind: str = "classification"
    queries: tuple[str, ...] = ()

    @classmethod
    def read(cls, name: str, paths: Sequence[str], classifier: str) -> "Classification":
        """Read one to three files with the columns label and text."""
        classifiers.check_installed()
        if len(paths) > 3:
            raise OptionError(
                f"{cite('task')} classification:{name}: say PATH, or TRAIN,TEST, or TRAIN,DEV,TEST"
            )
        parts = tuple(_read_texts(path) for path in paths)
        check_labels(f"classification:{name}", [part.labels for part in parts])
        return cls(name, parts, classifier)

    @classmethod
    def read_probing(cls, name: str, paths: Sequence[str], classifier: str) -> "Classification":
        """Read a probing task of SentEval from one file.

        Its lines have tr, va or te, a label and a text, tab-separated, without a header.
        """
        classifiers.check_installed()
        if len(paths) != 1:
            raise OptionError(
                f"{cite('task')} probing:{name}: say one PATH, with tr, va or te, a label and a"
                " text in each line"
            )
        parts: dict[str, LabelledTexts] = {part: LabelledTexts([], []) for part in PARTS}
        for line, text in enumerate(task_files.read_lines(paths[0]), 1):
            row = text.split("\t")
            if len(row) < 3 or row[0] not in PARTS:
                raise task_files.make_line_error(
                    paths[0], line, "not tr, va or te, a label and a text, tab-separated"
                )
            parts[row[0]].labels.append(task_files.parse_label(paths[0], line, row[1]))
            parts[row[0]].texts.append(row[2])
        if not all(part.labels for part in parts.values()):
            raise OptionError(
                f"{cite('task')} {paths[0]} lacks lines of tr, va or te; check the file"
            )
        check_labels(f"probing:{name}", [part.labels for part in parts.values()])
        used = choose_classifier(task_files.stem(paths[0]), classifier)
        return cls(name, tuple(parts.values()), used, "probing")

    @property
    def texts(self) -> list[str]:
        return [text for part in self.parts for text in part.texts]

    @cached_property
    def notes(self) -> list[str]:
        return (
            note_overlap(self.parts[0].texts, self.parts[-1].texts) if len(self.parts) > 1 else []
        )

    def predict(self, vectors: TaskVectors) -> Predictions:
        labels = number_parts([part.labels for part in self.parts])
        features = [unit(vectors.lookup(part.texts)).astype(np.float32) for part in self.parts]
        return judge(features, labels, self.classifier)

    def evidence(self, predictions: Sequence[Predictions]) -> dict[str, Evidence]:
        return {"accuracy": Means(classifiers.stack_correct(predictions))}


@dataclass(frozen=True)
class Inference:
    """Labelled pairs, classified by |u-v| and u*v, in two or three parts.

    The parts are training, dev and test pairs, or training and test pairs, as in MRPC. Without a
    dev part the classifier is regularised by ten folds of the training rows. The score is the
    accuracy, and F1 too if the labels are 1 and 0.
    """

    name: str
    parts: tuple[LabelledPairs, ...]
    classifier: str = classifiers.LOGISTIC
    kind: str = "nli"
    queries: tuple[str, ...] = ()

    @classmethod
    def read(cls, name: str, paths: Sequence[str], classifier: str) -> "Inference":
        """Read two or three files with the columns label, sentence1, sentence2, or one SICK.txt."""
        classifiers.check_installed()
        parts = tuple(read_splits(paths, read_labelled))
        if len(parts) not in (2, 3):
            raise OptionError(
                f"{cite('task')} nli:{name}: say TRAIN,DEV,TEST or TRAIN,TEST, or one SICK.txt that"
                " has all three"
            )
        check_labels(f"nli:{name}", [part.labels for part in parts])
        return cls(name, parts, classifier)

    @property
    def texts(self) -> list[str]:
        return [text for part in self.parts for text in (*part.first, *part.second)]

    @cached_property
    def notes(self) -> list[str]:
        """Return the shared texts of training and test, and the pairs without a label."""
        train = self.parts[0]
        test = self.parts[-1]
        both = note_overlap([*train.first, *train.second], [*test.first, *test.second])
        unlabelled = sum(part.unlabelled for part in self.parts)
        if not unlabelled:
            return both
        return [
            f"{format_count(unlabelled, 'pair')} without consensus (label - or -1) left out",
            *both,
        ]

    def predict(self, vectors: TaskVectors) -> Predictions:
        labels = number_parts([part.labels for part in self.parts])
        features = [
            pair_features(vectors.lookup(part.first), vectors.lookup(part.second))
            for part in self.parts
        ]
        return judge(features, labels, self.classifier)

    def predict_pairs(self, scorer: "PairScorer", first: Predictions) -> Predictions:
        """Score a cross-encoder's labels of the test pairs; no classifier is trained."""
        test = self.parts[-1]
        unknown = sorted(set(test.labels) - set(scorer.labels))
        if scorer.labels and unknown:
            raise OptionError(
                f"{cite('task')} nli:{self.name}: label {unknown[0]!r} is none of {scorer.folder}'s"
                f" ({', '.join(scorer.labels)}); train it on the same labels"
            )
        numbers = scorer.label_numbers(test.first, test.second)
        predicted = np.array([scorer.labels[number] for number in numbers])
        return classifiers.mark_correct(predicted, np.array(test.labels))

    def evidence(self, predictions: Sequence[Predictions]) -> dict[str, Evidence]:
        """Return evidence of accuracy, and of F1 if the labels are yes and no."""
        correct = classifiers.stack_correct(predictions)
        evidence: dict[str, Evidence] = {"accuracy": Means(correct)}
        words = [label.lower() for label in self.parts[-1].labels]
        if set(words) <= {*YES, *NO}:
            positive = np.array([word in YES for word in words])
            evidence["f1"] = Decisions(positive == (correct > 0), positive)
        return evidence


def choose_classifier(probe: str, classifier: str) -> str:
    """Return the classifier of a probing task.

    SentEval judges word content without a hidden layer, so the request is ignored there.
    """
    return classifiers.LOGISTIC if probe.replace("_", "-") == WORD_CONTENT else classifier


def judge(
    features: Sequence[np.ndarray], labels: Sequence[np.ndarray], classifier: str
) -> Predictions:
    """Return the test rows that a classifier gets right.

    `features` and `labels` have one to three parts, as `Classification` describes.
    """
    if len(features) == 1:
        return classifiers.mark_correct(
            classifiers.cross_validate(features[0], labels[0], classifier), labels[0]
        )
    dev = (features[1], labels[1]) if len(features) == 3 else None
    predicted = classifiers.predict_held_out(
        (features[0], labels[0]), dev, features[-1], classifier
    )
    return classifiers.mark_correct(predicted, labels[-1])


def number_parts(parts: Sequence[list[str]]) -> list[np.ndarray]:
    """Return the labels of each part as numbers, the same ones in all parts."""
    numbers, _ = number_labels([label for part in parts for label in part], "")
    return np.split(numbers, np.cumsum([len(part) for part in parts])[:-1])


def check_labels(task: str, parts: Sequence[list[str]]) -> None:
    """Raise OptionError for labels that a classifier cannot learn.

    Training labels must differ, and every test label must occur among them.
    """
    number_labels(parts[0], task)
    unknown = sorted(set(parts[-1]) - set(parts[0]))
    if unknown:
        raise OptionError(
            f"{cite('task')} {task}: test label {unknown[0]!r} is none of the training labels;"
            " check the files"
        )


def _read_texts(path: str) -> LabelledTexts:
    rows = [
        (task_files.parse_label(path, line, label), text)
        for line, (label, text) in task_files.read_table(path, ("label", "text"))
    ]
    if not rows:
        raise OptionError(f"{cite('task')} {path} holds no labelled text; check the file")
    return LabelledTexts(*map(list, zip(*rows, strict=True)))
