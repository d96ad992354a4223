"""Rows of scores, to print, write and draw."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sentence_beam.transforms.evaluation.compared_methods import Method
from sentence_beam.transforms.evaluation.correlations import Correlations
from sentence_beam.transforms.evaluation.evaluate_options import AVERAGE
from sentence_beam.transforms.evaluation.evidence import ALL, MEAN, WMEAN, Evidence
from sentence_beam.transforms.evaluation.intervals import (
    Belief,
    Draws,
    average,
    compute_beliefs,
    draw,
)
from sentence_beam.transforms.evaluation.task import Predictions

Row = dict[str, Any]
DEV = "dev"


def score_task(
    name: str,
    kind: str,
    evidence: Mapping[str, Evidence],
    predictions: Mapping[Method, Predictions],
) -> tuple[list[Row], Draws]:
    """Return the rows of a task for each metric, method and subset.

    Also returns the draws of its first metric over all items.
    """
    rows: list[Row] = []
    draws = {metric: draw(values, make_seed(name)) for metric, values in evidence.items()}
    for metric, values in evidence.items():
        sizes = _count_items(values)
        believed = {subset: compute_beliefs(drawn) for subset, drawn in draws[metric].items()}
        for place, (method, predicted) in enumerate(predictions.items()):
            against = str(next(iter(predictions))) if place else None
            for subset in believed:
                named: Row = {"task": name, "kind": kind, "metric": metric, "subset": subset}
                named |= {**method.fields, "n": sizes[subset]}
                row = _make_row(named, believed[subset][place], against)
                rows.append(row | _select_figures(predicted, subset))
    return rows, draws[next(iter(evidence))][ALL]


def average_tasks(
    kind: str, metric: str, draws: Sequence[Draws], methods: Sequence[Method], n: int
) -> list[Row]:
    """Return the rows of the average over the tasks of a kind."""
    rows = []
    believed = compute_beliefs(average(draws))
    for place, (method, belief) in enumerate(zip(methods, believed, strict=True)):
        named: Row = {"task": AVERAGE, "kind": kind, "metric": metric, "subset": ALL}
        named |= {**method.fields, "n": n}
        rows.append(_make_row(named, belief, str(methods[0]) if place else None))
    return rows


def find_best_by_dev(rows: Sequence[Row]) -> str | None:
    """Return a line with the best method by the task named `dev` and its other scores.

    Returns None if there are not two methods to choose from.
    """
    of_all = [row for row in rows if row["subset"] == ALL]
    on_dev = [row for row in of_all if row["task"] == DEV and row["score"] is not None]
    if not on_dev or len({_identify(row) for row in on_dev}) < 2:
        return None
    on_dev = [row for row in on_dev if row["metric"] == on_dev[0]["metric"]]
    best = max(on_dev, key=lambda row: row["score"])  # of equals the first
    firsts: dict[str, str] = {}
    for row in of_all:
        firsts.setdefault(row["task"], row["metric"])
    others = [
        f"{row['task']} {_format_score(row['score'])}"
        for row in of_all
        if row["task"] != DEV
        and _identify(row) == _identify(best)
        and row["metric"] == firsts[row["task"]]
    ]
    words = str(Method(best["pooler"], best["calibration"], best["dim"]))
    first = f"best by {DEV} of {len(on_dev)}: {words}: {DEV} {_format_score(best['score'])}"
    return f"{first}; {', '.join(others)}"


def note_undefined(rows: Sequence[Row]) -> list[str]:
    """Return a note for each task and subset in which methods have no score."""
    missing: dict[tuple[str, str], dict[str, int]] = {}
    for row in rows:
        if row["score"] is None and row["subset"] not in (MEAN, WMEAN):
            counts = missing.setdefault((row["task"], row["metric"]), {})
            counts[row["subset"]] = counts.get(row["subset"], 0) + 1
    notes = []
    for (task, metric), counts in missing.items():
        parts = [subset for subset in counts if subset != ALL]
        left = f" in {', '.join(parts)}, left out of mean and wmean" if ALL not in counts else ""
        number = max(counts.values())
        notes.append(
            f"{task}: {metric} is undefined{left} ({number} method{'s' * (number > 1)}): all scores"
            " are equal"
        )
    return notes


def make_seed(name: str) -> tuple[int, ...]:
    """Return a seed that depends on the task's name, so that tasks have independent draws."""
    return (int(hashlib.sha256(name.encode()).hexdigest()[:8], 16),)


def _make_row(named: Row, belief: Belief, against: str | None) -> Row:
    """Return the row of a score, from the fields that name it.

    `against` is the first method's name, for all but the first method.
    """
    row: Row = {
        **named,
        "score": belief.score,
        "low": belief.low,
        "high": belief.high,
        "against": against,
        "diff": belief.diff,
        "diff_low": belief.diff_low,
        "diff_high": belief.diff_high,
        "p": belief.p,
        "p_holm": belief.p_holm,
    }
    if named["kind"] == "sts":
        row["spearman"] = belief.score
    return row


def _count_items(evidence: Evidence) -> dict[str, int]:
    total = sum(evidence.strata)
    sizes = {ALL: total, MEAN: total, WMEAN: total}
    if isinstance(evidence, Correlations):
        sizes |= dict(evidence.subsets)
    return sizes


def _select_figures(predictions: Predictions, subset: str) -> Row:
    """Return the method's own figures for the row of a subset, None if one is not finite."""
    figures: Row = {}
    for key, array in predictions.items():
        subset_of_key, slash, name = key.rpartition("/")
        if slash and subset_of_key == subset:
            value = float(np.asarray(array).reshape(-1)[0])
            figures[name] = round(value, 6) if math.isfinite(value) else None
    return figures


def _identify(row: Row) -> tuple[Any, ...]:
    return (row["pooler"], row["calibration"], row["dim"], row.get("search"))


def _format_score(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
