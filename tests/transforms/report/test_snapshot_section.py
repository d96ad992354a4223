"""What the report's page says of a snapshot: what it is made of, why rows were rejected, what to
look at.

Covers transforms/report/alerts.py.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.snapshots import night, numbered

from sentence_beam.transforms.report.alerts import find_alerts
from sentence_beam.transforms.report.report_page import render_report
from sentence_beam.transforms.report.run_history import RunSummary
from sentence_beam.transforms.report.snapshot_section import count_reasons, list_facts
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.manifest import Manifest

NIGHT = RunSummary(
    "r", "committed", "2026-01-01T02:00:00Z", 1.0, rows=100, read=100, rejected=0, added=0, deleted=0, recall=0.97,
    embedded=1, truncated=0,
    command="embed",
)  # fmt: skip
RECALL = {
    "k": 10,
    "value": 0.9,
    "low": 0.88,
    "high": 0.92,
    "queries": 400,
    "nprobe": 1,
    "rerank": 0,
    "target": 0.95,
}


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    root = str(tmp_path / "store")
    night(root, 0, numbered(0, 5))
    return open_store(root).manifest


def test_what_a_snapshot_is_made_of_has_no_line_for_what_it_has_not(manifest: Manifest) -> None:
    found = dict(list_facts(manifest))
    assert found["model"] == manifest.options.model
    assert found["pooler"] == "auto"  # the pooler of the helper's space has no parts
    assert found["index"] == "none"
    assert f"{manifest.space.dim} dimensions" in found["vectors"]
    assert not {"prompt", "chunks", "calibration"} & set(found)
    assert count_reasons(manifest).counts == ()


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, None),
        ({"deleted": 11, "rows": 89}, "11 of 100 rows were deleted (11 %); the threshold is 10 %"),
        ({"deleted": 10, "rows": 90}, None),
        ({"rejected": 1}, "1 of 100 rows were rejected (1 %); the threshold is 0.5 %"),
        ({"read": 1000, "rejected": 5}, None),
        ({"rejected": 50, "blank": 50}, None),
        ({"rejected": 51, "blank": 50}, "1 of 50 rows were rejected (2 %); the threshold is 0.5 %"),
        ({"moved": {"distance": 0.5, "far": 0.3}}, "0.50 deviations"),
        ({"moved": {"distance": 0.2, "far": 0.3}}, None),
        ({"damaged": 2}, "2 shards"),
        ({"recall": 0.94}, "fell from 0.9700 to 0.9400; the threshold is a fall by 0.02"),
        ({"recall": 0.96}, None),
        ({"recall": None}, None),
    ],
)
def test_what_is_beyond_a_threshold_is_told_with_it(
    values: dict[str, Any], told: str | None
) -> None:
    found = find_alerts(None, [NIGHT, replace(NIGHT, **values)])
    assert [told in line for line in found] == ([] if told is None else [True]), found


def test_a_last_run_that_committed_nothing_is_told_until_one_commits() -> None:
    bad = RunSummary("r", "failed", "2026-01-02T02:00:00Z", 1.0, "no <room> left")
    assert find_alerts(None, [NIGHT, bad]) == ["The last run committed nothing: no <room> left."]
    assert find_alerts(None, [NIGHT, bad, NIGHT]) == []
    assert find_alerts(None, [NIGHT, replace(bad, status="running")]) == []
    assert "no &lt;room&gt; left" in render_report("/store", [NIGHT, bad])


@pytest.mark.parametrize(("recall", "told"), [(RECALL, True), (RECALL | {"high": 0.951}, False)])
def test_recall_below_its_target_is_told_where_its_interval_is(
    manifest: Manifest, recall: dict[str, Any], told: bool
) -> None:
    index = {"segments": [], "factory": "IVF4,Flat", "metric": "cosine", "nprobe": 1, "rerank": 0, "rows": 5,
             "request": {"index": "auto", "metric": "auto", "target_recall": 0.95},
             "recall": recall}  # fmt: skip
    data = {name: value for name, value in manifest.data.items() if name != "digest"} | {
        "index": index
    }
    with_index = Manifest.from_data(manifest.root, data)
    assert any("its target is 0.95" in line for line in find_alerts(with_index, [NIGHT])) == told
    assert "recall@10 0.9000" in dict(list_facts(with_index))["index"]


def test_runs_of_other_commands_are_no_nights(tmp_path: Path) -> None:
    runs = [
        NIGHT,
        replace(NIGHT, run="i", command="index"),
        replace(NIGHT, run="c", command="recalibrate"),
    ]
    html = render_report("/store", runs)
    assert html.count("<title>1 Jan 02:00:") == 6  # a chart of each number, one night in it
    assert {'<td class="told">index</td>', '<td class="told">recalibrate</td>'} <= set(
        html.replace("<td>", "\n<td>").replace("</td>", "</td>\n").splitlines()
    )


def test_hours_stand_on_axes_where_nights_lie_within_days() -> None:
    later = replace(NIGHT, started="2026-01-03T14:30:00Z")
    assert {"1 Jan 02:00", "3 Jan 14:30"} <= {
        part for part in render_report("/s", [NIGHT, later]).replace("<", ">").split(">")
    }
    months = render_report("/s", [NIGHT, replace(NIGHT, started="2026-03-03T14:30:00Z")])
    assert "1 Jan 2026" in months
    assert "3 Mar 2026" in months


def test_shares_of_pieces_are_of_all_pieces_and_in_the_colours_of_the_key() -> None:
    found = render_report(
        "store",
        [replace(NIGHT, rows=5, pieces=400, carried=0, reused=100, duplicates=0, embedded=300)],
    )
    assert '<i class="work1" style="flex:100" title="reused">' in found
    assert '<i class="work3" style="flex:300" title="embedded">' in found
    assert '<b>300</b> <span class="soft">75 %</span>' in found
