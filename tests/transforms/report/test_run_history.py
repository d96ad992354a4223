"""History and report: every run, also one that failed, broke down or left no result; what a page
shows of them.

Covers transforms/report/chart.py.
Covers transforms/report/report_page.py.
"""

import json
import logging
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from helpers.settled import finish
from helpers.snapshots import begin, night, numbered, run_name, write_unit

from sentence_beam.transforms.report import store_report as reports
from sentence_beam.transforms.report.chart import (
    BOTTOM,
    HEIGHT,
    Series,
    draw_change_chart,
    draw_line_chart,
    make_linear_axis,
    make_log_axis,
)
from sentence_beam.transforms.report.report_page import render_report
from sentence_beam.transforms.report.run_history import (
    RunSummary,
    read_known_summaries,
    read_summaries,
)
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.vacuum import find_rubbish, remove


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Where a store may be made."""
    return str(tmp_path / "store")


def told(root: str) -> list[tuple[str, str]]:
    """Run and status of every night."""
    return [(found.run, found.status) for found in read_summaries(root)]


def test_every_night_has_its_counts(root: str) -> None:
    night(root, 0, numbered(0, 5), numbered(5, 9))
    night(root, 1, numbered(0, 5), numbered(6, 11))
    first, second = read_summaries(root)
    assert (first.run, first.previous, second.previous) == (run_name(0), None, run_name(0))
    assert (first.rows, first.embedded, first.read, first.rejected, first.truncated) == (
        9,
        9,
        9,
        0,
        0,
    )
    assert (first.tokens, first.spared, second.spared) == (45, 0, 0)
    assert first.tokens_per_second == pytest.approx(45 / (first.seconds or 1), rel=0.1)
    assert second.index is None
    assert read_known_summaries(root) == [first, second]


def test_a_failed_run_stands_in_it_with_its_line(root: str) -> None:
    night(root, 0, numbered(0, 5))
    finish(begin(root, 1, 1), [], [Problem("x.parquet cannot be read", 1)])
    failed = read_summaries(root)[1]
    assert (failed.status, failed.message, failed.rows) == (
        "failed",
        "x.parquet cannot be read",
        None,
    )


def test_a_run_that_was_killed_is_unfinished_and_one_at_work_is_running(root: str) -> None:
    night(root, 0, numbered(0, 5))
    begin(root, 1, 1)
    begin(root, 2, 1)
    lease.acquire(root, lease.Lease.from_this_process(run_name(2), "FnApiRunner", "job", True))
    assert dict(told(root)) == {
        run_name(0): "committed",
        run_name(1): "unfinished",
        run_name(2): "running",
    }
    assert {found.run: found.started for found in read_summaries(root)}[
        run_name(1)
    ] == "2026-01-01T00:00:01.000Z"


def test_a_commit_whose_result_was_never_written_is_known_by_what_stands_on_it(root: str) -> None:
    for number in range(4):
        night(root, number, numbered(0, 5 + number))
    for number in (1, 2, 3):
        (Path(root) / "runs" / run_name(number) / "result.json").unlink()
    never = Path(root) / "manifests" / f"{run_name(7)}.json"
    never.write_text(
        (Path(root) / "manifests" / f"{run_name(0)}.json")
        .read_text()
        .replace(run_name(0), run_name(7))
    )
    assert dict(told(root)) == {run_name(n): "committed" for n in range(4)} | {
        run_name(7): "unfinished"
    }
    assert {found.run: found.rows for found in read_summaries(root)} == {
        **{run_name(n): 5 + n for n in range(4)}, run_name(7): None,
    }  # fmt: skip


def test_results_that_cannot_be_read_stop_nothing(root: str) -> None:
    for number, content in enumerate((b"", b"[]", b"{}", b"\xff", b'{"more": 1}')):
        night(root, number, numbered(0, 5))
        (Path(root) / "runs" / run_name(number) / "result.json").write_bytes(content)
    night(root, 5, numbered(0, 5))
    found = read_summaries(root)
    assert [(summary.status, summary.rows) for summary in found] == [("committed", 5)] * 6
    assert ["is not the result of a run" in summary.message for summary in found] == [True] * 5 + [
        False
    ]


def test_a_run_without_a_result_is_listed_by_its_snapshot(root: str) -> None:
    for number in range(3):
        night(root, number, numbered(0, 5 + number))
    (Path(root) / "report.json").unlink()
    (Path(root) / "runs" / run_name(1) / "result.json").write_bytes(b"")
    found = read_summaries(root)
    assert [night.run for night in found] == [run_name(number) for number in range(3)]
    assert [night.rows for night in found] == [5, 6, 7]


def test_history_outlives_its_snapshots(root: str) -> None:
    for number in range(3):
        night(root, number, numbered(0, 5 + number))
    before = read_summaries(root)
    remove(find_rubbish(root, 1, None, 2e9))
    assert read_summaries(root) == before


def test_known_nights_are_not_read_again(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        night(root, number, numbered(0, 5 + number))
    read: list[str] = []
    monkeypatch.setattr(
        "sentence_beam.transforms.report.run_history.read_checked_result",
        lambda root, run: read.append(run),
    )
    assert len(read_summaries(root, read_known_summaries(root))) == 3
    assert read == []


def test_what_a_run_that_broke_off_embedded_makes_no_later_one_fast(root: str) -> None:
    begin(root, 0, 1)
    write_unit(root, 0, [("r0", "text 0"), ("r1", "text 1")], run_name(0))
    result = night(root, 1, numbered(0, 2), numbered(2, 3))
    assert (result.ledger["real"], result.tokens) == (15, 5)
    assert night(root, 2, numbered(0, 2)).tokens == 0


def test_the_report_is_the_last_committed_night_and_all_others(root: str) -> None:
    night(root, 0, numbered(0, 5))
    finish(begin(root, 1, 1), [], [Problem("broke", 1)])
    night(root, 2, numbered(0, 5), numbered(5, 7))
    report = json.loads((Path(root) / "report.json").read_text())
    assert {name: report[name] for name in ("format", "run", "rows", "embedded")} == {
        "format": 1, "run": run_name(2), "rows": 7, "embedded": 7,
    }  # fmt: skip
    assert [(n["run"], n["status"]) for n in report["nights"]] == told(root)
    assert reports.find_summary(root, run_name(1)).message == "broke"  # type: ignore[union-attr]
    assert reports.find_summary(root, "none") is None


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"\xff", b'{"nights": [1]}', b'{"nights": [{"x": 1}]}']
)
def test_a_damaged_report_is_made_anew(root: str, content: bytes) -> None:
    night(root, 0, numbered(0, 5))
    (Path(root) / "report.json").write_bytes(content)
    night(root, 1, numbered(0, 6))
    assert [n.rows for n in read_known_summaries(root)] == [5, 6]


def test_a_report_that_cannot_be_written_fails_no_run(
    root: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("sentence_beam.transforms.report.store_report.write_report", full)
        with caplog.at_level(logging.ERROR):
            assert night(root, 0, numbered(0, 5)).status == "committed"
    assert [record.getMessage() for record in caplog.records] == [
        f"{root}: the report was not written ([Errno 28] No space left on device); sentence-beam report makes one"
    ]
    assert not (Path(root) / "report.json").exists()
    night(root, 1, numbered(0, 5))
    assert len(read_known_summaries(root)) == 2


def test_a_failed_run_does_not_write_it(root: str) -> None:
    night(root, 0, numbered(0, 5))
    before = (Path(root) / "report.json").read_bytes()
    finish(begin(root, 1, 1), [write_unit(root, 0, [("a", "x")])], [Problem("broke", 1)])
    assert (Path(root) / "report.json").read_bytes() == before


class Page(HTMLParser):
    """Tags that are open, links out of the page, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not {"src", "href", "onload", "onclick"} & {name for name, _ in attrs}
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def parsed(found: list[RunSummary], store: str = "/a/store") -> Page:
    """A page, once every tag that it opens is closed and it needs nothing from elsewhere."""
    html = render_report(store, found)
    reader = Page()
    reader.feed(html)
    assert reader.open == []
    assert "script" not in reader.tags
    assert not re.search(r"https?:|url\(|@import", html)
    assert "nan" not in re.sub(r"[a-z]*nan[a-z]+", "", html)
    return reader


