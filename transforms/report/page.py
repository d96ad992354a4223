"""The report as one HTML file that needs nothing else: no script, no network, light and dark."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from transforms.base.measures import STAGES
from transforms.report.chart import Chart, Series, bar_chart, change_chart, line_chart
from transforms.report.history import RunSummary
from transforms.report.html import environment
from transforms.report.snapshot import alerts, facts, known_reasons
from transforms.store.manifest import Manifest
from transforms.store.runs.result import COMMITTED

if TYPE_CHECKING:
    from jinja2 import Template

PLOTTED = 366
LISTED = 60
NIGHTLY = ("embed", "")  # commands whose runs follow an input; runs of version 0.1.0 say none
NEAR = timedelta(days=4)
WORK = (
    ("carried", "carried over"),
    ("reused", "reused"),
    ("duplicates", "duplicates"),
    ("embedded", "embedded"),
)
COLUMNS = (
    "rows", "added", "changed", "deleted", "embedded", "reused", "duplicates", "carried",
    "rejected", "truncated",
)  # fmt: skip


def page(store: str, summaries: Sequence[RunSummary], manifest: Manifest | None = None) -> str:
    """The HTML of the page of a store, from the summaries of its runs in order and the current
    snapshot.
    """
    last = next((summary for summary in reversed(summaries) if summary.status == COMMITTED), None)
    nights = [summary for summary in summaries if summary.command in NIGHTLY]
    plotted, listed = nights[-PLOTTED:], summaries[-LISTED:]
    return _template().render(
        store=store,
        last=last,
        alerts=alerts(manifest, summaries),
        facts=facts(manifest) if manifest else [],
        reasons=known_reasons(manifest),
        tiles=_tiles(last) if last else [],
        work=[(name, getattr(last, field) or 0) for field, name in WORK] if last else [],
        figures=_figures(last.measures or {}) if last else [],
        failures=sum(summary.status != COMMITTED for summary in plotted),
        charts=_charts(plotted),
        columns=COLUMNS,
        money=any(summary.spent is not None for summary in listed),
        currency=last.currency if last else "",
        listed=listed[::-1],
        more=len(summaries) - LISTED,
    )


@cache
def _template() -> "Template":
    """The page with its holes."""
    found = environment()
    found.filters |= {
        "count": _count, "percent": _percent, "short": _short, "money": _money,
        "duration": _duration, "time": _time, "recall": _recall,
    }  # fmt: skip
    return found.get_template("page.html")


def _tiles(summary: RunSummary) -> list[tuple[str, str, str]]:
    """Name, figure and a remark; what the run did not measure is left out."""
    grown = (
        ""
        if summary.added is None
        else f"+{_count(summary.added)} \N{MINUS SIGN}{_count(summary.deleted)}"
    )
    grown += "" if summary.pieces is None or not grown else " pieces"
    tiles = [
        ("rows", _count(summary.rows), grown),
        *(
            []
            if summary.pieces is None
            else [("pieces", _count(summary.pieces), "of the documents in these rows")]
        ),
        ("embedded", _count(summary.embedded), _share(summary.embedded, summary.stored)),
        (
            "time",
            _duration(summary.seconds or 0.0),
            f"{_short(summary.tokens_per_second or 0.0)} tokens/s",
        ),
        ("rejected", _count(summary.rejected), _share(summary.rejected, summary.read)),
        ("truncated", _count(summary.truncated), _share(summary.truncated, summary.stored)),
    ]
    if summary.recall is not None:
        tiles.append(("recall@10", _recall(summary.recall), summary.index or ""))
    if summary.spent is not None:
        saved = "" if summary.saved is None else f"{_money(summary.saved)} saved"
        tiles.append((f"spent {summary.currency}".strip(), _money(summary.spent), saved))
    if summary.damaged:
        tiles.append(("damaged", _count(summary.damaged), "old shards, embedded again"))
    return tiles


def _figures(measures: dict[str, Any]) -> list[tuple[str, str, list[float], str]]:
    """Stage, figure, its summary and its meaning."""
    return [
        (
            stage,
            figure.name,
            [summary[name] for name in ("count", "sum", "p50", "p95", "max")],
            figure.meaning,
        )
        for stage, figures in STAGES.items()
        for figure in figures
        if (summary := measures.get(stage, {}).get(figure.name))
    ]


def _charts(summaries: Sequence[RunSummary]) -> list[tuple[str, str, Chart]]:
    """Name, remark and picture of each number that is followed from run to run."""
    labels = _labels([summary.started for summary in summaries])
    failed = [summary.status != COMMITTED for summary in summaries]

    def series(name: str, show: Callable[[float], str] = _short, whole: bool = False) -> Series:
        values = [
            None if bad else getattr(summary, name)
            for summary, bad in zip(summaries, failed, strict=True)
        ]
        return Series(labels, values, failed, show, whole)

    def changes(name: str) -> Series:
        later = [getattr(summary, name) if summary.previous else None for summary in summaries]
        return Series(labels, later, failed, _short, whole=True)

    drawn = [
        ("rows", "", line_chart(series("rows", whole=True))),
        (
            "added, deleted",
            "rows a night; deleted ones below 0",
            change_chart(changes("added"), changes("deleted")),
        ),
        ("embedded", "rows a night", bar_chart(series("embedded", whole=True))),
        ("rejected", "rows of the snapshot", line_chart(series("rejected", whole=True))),
        ("truncated", "rows of the snapshot", line_chart(series("truncated", whole=True))),
        ("recall", "at 10", line_chart(series("recall", lambda value: f"{value:.4g}"), top=1.0)),
        ("time", "seconds from start to commit", bar_chart(series("seconds"))),
    ]
    if any(summary.saved is not None for summary in summaries):
        drawn.append(("saved", "against embedding everything", bar_chart(series("saved", _money))))
    return drawn


def _count(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _recall(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _percent(part: int, whole: int | None) -> str:
    share = 100 * part / whole if whole else 0.0
    return f"{share:.2f} %" if 0 < share < 1 else f"{share:.0f} %"


def _share(part: int | None, whole: int | None) -> str:
    return "" if part is None or not whole else _percent(part, whole)


def _short(value: float) -> str:
    """A figure that fits beside an axis.

    >>> _short(0.25), _short(950), _short(12_345), _short(1_200_000)
    ('0.25', '950', '12.3k', '1.2M')
    """
    for least, size, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= least:
            return f"{value / size:.3g}{unit}"
    return f"{value:.4g}" if value < 1000 else f"{value:,.0f}"


def _money(value: float | None) -> str:
    """An amount to the cent, or to two digits where that would be next to nothing."""
    if value is None:
        return ""
    return f"{value:,.2f}" if value >= 1 or value == 0 else f"{value:.2g}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    return (
        f"{whole // 60} min {whole % 60} s"
        if whole < 3600
        else f"{whole // 3600} h {whole % 3600 // 60} min"
    )


def _time(started: str) -> str:
    return started[:16].replace("T", " ")


def _labels(started: Sequence[str]) -> list[str]:
    """Days as an axis names them, with the hour where the runs lie within a few days; what is no
    time stays as it is.

    >>> _labels(["2026-01-01T02:00:00Z", "2026-01-01T14:30:00Z"])
    ['1 Jan 02:00', '1 Jan 14:30']
    """
    times = []
    for text in started:
        try:
            times.append(datetime.fromisoformat(text))
        except ValueError:
            return list(started)
    near = bool(times) and max(times) - min(times) < NEAR
    return [f"{time.day} {time:%b %H:%M}" if near else f"{time.day} {time:%b %Y}" for time in times]
