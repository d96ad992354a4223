"""The answers of two stores to the queries that one of them watches, for `watch --like`."""

from typing import Any

from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.output import write_text
from sentence_beam.pipelines.common.tables import Column, cut_end, cut_middle, format_table, wrapped
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.report.answers_page import render_answers
from sentence_beam.transforms.steps.options.store import SHOWN
from sentence_beam.transforms.steps.watch.ask import embed_current_queries
from sentence_beam.transforms.steps.watch.compared_answers import ComparedAnswers, ComparedQuery
from sentence_beam.transforms.steps.watch.snapshots import list_changed_queries, show_queries
from sentence_beam.transforms.steps.watch.two_stores import compare_stores
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.answer_figures import AnswerFigures, describe_causes
from sentence_beam.transforms.store.watched import read_queries

FIGURES = (
    "queries", "k", "answers", "causes", "overlap", "rbo", "first_changed", "indexed", "rows",
    "change",
)  # fmt: skip


def compare_with_other(
    new: Manifest, old: Manifest, model: str | None, report: str | None
) -> CommandOutput:
    """Return how the answers of a store differ from those of another, and write a page if wanted.

    `model` is the path of the store's model on this machine. Nothing is compared by score. Raises
    OptionError if the other store watches no queries.
    """
    if old.watch is None:
        raise OptionError(
            f"{cite('like')} {old.root}: it watches no queries; name some with sentence-beam watch"
            f" --store {old.root}"
        )
    watched = embed_current_queries(read_queries(old.root, old.watch), new, model)
    compared = compare_stores(old, new, watched)
    values = {
        "store": new.root,
        "run": new.run,
        "like": {"store": old.root, "run": old.run},
        **{name: compared.figures.to_json()[name] for name in FIGURES},
        "differing": [_describe_query(query) for query in list_changed_queries(compared)],
    }
    lines = [*_describe_answers(old, compared.figures), *_list_queries(compared)]
    if report is None:
        return CommandOutput(lines, values, always=True)
    shown = show_queries(compared, old, new)
    write_text(report, render_answers(new.root, (old.root, new.root), compared.figures, shown, ()))
    return CommandOutput(
        [*lines, format_summary_line("report", report)], {**values, "report": report}, True
    )


def _describe_answers(old: Manifest, figures: AnswerFigures) -> list[str]:
    queries = format_count(figures.queries, "query", "queries")
    share = f"{100 * figures.change:.1f} % of {figures.answers:,} differ"
    causes = describe_causes(figures.causes)
    if causes:
        share = f"{share}: {causes}"
    overlap = (
        f"overlap@{figures.k} {figures.overlap:.3f}, rank-biased {figures.rbo:.3f}, first hit of"
        f" {100 * figures.first_changed:.1f} % of the queries differs"
    )
    lines = [
        format_summary_line("watch", f"{queries} of {old.root}"),
        format_summary_line("answers", share),
    ]
    if figures.rows < 1:
        lines.append(format_summary_line("searched", f"{100 * figures.rows:g} % of the units"))
    return wrapped([*lines, format_summary_line("overlap", overlap)])


def _list_queries(compared: ComparedAnswers) -> list[str]:
    """Return a table of the queries whose answers differ, those that differ most first."""
    queries = list_changed_queries(compared)
    if not queries:
        return []
    cells = [
        [
            f"{100 * _compute_share(query):.0f} %",
            ", ".join(query.before[place].id for place in sorted(query.lost)),
            ", ".join(query.after[place].id for place in query.gained),
            query.text,
        ]
        for query in queries[:SHOWN]
    ]
    columns = [
        Column("differ", right=True),
        Column("only there", cut_middle),
        Column("only here", cut_middle),
        Column("query", cut_end),
    ]
    lines = format_table(columns, cells)
    if len(queries) > SHOWN:
        lines.append(f"and {len(queries) - SHOWN:,} more; --json has all")
    return lines


def _describe_query(query: ComparedQuery) -> dict[str, Any]:
    """Return a query whose answers differ as JSON values, with the ranks of its rows."""
    return {
        "query": query.text,
        "share": _compute_share(query),
        "only_there": [
            {"rank": place + 1, "id": query.before[place].id, "cause": reason.cause}
            for place, reason in sorted(query.lost.items())
        ],
        "only_here": [{"rank": place + 1, "id": query.after[place].id} for place in query.gained],
    }


def _compute_share(query: ComparedQuery) -> float:
    return len(query.lost) / len(query.before)
