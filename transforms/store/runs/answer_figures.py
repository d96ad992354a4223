"""The answers to watched queries in a run: figures, and the gates that they must pass."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sentence_beam.transforms.base.errors import DataGateError, cite
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.store.runs.gates import UsedGates

FILE_GONE = "file_gone"
ROW_DELETED = "row_deleted"
ROW_CHANGED = "row_changed"
NEW_ROW = "new_row"
VECTOR_MOVED = "vector_moved"
INDEX_LOST = "index_lost"
ABSENT = "absent"
PENDING = "pending"
RANKED_LOWER = "ranked_lower"
CAUSES = {
    FILE_GONE: "file gone",
    ROW_DELETED: "row deleted",
    ROW_CHANGED: "row changed",
    NEW_ROW: "new row above it",
    VECTOR_MOVED: "vector moved though its text did not",
    INDEX_LOST: "index lost it",
    ABSENT: "not in this store",
    PENDING: "its file is pending",
    RANKED_LOWER: "ranked lower",
}
# growth explains new rows among the answers up to this many times their share of all rows
GROWTH = 3.0


@dataclass(frozen=True)
class ChangedQuery:
    """A query with changed answers, and its first hits before and after; None without a hit."""

    query: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class AnswerFigures:
    """How the answers to the watched queries differ from those of the last snapshot.

    `answers` are those of the last snapshot to all `queries`, `k` each at most; `causes` counts the
    lost ones by cause. `by_growth` of them were displaced by new rows, of which growth explains
    `explained`. `overlap`, `rbo` and `first_changed` are means over the queries. `score_before` and
    `score` are mean scores of all answers. `rows` is the part of the rows that was searched if
    there is no index, 1 for all. `by_ids`: the vectors are of another space, so that causes follow
    from ids and texts alone. `examples` has a query for each cause.
    """

    queries: int
    k: int
    answers: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    by_growth: int = 0
    explained: int = 0
    overlap: float = 1.0
    rbo: float = 1.0
    first_changed: float = 0.0
    score_before: float | None = None
    score: float | None = None
    indexed: bool = True
    rows: float = 1.0
    by_ids: bool = False
    examples: dict[str, ChangedQuery] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        """The number of lost answers."""
        return sum(self.causes.values())

    @property
    def change(self) -> float:
        """The share of the answers that were lost."""
        return self.lost / max(self.answers, 1)

    @property
    def beyond(self) -> float:
        """The share of the answers that were lost for other reasons than growth."""
        return (self.lost - self.explained) / max(self.answers, 1)

    @property
    def largest(self) -> str | None:
        """The cause of most lost answers beyond growth; None if none was lost."""
        counts = dict(self.causes)
        if NEW_ROW in counts:
            counts[NEW_ROW] -= self.explained
        return max(counts, key=lambda cause: counts[cause], default=None)

    def explain_growth(self, added: int | None, rows: int) -> "AnswerFigures":
        """Return the figures with `explained`, if the run added rows to come to `rows`.

        `added` None means that it is not known: growth then explains every new row.
        """
        explained = self.by_growth
        if added is not None:
            most = GROWTH * added / max(rows, 1) * self.answers
            explained = min(explained, int(most))
        return replace(self, explained=explained)

    def to_json(self) -> dict[str, Any]:
        """Return the figures as `result.json` has them."""
        return asdict(self) | {"change": self.change, "beyond": self.beyond}


def check_answers(gates: UsedGates, figures: AnswerFigures) -> None:
    """Raise DataGateError if more answers changed than the gate allows."""
    if figures.beyond > gates.max_answer_change:
        queries = format_count(figures.queries, "watched query", "watched queries")
        raise DataGateError(
            f"{100 * figures.beyond:.1f} % of the answers to {queries} changed beyond growth,"
            f" more than {cite('max_answer_change')} {gates.max_answer_change:g} allows"
            f"{_describe_largest(figures)}; mend that, or say {cite('max_answer_change')} 1"
        )


def _describe_largest(figures: AnswerFigures) -> str:
    """Return the clause about the largest cause, with an example; "" without a lost answer."""
    cause = figures.largest
    if cause is None:
        return ""
    text = f": mostly {CAUSES[cause]} ({figures.causes[cause]:,} of {figures.lost:,})"
    example = figures.examples.get(cause)
    if example is None:
        return text
    now = _describe_now(example)
    return f"{text}, as {example.query!r}, whose first hit was {example.before} and {now}"


def _describe_now(example: ChangedQuery) -> str:
    if example.after is None:
        return "is none now"
    return "still is" if example.after == example.before else f"is {example.after} now"


def describe_causes(causes: Mapping[str, int]) -> str:
    """Return the counts of lost answers by cause, the largest first."""
    ordered = sorted(causes.items(), key=lambda item: -item[1])
    return ", ".join(f"{count:,} {CAUSES.get(cause, cause)}" for cause, count in ordered if count)
