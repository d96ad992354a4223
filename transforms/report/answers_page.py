"""The page about watched queries: answers side by side, and a line over the nights."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from sentence_beam.transforms.report.html import make_environment
from sentence_beam.transforms.report.report_page import draw_answer_charts
from sentence_beam.transforms.report.run_history import RunSummary
from sentence_beam.transforms.store.runs.answer_figures import CAUSES, AnswerFigures

if TYPE_CHECKING:
    from jinja2 import Template


@dataclass(frozen=True)
class ShownAnswer:
    """An answer on the page: id, score, the beginning of its text, and why it was lost.

    `score` is None if the scores of both sides have nothing in common. `cause` is "" for an answer
    that was not lost; `is_new` marks one that the query did not have.
    """

    id: str
    score: float | None
    text: str
    cause: str = ""
    is_new: bool = False


@dataclass(frozen=True)
class ShownQuery:
    """A query on the page, with its answers before and after."""

    text: str
    overlap: float
    before: Sequence[ShownAnswer]
    after: Sequence[ShownAnswer]


def render_answers(
    store: str,
    sides: tuple[str, str],
    figures: AnswerFigures,
    queries: Sequence[ShownQuery],
    summaries: Sequence[RunSummary],
) -> str:
    """Return the HTML of the page about two snapshots, the older one first in `sides`.

    Without summaries of runs the page has no charts.
    """
    causes = sorted(figures.causes.items(), key=lambda item: -item[1])
    return _load_template().render(
        store=store,
        old=sides[0],
        new=sides[1],
        figures=figures,
        causes=[(CAUSES[cause], count) for cause, count in causes],
        words=CAUSES,
        queries=queries,
        charts=draw_answer_charts(summaries) if summaries else [],
    )


@cache
def _load_template() -> "Template":
    return make_environment().get_template("answers.html")
