"""SVG files: charts side by side, and heat maps."""

from collections.abc import Sequence

from sentence_beam.transforms.report.chart import Chart, HeatMap
from sentence_beam.transforms.report.html import make_environment


def draw_charts(title: str, charts: Sequence[tuple[str, Chart]]) -> str:
    """Return an SVG file of charts side by side, each with its name."""
    return make_environment().get_template("charts.svg").render(title=title, charts=charts)


def draw_heat_map(heat_map: HeatMap) -> str:
    """Return an SVG file of a heat map."""
    return make_environment().get_template("heat.svg").render(map=heat_map)
