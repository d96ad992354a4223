"""Rows of scores: what is printed, written and drawn."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from transforms.evaluation.correlations import Correlations
from transforms.evaluation.evidence import ALL, MEAN, WMEAN, Evidence
from transforms.evaluation.intervals import Belief, Draws, average, beliefs, draw
from transforms.evaluation.methods import Method
from transforms.evaluation.options import AVERAGE
from transforms.evaluation.task import Predictions

Row = dict[str, Any]
DEV = "dev"


def scored(
    name: str,
    kind: str,
    evidence: Mapping[str, Evidence],
    predictions: Mapping[Method, Predictions],
) -> tuple[list[Row], Draws]:
    """The rows of a task for each metric, method and subset, and the draws of its first metric over
    all items.
    """
    rows: list[Row] = []
    draws = {metric: draw(found, seed_of(name)) for metric, found in evidence.items()}
    for metric, found in evidence.items():
        sizes = _sizes(found)
        believed = {subset: beliefs(drawn) for subset, drawn in draws[metric].items()}
        for place, (method, predicted) in enumerate(predictions.items()):
            for subset in believed:
                row = _row(
                    name,
                    kind,
                    metric,
                    subset,
                    method,
                    sizes[subset],
                    believed[subset],
                    place,
                    list(predictions),
                )
                rows.append(row | _figures(predicted, subset))
    return rows, draws[next(iter(evidence))][ALL]


def averaged(
    kind: str, metric: str, draws: Sequence[Draws], methods: Sequence[Method], n: int
) -> list[Row]:
    """The rows of the average over the tasks of a kind."""
    believed = beliefs(average(draws))
    return [
        _row(AVERAGE, kind, metric, ALL, method, n, believed, at, methods)
        for at, method in enumerate(methods)
    ]


def best_by_dev(rows: Sequence[Row]) -> str | None:
    """A line with the best method by the task named `dev`, and what it scores on the others; None
    without a choice.
    """
    of_all = [row for row in rows if row["subset"] == ALL]
    on_dev = [row for row in of_all if row["task"] == DEV and row["score"] is not None]
    if not on_dev or len({_named(row) for row in on_dev}) < 2:
        return None
    on_dev = [row for row in on_dev if row["metric"] == on_dev[0]["metric"]]
    best = max(on_dev, key=lambda row: row["score"])  # of equals the first
    firsts: dict[str, str] = {}
    for row in of_all:
        firsts.setdefault(row["task"], row["metric"])
    others = [
        f"{row['task']} {_figure(row['score'])}"
        for row in of_all
        if row["task"] != DEV
        and _named(row) == _named(best)
        and row["metric"] == firsts[row["task"]]
    ]
    words = str(Method(best["pooler"], best["calibration"], best["dim"]))
    return "; ".join(
        [
            f"best by {DEV} of {len(on_dev)}: {words}: {DEV} {_figure(best['score'])}",
            ", ".join(others),
        ]
    )


def undefined(rows: Sequence[Row]) -> list[str]:
    """A note for each task and subset in which methods have no score."""
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


def seed_of(name: str) -> tuple[int, ...]:
    """A seed of a task's own: tasks are drawn from independently, and the same way each time."""
    return (int(hashlib.sha256(name.encode()).hexdigest()[:8], 16),)


def _row(
    task: str, kind: str, metric: str, subset: str, method: Method, n: int,
    believed: Sequence[Belief], place: int, methods: Sequence[Method],
) -> Row:  # fmt: skip
    row: Row = {
        "task": task,
        "kind": kind,
        "metric": metric,
        "subset": subset,
        **method.fields,
        "n": n,
    }
    belief = vars(believed[place])
    row |= {key: belief[key] for key in ("score", "low", "high")}
    row["against"] = str(methods[0]) if place else None
    row |= {key: belief[key] for key in ("diff", "diff_low", "diff_high", "p", "p_holm")}
    return row | ({"spearman": belief["score"]} if kind == "sts" else {})


def _sizes(evidence: Evidence) -> dict[str, int]:
    total = sum(evidence.strata)
    sizes = {ALL: total, MEAN: total, WMEAN: total}
    return sizes | (dict(evidence.subsets) if isinstance(evidence, Correlations) else {})


def _figures(predictions: Predictions, subset: str) -> Row:
    """The figures that stand in the row of a subset as they are; None where one is not finite."""
    found = {}
    for key, array in predictions.items():
        where, slash, name = key.rpartition("/")
        if slash and where == subset:
            value = float(np.asarray(array).reshape(-1)[0])
            found[name] = round(value, 6) if math.isfinite(value) else None
    return found


def _named(row: Row) -> tuple[Any, ...]:
    return (row["pooler"], row["calibration"], row["dim"], row.get("search"))


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
