"""The interface of a task: texts, predictions of a method, and evidence of several methods."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.evaluation.evidence import Evidence
from sentence_beam.transforms.space import canonical_json

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder.pair_scorer import PairScorer

# A method's results for a task's items: arrays by name. An array without dimensions, named
# SUBSET/FIELD, is a figure for the row of that subset.
Predictions = Mapping[str, np.ndarray]
NAMED = 3  # texts or names that a note quotes


@dataclass(frozen=True)
class TaskVectors:
    """The vectors of one method, float32 [n, d], and the place of each text in them.

    Queries may have vectors of their own.
    """

    rows: np.ndarray
    place: Mapping[str, int]
    query_rows: np.ndarray | None = None
    query_place: Mapping[str, int] | None = None

    def lookup(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of texts."""
        return self.rows[[self.place[text] for text in texts]]

    def lookup_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of texts as queries.

        They differ if the model has a prompt or a route for queries.
        """
        if self.query_rows is None or self.query_place is None:
            return self.lookup(texts)
        return self.query_rows[[self.query_place[text] for text in texts]]

    def cut(self, dim: int) -> "TaskVectors":
        """Return the vectors' first components."""
        queries = self.query_rows[:, :dim] if self.query_rows is not None else None
        return TaskVectors(self.rows[:, :dim], self.place, queries, self.query_place)


class Task(Protocol):
    """A data set to score vectors on.

    All fields of a task but its name decide what `predict` returns.
    """

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def texts(self) -> Sequence[str]:
        """The texts whose vectors are needed; duplicates may be among them."""

    @property
    def queries(self) -> Sequence[str]:
        """The texts whose vectors as queries are needed."""

    @property
    def notes(self) -> Sequence[str]:
        """Notes on the data for a reader of the scores."""

    def predict(self, vectors: TaskVectors) -> Predictions:
        """Return what a method with these vectors predicts for the items."""

    def evidence(self, predictions: Sequence[Predictions]) -> dict[str, Evidence]:
        """Return the results of all methods for each metric; the first metric is the task's own."""


@runtime_checkable
class PairTask(Task, Protocol):
    """A task of two texts at a time, which a cross-encoder can read together."""

    def predict_pairs(self, scorer: "PairScorer", first: Predictions) -> Predictions:
        """Return what a cross-encoder predicts for the items.

        `first` are the predictions of the first method.
        """


def hash_content(task: Any) -> str:
    """Return the sha256 in hex over a task's kind, its settings and all of its data.

    Its name and its notes are not part of it.
    """
    digest = hashlib.sha256(task.kind.encode())
    content = {field.name: getattr(task, field.name) for field in fields(task)}
    for name in ("name", "notes"):
        content.pop(name, None)
    _add(digest, content)
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        digest.update(
            f"{value.dtype.str}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
        )
    elif is_dataclass(value) and not isinstance(value, type):
        _add(digest, {f.name: getattr(value, f.name) for f in fields(value)})
    elif isinstance(value, dict):
        for key, item in value.items():
            digest.update(canonical_json([key]).encode())
            _add(digest, item)
    elif isinstance(value, tuple | list) and any(not isinstance(item, str) for item in value):
        digest.update(f"[{len(value)}".encode())
        for item in value:
            _add(digest, item)
    else:
        digest.update(canonical_json([value]).encode())


def note_overlap(train: Sequence[str], test: Sequence[str]) -> list[str]:
    """Return notes on the texts that are in both training and test data, if there are any."""
    train_texts = set(train)
    both = list(dict.fromkeys(text for text in test if text in train_texts))
    if not both:
        return []
    return [
        f"{len(both)} of {len(set(test))} test texts are training texts too: {quote_texts(both)}"
    ]


def quote_texts(texts: Sequence[str]) -> str:
    """Return the first few texts, shortened, and dots if there are more."""
    shown = [f"'{shorten(text, 60)}'" for text in texts[:NAMED]]
    if len(texts) > NAMED:
        shown.append("...")
    return ", ".join(shown)


def shorten(text: str, most: int) -> str:
    """Return a text, cut to `most` characters, for messages."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def number_labels(labels: Sequence[str], task: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return labels as numbers int64 [n] from 0, and their names in order.

    Raises OptionError if all labels are the same.
    """
    names = tuple(sorted(set(labels)))
    if len(names) < 2:
        raise OptionError(
            f"{cite('task')} {task}: all labels are {names[0]!r}; there is nothing to tell apart"
        )
    places = {name: place for place, name in enumerate(names)}
    return np.array([places[label] for label in labels]), names


def pair_features(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return |u-v| and u*v side by side, float32 [n, 2 d]; (u, v) and (v, u) give the same."""
    return np.concatenate([np.abs(first - second), first * second], axis=1, dtype=np.float32)