def test_the_page_shows_every_night() -> None:
    found = [
        RunSummary(
            run_name(i), "committed", f"2026-01-0{i + 1}", 3, pooled="p", tokens=100, spared=900,
            tokens_per_second=100 / 3, rows=100 + i, embedded=5, reused=1, duplicates=0, carried=94 + i, read=100 + i,
            rejected=0, truncated=2, added=1, changed=0, deleted=0, recall=0.99, index="Flat", previous="x",
        )
        for i in range(3)
    ]  # fmt: skip
    shown = parsed(found)
    assert shown.tags.count("svg") == 7
    assert shown.tags.count("tr") == 4
    assert {"102", "94 %", "5 %", "0.9900", "recall@10"} <= {word.strip() for word in shown.words}


def test_what_is_in_a_message_or_a_name_is_text() -> None:
    bad = RunSummary(
        "r", "failed", "2026-01-01T00:00:00Z", 1.0, "<script>alert(1)</script> & \"more\" 'x'"
    )
    shown = parsed([bad], store="/a/<b>&'\"/store")
    assert any("<script>alert(1)</script> & \"more\" 'x'" in word for word in shown.words)
    assert "/a/<b>&'\"/store" in shown.words


@pytest.mark.parametrize(
    "values",
    [
        {},
        {
            "rows": 0,
            "read": 0,
            "embedded": 0,
            "reused": 0,
            "duplicates": 0,
            "carried": 0,
            "rejected": 0,
        },
        {"rows": 10**12, "embedded": 1, "recall": 0.0, "rejected": 1, "truncated": 1, "read": 1},
        {"started": "no time"},
    ],
)
@pytest.mark.parametrize("count", [0, 1, 2, 400])
def test_pages_of_odd_nights(values: dict[str, Any], count: int) -> None:
    parsed([replace(RunSummary("r", "committed", "2026-01-01T00:00:00Z", 1.0), **values)] * count)


