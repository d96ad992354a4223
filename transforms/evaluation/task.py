"""What every kind of task has: texts, what a method makes of them, and the scores of several
methods.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from transforms.base.errors import OptionError
from transforms.evaluation.evidence import Evidence
from transforms.space import canonical_json

if TYPE_CHECKING:
    from transforms.encoder.pair_scorer import PairScorer

# What a method made of a task's items: arrays by name. One without dimensions, named SUBSET/FIELD,
# is a figure that stands in the row of that subset as it is.
Predictions = Mapping[str, np.ndarray]
NAMED = 3  # texts or names that a note quotes


@dataclass(frozen=True)
class TaskVectors:
    """The vectors of one method, float32 [n, d], and the place of each text in them; queries may
    have others.
    """

    rows: np.ndarray
    place: Mapping[str, int]
    query_rows: np.ndarray | None = None
    query_place: Mapping[str, int] | None = None

    def of(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of texts."""
        return self.rows[[self.place[text] for text in texts]]

    def of_queries(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of texts as queries, where the model has a prompt or a way of its own for
        them.
        """
        if self.query_rows is None or self.query_place is None:
            return self.of(texts)
        return self.query_rows[[self.query_place[text] for text in texts]]

    def cut(self, dim: int) -> "TaskVectors":
        """The vectors' first components."""
        queries = None if self.query_rows is None else self.query_rows[:, :dim]
        return TaskVectors(self.rows[:, :dim], self.place, queries, self.query_place)


class Task(Protocol):
    """Something to score vectors on. All of a task's fields but its name decide what `predict`
    gives.
    """

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def texts(self) -> Sequence[str]:
        """The texts whose vectors are asked for; duplicates may be among them."""

    @property
    def queries(self) -> Sequence[str]:
        """The texts whose vectors are asked for as queries."""

    @property
    def notes(self) -> Sequence[str]:
        """What a reader of the scores has to know of the data."""

    def predict(self, vectors: TaskVectors) -> Predictions:
        """What a method with these vectors makes of the items."""

    def evidence(self, predictions: Sequence[Predictions]) -> dict[str, Evidence]:
        """The items as all methods did them, for each metric; the first metric is the task's
        own.
        """


@runtime_checkable
class PairTask(Task, Protocol):
    """A task of two texts at a time, which a cross-encoder can read together."""

    def predict_pairs(self, scorer: "PairScorer", first: Predictions) -> Predictions:
        """What a cross-encoder makes of the items; `first` is what the first method made of
        them.
        """


def content_digest(task: Any) -> str:
    """The sha256 in hex over a task's kind, its settings and all of its data; its name and notes
    are no part of it.
    """
    digest = hashlib.sha256(task.kind.encode())
    _add(
        digest,
        {f.name: getattr(task, f.name) for f in fields(task) if f.name not in ("name", "notes")},
    )
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


def overlap(train: Sequence[str], test: Sequence[str]) -> list[str]:
    """Notes on the texts that are in both training and test data; none where there is no such
    text.
    """
    known = set(train)
    both = list(dict.fromkeys(text for text in test if text in known))
    if not both:
        return []
    return [f"{len(both)} of {len(set(test))} test texts are training texts too: {quoted(both)}"]


def quoted(texts: Sequence[str]) -> str:
    """The first few texts, short, and that there are more."""
    shown = [f"'{text if len(text) <= 60 else text[:59] + '…'}'" for text in texts[:NAMED]]
    return ", ".join(shown) + (", ..." if len(texts) > NAMED else "")


def numbered(labels: Sequence[str], where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels as numbers int64 [n] from 0, and their names in order. Raises OptionError where all
    are the same.
    """
    names = tuple(sorted(set(labels)))
    if len(names) < 2:
        raise OptionError(
            f"--task {where}: all labels are {names[0]!r}; there is nothing to tell apart"
        )
    places = {name: place for place, name in enumerate(names)}
    return np.array([places[label] for label in labels]), names


def pair_features(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """|u-v| and u*v side by side, float32 [n, 2 d]; the same for (u, v) and (v, u)."""
    return np.concatenate([np.abs(first - second), first * second], axis=1, dtype=np.float32)
