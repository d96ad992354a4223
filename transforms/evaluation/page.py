"""The scores as one HTML file that needs nothing else: tables that sort, intervals, heat maps of
attention heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transforms.evaluation.evidence import ALL
from transforms.evaluation.heads import head_scores
from transforms.evaluation.rows import Row
from transforms.report.html import environment

if TYPE_CHECKING:
    from jinja2 import Template

WIDTH = 160  # of a drawn interval, in pixels
BESIDE = ("mean", "wmean", "pearson", "uniformity", "alignment", "mean_cosine", "threshold")


@dataclass(frozen=True)
class DrawnInterval:
    """An interval as it is drawn: places from 0 to WIDTH of its ends, of the score, and of zero, if
    that is inside.
    """

    low: float
    high: float
    at: float
    zero: float | None


@dataclass(frozen=True)
class Line:
    """A row of scores with its intervals and the figures that stand beside."""

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


@dataclass(frozen=True)
class Cell:
    """A head's score, and how far it is from the worst (0) to the best (1) of its task; None: no
    score.
    """

    score: float | None
    share: float


@dataclass(frozen=True)
class HeatMap:
    """The scores of all heads on a task: a row for each block, in each a cell for each head."""

    task: str
    rows: list[list[Cell]]


def page(
    model: str, rows: Sequence[Row], notes: Sequence[str], grid: tuple[int, int] | None = None
) -> str:
    """The HTML of scores; `grid` is the number of blocks and heads, where every head was scored."""
    return _template().render(
        model=model,
        notes=notes,
        sections=_sections(rows),
        parts=[row for row in rows if row["subset"] not in (ALL, "mean", "wmean")],
        maps=_heat_maps(rows, grid) if grid else [],
        width=WIDTH,
    )


@cache
def _template() -> "Template":
    """The page with its holes."""
    found = environment(Path(__file__).with_name("templates"))
    found.filters |= {"figure": _figure, "short": _short}
    return found.get_template("page.html")


def _sections(rows: Sequence[Row]) -> list[Section]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["subset"] == ALL:
            found.setdefault((row["task"], row["metric"]), []).append(row)
    return [_section(list(rows), same) for same in found.values()]


def _section(rows: list[Row], same: list[Row]) -> Section:
    scores, diffs = (
        [(row[f"{name}low"], row[f"{name}high"]) for row in same] for name in ("", "diff_")
    )
    lines = [
        Line(
            row,
            _bar(row["low"], row["high"], row["score"], scores),
            _bar(row["diff_low"], row["diff_high"], row["diff"], [*diffs, (0.0, 0.0)]),
            _beside(rows, row),
        )
        for row in same
    ]
    first = same[0]
    named = [name for name in BESIDE if any(line.beside.get(name) is not None for line in lines)]
    return Section(first["task"], first["kind"], first["metric"], first["n"], lines, named)


def _beside(rows: list[Row], row: Row) -> dict[str, float | None]:
    """The figures beside a row's score; the means over subsets where there are several."""
    key = ("task", "metric", "pooler", "calibration", "dim")
    same = {r["subset"]: r["score"] for r in rows if all(r[k] == row[k] for k in key)}
    means = {name: same[name] for name in ("mean", "wmean") if name in same and len(same) > 4}
    return {**means, **{name: row[name] for name in BESIDE if name in row}}


def _bar(
    low: float | None,
    high: float | None,
    at: float | None,
    all_of: Sequence[tuple[float | None, float | None]],
) -> DrawnInterval | None:
    """An interval, to the scale of all of them; None where it is not defined."""
    if low is None or high is None or at is None:
        return None
    ends = [end for pair in all_of for end in pair if end is not None]
    least, most = min(ends), max(ends)

    def place(value: float) -> float:
        return round(4 + (WIDTH - 8) * (value - least) / ((most - least) or 1.0), 1)

    return DrawnInterval(
        place(low), place(high), place(at), place(0.0) if least <= 0 <= most else None
    )


def _heat_maps(rows: Sequence[Row], grid: tuple[int, int]) -> list[HeatMap]:
    maps = []
    for task in dict.fromkeys(
        row["task"] for row in rows if row["metric"] == "spearman" and row["kind"] == "sts"
    ):
        scores = head_scores(rows, task, grid)
        known = scores[scores == scores]
        if not known.size:
            continue
        least, spread = float(known.min()), float(known.max() - known.min()) or 1.0
        cells = [
            [
                Cell(float(v), (float(v) - least) / spread) if v == v else Cell(None, 0.0)
                for v in row
            ]
            for row in scores
        ]
        maps.append(HeatMap(task, cells))
    return maps


def _figure(value: Any, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"
