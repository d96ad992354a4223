"""The lines of a summary about the index, and about the answers to watched queries."""

from typing import Any

from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.report.run_history import (
    RUNS_SEEN,
    read_known_summaries,
    recommend_answer_change,
)
from sentence_beam.transforms.store.index_entries import ChangeEntry, IndexEntry, RecallEntry
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.runs.answer_figures import describe_causes
from sentence_beam.transforms.store.runs.run_result import Result


def describe_index(index: IndexEntry | None, before: IndexEntry | None) -> list[str]:
    """Return the lines about an index and its difference from the one `before`, if any."""
    if index is None:
        return []
    about = f"{index.factory}, {index.metric}, {len(index.segments)} segments"
    lines = [format_summary_line("index", f"{about}{_describe_recalls(index)}")]
    if index != before:
        lines += _describe_change(index)
    return lines


def describe_answers(root: str, result: Result) -> list[str]:
    """Return the lines about the answers to watched queries; none if nothing was compared."""
    answers = result.watch
    if answers is None:
        return []
    changed = (
        f"{100 * answers['change']:.1f} % of {answers['answers']:,} changed,"
        f" {100 * answers['beyond']:.1f} % beyond growth"
    )
    causes = describe_causes(answers["causes"])
    if causes:
        changed = f"{changed}: {causes}"
    measures = (
        f"overlap@{answers['k']} {answers['overlap']:.3f}, rank-biased {answers['rbo']:.3f}, first"
        f" hit of {100 * answers['first_changed']:.1f} % of the queries changed"
    )
    lines = [format_summary_line("answers", changed), format_summary_line("overlap", measures)]
    lines += [format_summary_line("answers", note) for note in _note_answers(root, answers)]
    return lines


def _note_answers(root: str, answers: dict[str, Any]) -> list[str]:
    """Return how the answers were found if not by the index, and a gate if none is set."""
    notes = []
    if answers["by_ids"]:
        notes.append("compared by ids and texts alone: the vectors before are of another space")
    if not answers["indexed"] and answers["rows"] < 1:
        part = f"{100 * answers['rows']:g} % of the units"
        notes.append(f"the store has no index: exact search over {part}")
    elif not answers["indexed"]:
        notes.append("the store has no index: exact search over all rows")
    current = read_manifest(root)
    if current is not None and current.options.max_answer_change is None:
        value = recommend_answer_change(read_known_summaries(root))
        if value is not None:
            notes.append(f"--max-answer-change {value:g} would fit the last {RUNS_SEEN} runs")
    return notes


def _describe_recalls(index: IndexEntry) -> str:
    """The recall of an index, and by what it misses its targets."""
    recall = index.recall
    text = _describe_recall(recall) if recall else " (too few rows to measure recall)"
    if recall and recall.value < recall.target:
        text += f", below the target of {recall.target:g}"
    deep = index.recall_100
    if deep and deep.value < deep.target:
        text += f", recall@{deep.k} {deep.value:.4f} below {deep.target:g}"
    return text


def _describe_change(index: IndexEntry) -> list[str]:
    """The lines about how the index was made in this run."""
    change = index.change
    if change is None:
        return []
    if change.what == "trained":
        return _describe_training(index, change)
    facts = [change.why] if change.why else []
    if change.added or change.deleted or change.moved:
        rows = format_count(change.added, "row")
        facts.append(f"{rows} added, {change.deleted:,} deleted, {change.moved:,} moved")
    if index.recall_changed:
        facts.append(f"of the rows added{_describe_recall(index.recall_changed)[1:]}")
    return [format_summary_line(change.what, "; ".join(facts))]


def _describe_training(index: IndexEntry, change: ChangeEntry) -> list[str]:
    """The lines about a new index: why its kind was chosen, and why it was trained again."""
    lines = []
    choice = index.choice
    if choice is not None and choice.tried:
        costs = f"{choice.row_bytes:,} bytes held a row, {choice.query_bytes:,} read a query"
        lines.append(format_summary_line("chosen", f"{costs}: {choice.why}"))
    if change.why and index.trained.times > 1:
        lines.append(format_summary_line("trained", f"again: {change.why}"))
    return lines


def _describe_recall(recall: RecallEntry) -> str:
    queries = format_count(recall.queries, "query", "queries")
    return (
        f", recall@{recall.k} {recall.value:.4f} ({recall.low:.4f} to {recall.high:.4f}, {queries})"
    )
