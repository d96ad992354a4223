"""The report as one self-contained HTML file: no script, no network, light and dark."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from sentence_beam.transforms.base.measures import STAGES, Measures
from sentence_beam.transforms.report.alerts import find_alerts
from sentence_beam.transforms.report.chart import (
    Chart,
    Series,
    draw_bar_chart,
    draw_change_chart,
    draw_line_chart,
)
from sentence_beam.transforms.report.costs import Cost, compute_costs
from sentence_beam.transforms.report.html import make_environment
from sentence_beam.transforms.report.run_history import RunSummary, find_last_committed
from sentence_beam.transforms.report.snapshot_section import find_reasons, list_facts
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.answer_figures import describe_causes
from sentence_beam.transforms.store.runs.run_result import COMMITTED

if TYPE_CHECKING:
    from jinja2 import Template

PLOTTED = 366
LISTED = 60
NIGHTLY = ("embed", "")  # commands that read the input; a run without a result names none
NEAR = timedelta(days=4)
WORK = (
    ("carried", "carried over"),
    ("reused", "reused"),
    ("duplicates", "duplicates"),
    ("embedded", "embedded"),
)
ANSWERS = (
    ("answers_beyond", "changed answers", "beyond growth, of all answers"),
    ("answer_overlap", "overlap of answers", "with those of the snapshot before"),
)
STATISTICS = ("count", "sum", "p50", "p95", "max")
COLUMNS = (
    "rows", "added", "changed", "deleted", "embedded", "reused", "duplicates", "carried",
    "rejected", "truncated",
)  # fmt: skip


def render_report(
    store: str,
    summaries: Sequence[RunSummary],
    manifest: Manifest | None = None,
    price: float | None = None,
) -> str:
    """Return the HTML of a store's page, from its runs in order and the current snapshot.

    With the `price` of an hour the page has the costs of the runs.
    """
    paid = {} if price is None else compute_costs(summaries, price)
    nights = [summary for summary in summaries if summary.command in NIGHTLY][-PLOTTED:]
    listed = summaries[-LISTED:]
    properties: list[tuple[str, str]] = list_facts(manifest) if manifest is not None else []
    return _load_template().render(
        _describe_last(find_last_committed(summaries), paid),
        store=store,
        alerts=find_alerts(manifest, summaries),
        facts=properties,
        reasons=find_reasons(manifest),
        failures=sum(summary.status != COMMITTED for summary in nights),
        charts=[
            *_make_charts(nights),
            *_make_cost_charts(nights, paid),
            *draw_answer_charts(summaries),
        ],
        columns=COLUMNS,
        costs=paid,
        listed=listed[::-1],
        more=len(summaries) - LISTED,
    )


def _describe_last(last: RunSummary | None, paid: Mapping[str, Cost]) -> dict[str, Any]:
    """Return the template's values that come from the last committed run."""
    if last is None:
        return {"last": None, "tiles": [], "work": [], "figures": []}
    return {
        "last": last,
        "tiles": [*_make_tiles(last), *_make_cost_tiles(paid.get(last.run))],
        "work": [(name, getattr(last, field) or 0) for field, name in WORK],
        "figures": _list_figures(last.measures or {}),
    }


@cache
def _load_template() -> "Template":
    templates = make_environment()
    templates.filters |= {
        "count": _show_count, "percent": _show_percent, "short": _shorten, "money": _show_money,
        "duration": _show_duration, "time": _show_time, "recall": _show_recall,
    }  # fmt: skip
    return templates.get_template("page.html")


def _make_tiles(summary: RunSummary) -> list[tuple[str, str, str]]:
    """Return name, figure and remark of each tile; unknown figures are left out."""
    tiles = [("rows", _show_count(summary.rows), _show_growth(summary))]
    if summary.pieces is not None:
        tiles.append(("pieces", _show_count(summary.pieces), "of the documents in these rows"))
    tiles += [
        ("embedded", _show_count(summary.embedded), _compare(summary.embedded, summary.stored)),
        (
            "time",
            _show_duration(summary.seconds or 0.0),
            f"{_shorten(summary.tokens_per_second or 0.0)} tokens/s",
        ),
        ("rejected", _show_count(summary.rejected), _compare(summary.rejected, summary.read)),
        ("truncated", _show_count(summary.truncated), _compare(summary.truncated, summary.stored)),
    ]
    if summary.recall is not None:
        tiles.append(("recall@10", _show_recall(summary.recall), summary.index or ""))
    if summary.answers_beyond is not None:
        answers = describe_causes(summary.answer_causes or {})
        tiles.append(("changed answers", _show_percents(summary.answers_beyond), answers))
    if summary.damaged:
        tiles.append(("damaged", _show_count(summary.damaged), "old shards, embedded again"))
    return tiles


def _make_cost_tiles(cost: Cost | None) -> list[tuple[str, str, str]]:
    """Return the tile of a run's cost; none if it is unknown."""
    if cost is None or cost.spent is None:
        return []
    saved = f"{_show_money(cost.saved)} saved" if cost.saved is not None else ""
    return [("spent", _show_money(cost.spent), saved)]


