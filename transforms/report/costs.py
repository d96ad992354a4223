"""Compute the cost of runs, and what reused vectors saved, at a price of an hour."""

from collections.abc import Sequence
from dataclasses import dataclass

from sentence_beam.transforms.report.run_history import RunSummary


@dataclass(frozen=True)
class Cost:
    """The money that a run `spent` and `saved`, None if unknown."""

    spent: float | None
    saved: float | None


def compute_costs(ordered: Sequence[RunSummary], price: float) -> dict[str, Cost]:
    """Return the costs of runs by their names, from the oldest run on, at a price of an hour.

    `saved` is the price of the time that spared tokens would have taken. The speed assumed is the
    best of any run so far with the same pooled vectors, because a small run spends most of its time
    starting up.
    """
    best: dict[str, float] = {}
    costs_by_run = {}
    for summary in ordered:
        speed = max(best.get(summary.pooled, 0.0), summary.tokens_per_second or 0.0)
        best[summary.pooled] = speed
        spent = None if summary.seconds is None else compute_price(summary.seconds, price)
        spared = summary.spared
        saved = None if spared is None or speed <= 0 else compute_price(spared / speed, price)
        costs_by_run[summary.run] = Cost(spent, saved)
    return costs_by_run


def compute_price(seconds: float, per_hour: float) -> float:
    """Return the price of a time."""
    return round(per_hour * seconds / 3600, 6)
