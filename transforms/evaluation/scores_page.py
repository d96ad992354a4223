"""Render scores as one HTML file: tables that sort, intervals, heat maps of attention heads."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_beam.transforms.evaluation.evidence import ALL
from sentence_beam.transforms.evaluation.heads import draw_head_maps
from sentence_beam.transforms.evaluation.score_rows import Row
from sentence_beam.transforms.report.html import make_environment

if TYPE_CHECKING:
    from jinja2 import Template

WIDTH = 160  # of a drawn interval, in pixels
BESIDE = ("mean", "wmean", "pearson", "uniformity", "alignment", "mean_cosine", "threshold")


@dataclass(frozen=True)
class DrawnInterval:
    """An interval in pixels from 0 to WIDTH: its ends, the score, and zero if it is inside."""

    low: float
    high: float
    at: float
    zero: float | None


@dataclass(frozen=True)
class Line:
    """A row of scores with its intervals and other figures."""

    row: Row
    bar: DrawnInterval | None
    diff_bar: DrawnInterval | None
    beside: dict[str, float | None]


@dataclass(frozen=True)
class Section:
    """The methods on one task by one metric."""

    task: str
    kind: str
    metric: str
    n: int
    lines: list[Line]
    beside: list[str]


def render_page(
    model: str, rows: Sequence[Row], notes: Sequence[str], grid: tuple[int, int] | None = None
) -> str:
    """Render scores; `grid` is the number of blocks and heads, if every head was scored."""
    maps = draw_head_maps(rows, grid) if grid is not None else {}
    return load_template("page.html").render(
        model=model,
        notes=notes,
        sections=_list_sections(rows),
        parts=[row for row in rows if row["subset"] not in (ALL, "mean", "wmean")],
        maps=maps,
        width=WIDTH,
    )


@cache
def load_template(name: str) -> "Template":
    """Return a template of a page of scores or figures."""
    templates = make_environment(Path(__file__).with_name("templates"))
    templates.filters |= {"figure": _format_figure, "short": _format_short}
    return templates.get_template(name)


def _list_sections(rows: Sequence[Row]) -> list[Section]:
    sections: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["subset"] == ALL:
            sections.setdefault((row["task"], row["metric"]), []).append(row)
    return [_make_section(list(rows), same) for same in sections.values()]


def _make_section(rows: list[Row], same: list[Row]) -> Section:
    scores = [(row["low"], row["high"]) for row in same]
    diffs = [(row["diff_low"], row["diff_high"]) for row in same]
    lines = [
        Line(
            row,
            _draw_interval(row["low"], row["high"], row["score"], scores),
            _draw_interval(row["diff_low"], row["diff_high"], row["diff"], [*diffs, (0.0, 0.0)]),
            _collect_beside(rows, row),
        )
        for row in same
    ]
    first = same[0]
    named = [name for name in BESIDE if any(line.beside.get(name) is not None for line in lines)]
    return Section(first["task"], first["kind"], first["metric"], first["n"], lines, named)


def _collect_beside(rows: list[Row], row: Row) -> dict[str, float | None]:
    """Return the figures beside a row's score, and the subsets' means if there are several."""
    key = ("task", "metric", "pooler", "calibration", "dim")
    same = {r["subset"]: r["score"] for r in rows if all(r[k] == row[k] for k in key)}
    means = {name: same[name] for name in ("mean", "wmean") if name in same and len(same) > 4}
    return {**means, **{name: row[name] for name in BESIDE if name in row}}


def _draw_interval(
    low: float | None,
    high: float | None,
    at: float | None,
    intervals: Sequence[tuple[float | None, float | None]],
) -> DrawnInterval | None:
    """Scale an interval to the range of all of them; None if it is not defined."""
    if low is None or high is None or at is None:
        return None
    ends = [end for pair in intervals for end in pair if end is not None]
    least = min(ends)
    most = max(ends)

    def place(value: float) -> float:
        return round(4 + (WIDTH - 8) * (value - least) / ((most - least) or 1.0), 1)

    zero = place(0.0) if least <= 0 <= most else None
    return DrawnInterval(place(low), place(high), place(at), zero)


def _format_figure(value: Any, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _format_short(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"
