"""The causes of lost answers, by rule.

An answer is lost if a query had it before and no longer has it. The rules are in this order:

1. its row is not in the next snapshot: *file gone* if its file left the input, else *row deleted*;
2. its row has another text: *row changed*;
3. its row has the same text and another vector: *vector moved*;
4. its row scores better than the last answer that the query has now: *index lost it*;
5. else other rows displaced it, and the cause is that of the best one that is not spoken for:
   *new row above it*, *row changed*, *vector moved*, or the index, which found an old row only now.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sentence_beam.transforms.store.runs.answer_figures import (
    FILE_GONE,
    INDEX_LOST,
    NEW_ROW,
    ROW_CHANGED,
    ROW_DELETED,
    VECTOR_MOVED,
)

TIE = 1e-6  # difference below which two scores are equal, in parts of the larger one


@dataclass(frozen=True)
class Lost:
    """The fate of a lost answer's row.

    `exists`: the next snapshot has the row; `same_text`: with the same text; `moved`: with another
    vector; `score`: that of its present vector. `file_gone`: its file left the input.
    """

    exists: bool = True
    file_gone: bool = False
    same_text: bool = True
    moved: bool = False
    score: float = 0.0


@dataclass(frozen=True)
class Gained:
    """An answer that a query did not have before: its score, and why it ranks where it does.

    `cause` is one of NEW_ROW, ROW_CHANGED, VECTOR_MOVED, and INDEX_LOST for an old row that did
    not change. `is_copy`: it has the text of another answer.
    """

    score: float
    cause: str
    is_copy: bool = False

    @property
    def is_growth(self) -> bool:
        """Whether it is a new row with a text of its own, as a growing corpus has."""
        return self.cause == NEW_ROW and not self.is_copy


@dataclass(frozen=True)
class Reason:
    """Why an answer was lost; `by_growth` if a row displaced it that growth alone explains."""

    cause: str
    by_growth: bool = False


def reasons(lost: Sequence[Lost], gained: Sequence[Gained], least: float) -> list[Reason | None]:
    """Return the reason for each lost answer of one query, best answer first.

    `gained` are in the order of their ranks, `least` is the score of the last present answer. A
    lost answer that ties with it has no reason: it is as good as before.
    """
    free = list(gained)
    causes: list[Reason | None] = []
    for row in lost:
        if not row.exists or not row.same_text or row.moved:
            causes.append(Reason(_name_cause(row)))
        elif _is_tie(row.score, least):
            causes.append(None)
        elif row.score > least:
            causes.append(Reason(INDEX_LOST))
        else:
            causes.append(_explain_displaced(row, free))
    return causes


def _name_cause(row: Lost) -> str:
    if not row.exists and row.file_gone:
        return FILE_GONE
    if not row.exists:
        return ROW_DELETED
    if not row.same_text:
        return ROW_CHANGED
    return VECTOR_MOVED


def _explain_displaced(row: Lost, free: list[Gained]) -> Reason:
    """Return the reason of a row that others displaced, and take the chosen one from `free`.

    Rows of growth come first: growth explains as much as it can.
    """
    above = [other for other in free if other.score >= row.score]
    if not above:
        return Reason(INDEX_LOST)
    chosen = next((other for other in above if other.is_growth), above[0])
    free.remove(chosen)
    return Reason(chosen.cause, chosen.is_growth)


def _is_tie(one: float, other: float) -> bool:
    return abs(one - other) <= TIE * max(1.0, abs(one), abs(other))