def test_axes_hold_their_values_between_round_marks() -> None:
    for values in (
        [0],
        [5],
        [0, 37],
        [99_990, 100_010],
        [0.981, 0.999],
        [1e9],
        [3, 3, 3],
        [0.0003, 0.0004],
    ):
        for from_zero in (True, False):
            axis = make_linear_axis(values, from_zero)
            assert axis.low <= min(values) <= max(values) <= axis.high
            assert 2 <= len(axis.ticks) <= 5
    assert make_linear_axis([12], from_zero=False, whole=True).ticks == (11, 12, 13, 14) or all(
        tick == int(tick) for tick in make_linear_axis([12], from_zero=False, whole=True).ticks
    )
    assert make_linear_axis([0.99, 1.0], from_zero=False, top=1.0).high == 1.0
    axis = make_log_axis([50_000, 3])
    assert axis.y(0) > axis.y(3) > axis.y(50_000) >= axis.y(100_000)


def test_an_axis_of_zeros_has_nothing_below_them() -> None:
    assert make_linear_axis([0, 0], from_zero=False, whole=True).ticks == (0, 1)
    assert make_linear_axis([1, 40], from_zero=False, whole=True).low == 0


def test_values_that_differ_by_rounding_alone_have_an_axis() -> None:
    axis = make_linear_axis([0.96, 0.96 + 1e-12], from_zero=False, top=1.0)
    assert axis.low < 0.96 < axis.high


def series(*values: float | None, whole: bool = True) -> Series:
    """Some nights' numbers."""
    return Series(
        [f"night {n}" for n in range(len(values))],
        values,
        [False] * len(values),
        "{:g}".format,
        whole,
    )


def test_the_area_below_a_line_begins_at_zero_or_is_not_drawn() -> None:
    rows = draw_line_chart(series(1000, 1010, 990))
    assert rows.has_area
    assert rows.ticks[0] == (HEIGHT - BOTTOM, "0")
    recall = draw_line_chart(series(0.98, 0.99, whole=False), top=1.0)
    assert not recall.has_area
    assert recall.ticks[0][1] != "0"


def test_a_store_that_was_replaced_is_seen() -> None:
    chart = draw_change_chart(series(None, 3, 50, None), series(None, 0, 50, None))
    (zero,) = [y for y, text in chart.ticks if text == "0"]
    (small, added), (deleted,) = chart.bars, chart.below
    assert added[1] + added[3] == pytest.approx(zero)
    assert deleted[1] == zero
    assert added[3] == pytest.approx(deleted[3], abs=0.2)
    assert small[3] < added[3]
    assert [text for _, text in chart.ticks] == ["\N{MINUS SIGN}50", "0", "50"]
    assert [band.shown for band in chart.bands] == [
        "",
        "+3 \N{MINUS SIGN}0",
        "+50 \N{MINUS SIGN}50",
        "",
    ]
    assert not draw_change_chart(series(None), series(None)).ticks


@pytest.mark.parametrize("values", [[0, 0], [-5, 0], [1, 2, 50_000, -3], [1, 1, -90_000]])
def test_axes_of_bars_on_both_sides_hold_their_values(values: list[float]) -> None:
    for axis in (make_linear_axis(values, from_zero=True), make_log_axis([*values, 1])):
        assert axis.low <= min(values) <= max(values) <= axis.high
        assert 0 in axis.ticks
        assert axis.y(axis.low) > axis.y(axis.high)


def test_a_chart_of_a_page_has_what_was_added_and_deleted() -> None:
    night = RunSummary("r", "committed", "2026-01-01T00:00:00Z", 1.0, rows=9, added=9, deleted=0)
    html = render_report(
        "store", [night, replace(night, previous="r", deleted=9), replace(night, status="failed")]
    )
    assert html.count('class="below"') == 1
    assert ": +9 \N{MINUS SIGN}9</title>" in html
