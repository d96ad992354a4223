"""The report as one HTML file that needs nothing else: no script, no network, light and dark."""

from collections.abc import Callable, Sequence
from datetime import datetime
from html import escape

from transforms.report.chart import Series, bar_chart, line_chart
from transforms.report.history import RunSummary
from transforms.store.runs import COMMITTED

PLOTTED = 366
LISTED = 60
WORK = (("carried", "carried over"), ("reused", "reused"), ("duplicates", "duplicates"), ("embedded", "embedded"))
COLUMNS = (
    "rows", "added", "changed", "deleted", "embedded", "reused", "duplicates", "carried", "rejected", "truncated",
)  # fmt: skip

STYLE = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --ink: #1d2433; --soft: #667085; --rule: #e4e7ec;
  --main: #2563eb; --area: #2563eb1f; --bad: #d92d20; --c0: #94a3b8; --c1: #38bdf8; --c2: #a78bfa; --c3: #2563eb; }
@media (prefers-color-scheme: dark) { :root { --page: #10141c; --card: #191f2a; --ink: #e6e9ef; --soft: #98a2b3;
  --rule: #2b3342; --main: #6ea8fe; --area: #6ea8fe26; --bad: #f97066; --c0: #64748b; --c1: #22a6d8; --c2: #9579f2;
  --c3: #6ea8fe; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 48px; }
h1 { font-size: 24px; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 16px; margin: 36px 0 12px; }
h2 .soft { font-weight: 400; font-size: 13px; margin-left: 8px; }
.soft, figcaption span { color: var(--soft); } .bad { color: var(--bad); }
.tiles, .charts { display: grid; gap: 14px; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }
.charts { grid-template-columns: repeat(auto-fill, minmax(310px, 1fr)); }
.tile, figure, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 12px 16px;
  margin: 0; }
.tile b { display: block; font-size: 22px; line-height: 1.35; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; }
figcaption { font-weight: 600; margin-bottom: 4px; } figcaption span { font-weight: 400; float: right; }
svg { display: block; width: 100%; height: auto; }
.grid { stroke: var(--rule); } .tick { fill: var(--soft); font-size: 11px; } .area { fill: var(--area); }
.line { fill: none; stroke: var(--main); stroke-width: 1.8; stroke-linejoin: round; }
.dot, .bar { fill: var(--main); } .failed { stroke: var(--bad); stroke-dasharray: 2 3; } .hover { fill: transparent; }
.hover:hover { fill: var(--soft); fill-opacity: .15; }
.stack { display: flex; height: 22px; border-radius: 6px; overflow: hidden; margin: 4px 0 10px; gap: 1px; }
.stack i { display: block; min-width: 2px; } .key i { display: inline-block; width: 11px; height: 11px;
  border-radius: 3px; margin: 0 6px 0 0; } .key span { margin-right: 22px; white-space: nowrap; }
.work0 { background: var(--c0); } .work1 { background: var(--c1); } .work2 { background: var(--c2); }
.work3 { background: var(--c3); }
.scroll { overflow-x: auto; padding: 4px 0; } table { border-collapse: collapse; width: 100%; font-size: 13px;
  font-variant-numeric: tabular-nums; } th, td { padding: 6px 10px; text-align: right; white-space: nowrap; }
th { color: var(--soft); font-weight: 500; } tr + tr td { border-top: 1px solid var(--rule); }
th:first-child, td:first-child, th:last-child, td:last-child, td.told { text-align: left; }
td.told { white-space: normal; overflow-wrap: anywhere; }
"""


def page(store: str, summaries: Sequence[RunSummary]) -> str:
    """The HTML of the page of a store, from the summaries of its runs in order."""
    last = next((summary for summary in reversed(summaries) if summary.status == COMMITTED), None)
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(store)}</title><style>{STYLE}</style></head><body><main>",
        f'<div class="soft">sentence-beam report</div><h1>{escape(store)}</h1>',
        _last(last) if last else '<p class="soft">no snapshot yet</p>',
        f"<h2>Nights{_failures(summaries[-PLOTTED:])}</h2>",
        f'<div class="charts">{"".join(_figures(summaries[-PLOTTED:]))}</div>',
        f"<h2>Runs</h2>{_table(summaries[-LISTED:])}{_more(len(summaries))}",
        "</main></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _last(summary: RunSummary) -> str:
    when = f'<p class="soft">snapshot {escape(summary.run)}, {_time(summary.started)} UTC</p>'
    tiles = "".join(f'<div class="tile"><span>{name}</span><b>{value}</b><span>{more}</span></div>'
                    for name, value, more in _tiles(summary))  # fmt: skip
    return f'{when}<div class="tiles">{tiles}</div><h2>Where its vectors come from</h2>{_work(summary)}'


def _tiles(summary: RunSummary) -> list[tuple[str, str, str]]:
    """Name, figure and a remark; what the run did not measure is left out."""
    grown = "" if summary.added is None else f"+{_count(summary.added)} &minus;{_count(summary.deleted)}"
    tiles = [
        ("rows", _count(summary.rows), grown),
        ("embedded", _count(summary.embedded), _share(summary.embedded, summary.rows)),
        ("time", _duration(summary.seconds or 0.0), f"{_short(summary.tokens_per_second or 0.0)} tokens/s"),
        ("rejected", _count(summary.rejected), _share(summary.rejected, summary.read)),
        ("truncated", _count(summary.truncated), _share(summary.truncated, summary.rows)),
    ]
    if summary.recall is not None:
        tiles.append(("recall@10", f"{summary.recall:.4f}", escape(summary.index or "")))
    if summary.spent is not None:
        tiles.append(
            ("spent", _money(summary.spent), "" if summary.saved is None else f"{_money(summary.saved)} saved")
        )
    if summary.checked:
        tiles.append(("checked", _count(summary.checked), "carried shards"))
    if summary.damaged:
        tiles.append(("damaged", _count(summary.damaged), "old shards, embedded again"))
    return tiles


def _work(summary: RunSummary) -> str:
    rows = summary.rows or 0
    counts = [(i, name, getattr(summary, field) or 0) for i, (field, name) in enumerate(WORK)]
    bars = "".join(f'<i class="work{i}" style="flex:{n}" title="{name}"></i>' for i, name, n in counts if n)
    keys = "".join(
        f'<span><i class="work{i}"></i>{name} <b>{_count(n)}</b> <span class="soft">{_percent(n, rows)}</span></span>'
        for i, name, n in counts
    )
    sentence = (
        f'<div class="soft">{_count(summary.added)} rows were added, {_count(summary.changed)} changed and '
        f"{_count(summary.deleted)} deleted since the snapshot before.</div>"
    )
    changes = sentence if summary.added is not None and summary.previous else ""
    return f'<div class="card"><div class="stack">{bars}</div><div class="key">{keys}</div>{changes}</div>'


def _failures(summaries: Sequence[RunSummary]) -> str:
    failed = sum(summary.status != COMMITTED for summary in summaries)
    return f' <span class="soft">dotted: {failed} that committed nothing</span>' if failed else ""


def _figures(summaries: Sequence[RunSummary]) -> list[str]:
    labels = [_day(summary.started) for summary in summaries]
    failed = [summary.status != COMMITTED for summary in summaries]

    def series(name: str, show: Callable[[float], str] = _short, whole: bool = False) -> Series:
        values = [None if bad else getattr(summary, name) for summary, bad in zip(summaries, failed, strict=True)]
        return Series(labels, values, failed, show, whole)

    drawn = [
        ("rows", "", line_chart(series("rows", whole=True))),
        ("embedded", "rows a night", bar_chart(series("embedded", whole=True))),
        ("rejected", "rows of the snapshot", line_chart(series("rejected", whole=True))),
        ("truncated", "rows of the snapshot", line_chart(series("truncated", whole=True))),
        ("recall", "at 10", line_chart(series("recall", lambda value: f"{value:.4g}"), top=1.0)),
        ("time", "seconds from start to commit", bar_chart(series("seconds"))),
    ]
    if any(summary.saved is not None for summary in summaries):
        drawn.append(("saved", "against embedding everything", bar_chart(series("saved", _money))))
    return [f"<figure><figcaption>{name}<span>{what}</span></figcaption>{svg}</figure>" for name, what, svg in drawn]


def _table(summaries: Sequence[RunSummary]) -> str:
    money = any(summary.spent is not None for summary in summaries)
    heads = ["started (UTC)", "time", *COLUMNS, "recall", *(["spent", "saved"] if money else []), "run"]
    rows = []
    for summary in reversed(summaries):
        cells = [_time(summary.started), _duration(summary.seconds) if summary.seconds is not None else ""]
        cells += _message(summary) if summary.status != COMMITTED else _counts(summary)
        cells += ["" if value is None else _money(value) for value in (summary.spent, summary.saved)] if money else []
        cells.append(f'<span class="soft">{escape(summary.run)}</span>')
        rows.append("<tr>" + "".join(cell if cell[:3] == "<td" else f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{name}</th>" for name in heads)
    return f'<div class="card scroll"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _counts(summary: RunSummary) -> list[str]:
    return [
        *(_count(getattr(summary, name)) for name in COLUMNS),
        "" if summary.recall is None else f"{summary.recall:.4f}",
    ]


def _message(summary: RunSummary) -> list[str]:
    """The message of a run that committed nothing, in place of its counts."""
    message = f'<span class="bad">{escape(summary.status)}</span> {escape(summary.message)}'
    return [f'<td class="told" colspan="{len(COLUMNS) + 1}">{message}</td>']


def _more(runs: int) -> str:
    more = runs - LISTED
    return f'<p class="soft">{more:,} earlier runs are in report.json</p>' if more > 0 else ""


def _count(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _percent(part: int, whole: int) -> str:
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


def _money(value: float) -> str:
    """An amount to the cent, or to two digits where that would be next to nothing."""
    return f"{value:,.2f}" if value >= 1 or value == 0 else f"{value:.2g}"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def _time(started: str) -> str:
    return escape(started[:16].replace("T", " "))


def _day(started: str) -> str:
    """A day as an axis names it; what is no time stays as it is."""
    try:
        return f"{datetime.fromisoformat(started):%d %b %Y}"
    except ValueError:
        return started