def _show_growth(summary: RunSummary) -> str:
    """Return the rows or pieces that a run added and deleted, empty if unknown."""
    if summary.added is None:
        return ""
    text = f"+{_show_count(summary.added)} \N{MINUS SIGN}{_show_count(summary.deleted)}"
    if summary.pieces is not None:
        text += " pieces"
    return text


def _list_figures(measures: Measures) -> list[tuple[str, str, list[float], str]]:
    """Return stage, name, statistics and meaning of each measured figure."""
    rows = []
    for stage, figures in STAGES.items():
        for figure in figures:
            statistics = measures.get(stage, {}).get(figure.name)
            if statistics:
                values = [statistics[name] for name in STATISTICS]
                rows.append((stage, figure.name, values, figure.meaning))
    return rows


def draw_answer_charts(summaries: Sequence[RunSummary]) -> list[tuple[str, str, Chart]]:
    """Return name, remark and chart of the watched queries' figures; none before a comparison."""
    nights = [summary for summary in summaries if summary.answers_beyond is not None][-PLOTTED:]
    if not nights:
        return []
    labels = _label_days([summary.started for summary in nights])
    failed = [summary.status != COMMITTED for summary in nights]
    charts = []
    for field, name, remark in ANSWERS:
        values = [getattr(summary, field) for summary in nights]
        if any(value is not None for value in values):
            series = Series(labels, values, failed, _show_percents)
            charts.append((name, remark, draw_line_chart(series)))
    return charts


def _show_percents(value: float) -> str:
    return f"{100 * value:.3g} %"


def _make_charts(summaries: Sequence[RunSummary]) -> list[tuple[str, str, Chart]]:
    """Return name, remark and chart of each number that the page follows from run to run."""
    labels = _label_days([summary.started for summary in summaries])
    failed = [summary.status != COMMITTED for summary in summaries]

    def series(name: str, show: Callable[[float], str] = _shorten, whole: bool = False) -> Series:
        values = [
            getattr(summary, name) if summary.status == COMMITTED else None for summary in summaries
        ]
        return Series(labels, values, failed, show, whole)

    def changes(name: str) -> Series:
        values = [getattr(summary, name) if summary.previous else None for summary in summaries]
        return Series(labels, values, failed, _shorten, whole=True)

    return [
        ("rows", "", draw_line_chart(series("rows", whole=True))),
        (
            "added, deleted",
            "rows a night; deleted ones below 0",
            draw_change_chart(changes("added"), changes("deleted")),
        ),
        ("embedded", "rows a night", draw_bar_chart(series("embedded", whole=True))),
        ("rejected", "rows of the snapshot", draw_line_chart(series("rejected", whole=True))),
        ("truncated", "rows of the snapshot", draw_line_chart(series("truncated", whole=True))),
        (
            "recall",
            "at 10",
            draw_line_chart(series("recall", lambda value: f"{value:.4g}"), top=1.0),
        ),
        ("time", "seconds from start to commit", draw_bar_chart(series("seconds"))),
    ]


def _make_cost_charts(
    summaries: Sequence[RunSummary], paid: Mapping[str, Cost]
) -> list[tuple[str, str, Chart]]:
    """Return name, remark and chart of what the runs saved; none without a price."""
    if not paid:
        return []
    labels = _label_days([summary.started for summary in summaries])
    failed = [summary.status != COMMITTED for summary in summaries]
    saved = [
        paid[summary.run].saved if summary.status == COMMITTED else None for summary in summaries
    ]
    chart = draw_bar_chart(Series(labels, saved, failed, _show_money))
    return [("saved", "against embedding everything", chart)]


def _show_count(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _show_recall(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _show_percent(part: int, whole: int | None) -> str:
    if not whole:
        return "0 %"
    share = 100 * part / whole
    return f"{share:.2f} %" if 0 < share < 1 else f"{share:.0f} %"


def _compare(part: int | None, whole: int | None) -> str:
    return "" if part is None or not whole else _show_percent(part, whole)


def _shorten(value: float) -> str:
    """Return a figure short enough to fit beside an axis.

    >>> _shorten(0.25), _shorten(950), _shorten(12_345), _shorten(1_200_000)
    ('0.25', '950', '12.3k', '1.2M')
    """
    for least, size, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= least:
            return f"{value / size:.3g}{unit}"
    return f"{value:.4g}" if value < 1000 else f"{value:,.0f}"


def _show_money(value: float | None) -> str:
    """Return an amount to the cent, amounts below 1 with two significant digits."""
    if value is None:
        return ""
    return f"{value:,.2f}" if value >= 1 or value == 0 else f"{value:.2g}"


def _show_duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    whole = round(seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _show_time(started: str) -> str:
    return started[:16].replace("T", " ")


def _label_days(started: Sequence[str]) -> list[str]:
    """Return days as labels of an axis, with the hour if all runs lie within four days.

    If a text is no time, all texts are returned unchanged.

    >>> _label_days(["2026-01-01T02:00:00Z", "2026-01-01T14:30:00Z"])
    ['1 Jan 02:00', '1 Jan 14:30']
    """
    times = []
    for text in started:
        try:
            times.append(datetime.fromisoformat(text))
        except ValueError:
            return list(started)
    if times and max(times) - min(times) < NEAR:
        return [f"{time.day} {time:%b %H:%M}" for time in times]
    return [f"{time.day} {time:%b %Y}" for time in times]
