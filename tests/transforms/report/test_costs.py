"""Costs of runs at a price of an hour, alone and on the page."""

from dataclasses import replace
from typing import Any

from helpers.snapshots import run_name

from sentence_beam.transforms.report.costs import Cost, compute_costs
from sentence_beam.transforms.report.report_page import render_report
from sentence_beam.transforms.report.run_history import RunSummary

PRICE = 3.6  # an hour: a tenth of a cent a second


def timed(number: int, tokens: int, seconds: float, spared: int, **values: Any) -> RunSummary:
    """A committed night."""
    made = RunSummary(
        run_name(number), "committed", f"2026-01-0{number + 1}T02:00:00Z", seconds, pooled="p",
        tokens=tokens, spared=spared, tokens_per_second=tokens / seconds, command="embed",
    )  # fmt: skip
    return replace(made, **values)


def test_savings_are_at_the_best_speed_so_far_with_these_pooled_vectors() -> None:
    found = compute_costs(
        [
            timed(0, 1000, 10, 0),
            timed(1, 10, 5, 2000),  # two tokens a second, which is start-up
            timed(2, 0, 5, 3000, space="another calibration"),
            timed(3, 4000, 10, 1000),
            timed(4, 100, 10, 1000, pooled="another"),
            timed(5, 0, 5, 1000, pooled="never measured"),
        ],
        PRICE,
    )
    assert [cost.saved for cost in found.values()] == [0, 0.02, 0.03, 0.0025, 0.1, None]
    assert [cost.spent for cost in found.values()] == [0.01, 0.005, 0.005, 0.01, 0.01, 0.005]


def test_a_run_of_unknown_length_has_no_cost() -> None:
    left = RunSummary(run_name(0), "unfinished", "2026-01-01T02:00:00Z")
    assert compute_costs([left], PRICE) == {run_name(0): Cost(None, None)}


def test_the_page_has_costs_at_a_price_alone() -> None:
    nights = [timed(0, 1000, 10_000, 0), timed(1, 10, 5000, 2000)]
    html = render_report("/s", nights, price=PRICE)
    assert "<th>spent</th><th>saved</th>" in html
    assert "<td>10.00</td><td>0.00</td>" in html
    assert "<td>5.00</td><td>20.00</td>" in html
    assert "against embedding everything" in html
    assert "<th>spent</th>" not in render_report("/s", nights)
