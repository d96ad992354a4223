"""The picture of a fit: a calibration's vectors before and after it, and a flow's loss."""

import math
from collections.abc import Sequence
from typing import Any

from sentence_beam.transforms.report.chart import Chart, Series, draw_compared_chart
from sentence_beam.transforms.report.pictures import draw_charts

ROUNDING = 1e-6  # a smaller share of the largest deviation is the rounding of sums


def draw_fit(fit: dict[str, Any]) -> str:
    """Return an SVG of a fit's figures: spectrum and cosines before and after, a flow's loss."""
    charts = [
        ("deviation by principal direction; grey: before", _draw_spectra(fit)),
        ("share of pairs by cosine; grey: before", _draw_cosines(fit)),
    ]
    if fit.get("flow"):
        charts.append(("bits a component by step, held out; grey: training", _draw_loss(fit)))
    return draw_charts(f"{fit['method']}, fitted on {fit['n']:,} rows", charts)


def _draw_spectra(fit: dict[str, Any]) -> Chart:
    """Return the chart of the deviations on a logarithmic axis."""
    before = _logarithms(fit["shape_before"]["spectrum"])
    after = _logarithms(fit["shape_after"]["spectrum"])
    after += [None] * (len(before) - len(after))
    labels = [str(direction + 1) for direction in range(len(before))]
    return _draw_chart(labels, before, after, lambda value: f"{10**value:.2g}")


def _logarithms(spectrum: Sequence[float]) -> list[float | None]:
    """Return the logarithms to base 10; None for values that are rounding."""
    least = ROUNDING * spectrum[0]
    return [math.log10(value) if value > least else None for value in spectrum]


def _draw_cosines(fit: dict[str, Any]) -> Chart:
    before, after = (fit[f"shape_{name}"]["cosines"] for name in ("before", "after"))
    width = 2 / len(before)
    labels = [f"{-1 + width * number:.2f}" for number in range(len(before))]
    return _draw_chart(labels, before, after, lambda value: f"{value:.2g}")


def _draw_loss(fit: dict[str, Any]) -> Chart:
    curve = fit["flow"]["curve"]
    labels = [str(point["step"]) for point in curve]
    train, held_out = ([point[name] for point in curve] for name in ("train", "held_out"))
    return _draw_chart(labels, train, held_out, lambda value: f"{value:.3g}")


def _draw_chart(
    labels: Sequence[str],
    before: Sequence[float | None],
    after: Sequence[float | None],
    show: Any,
) -> Chart:
    failed = [False] * len(labels)
    return draw_compared_chart(
        Series(labels, before, failed, show), Series(labels, after, failed, show)
    )
