"""history, diff, report and --snapshot as a person runs them, night after night.

Covers pipelines/diff.py.
Covers pipelines/history.py.
"""

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.clock import calendar
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    files_in,
    ids_of,
    manifest_of,
    rows_of,
    sentences,
    write_bytes,
    write_lines,
    write_parquet,
)
from helpers.snapshots import night, numbered, run_name
from PIL import Image

from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.runs.lease import Lease
from sentence_beam.transforms.store.verification import faults


@pytest.fixture
def nights(store: Path) -> Path:
    """Three nights: rows are added, one is changed, some go."""
    night(str(store), 0, numbered(0, 5), numbered(5, 9))
    night(str(store), 1, numbered(0, 5), {**numbered(6, 12), "r7": "another"})
    night(str(store), 2, numbered(0, 5))
    return store


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of seven nights that no test changes."""
    store = tmp_path_factory.mktemp("week") / "store"
    for number in range(7):
        night(str(store), number, numbered(0, 5))
    return store


def report_of(store: Path) -> dict[str, Any]:
    return json.loads((store / "report.json").read_text())


# --- older snapshots


def test_an_older_snapshot_is_read_by_every_reader(
    run: Run, embed: Run, inputs: Path, store: Path
) -> None:
    write_parquet(inputs / "a.parquet", sentences(6))
    embed(inputs / "*", "--index", "Flat").ok()
    first, ids = manifest_of(store)["run"], ids_of(store)
    write_parquet(inputs / "a.parquet", ["something else"])
    embed(inputs / "*", "--max-deletes", 1).ok()
    assert len(run("files", "--store", store, "--snapshot", first).ok().out.split()) == 1
    assert "6 rows" in run("verify", "--store", store, "--snapshot", first).ok().out
    for extra in ([], ["--exact"]):
        found = (
            run("search", "--store", store, "--snapshot", first, "--query", "dog", "-k", 9, *extra)
            .ok()
            .out
        )
        assert found.count("a.parquet#") == 6
        assert (
            run("search", "--store", store, "--query", "dog", "-k", 9, *extra)
            .ok()
            .out.count("a.parquet#")
            == 1
        )
    assert (
        open_store(str(store), snapshot=first).dataset().to_table(columns=["id"])["id"].to_pylist()
        == ids
    )
    assert [len(rows) for rows in open_store(str(store), snapshot=first).search(["dog"], k=9)] == [
        6
    ]


@pytest.mark.parametrize(
    "command",
    [("files",), ("verify",), ("search", "--query", "x"), ("diff", "--output", "d.parquet")],
)
@pytest.mark.parametrize(
    "name", ["20200101T000000_000Z-abcdef", "../manifest", "", "parts/x", "/etc/passwd"]
)
def test_an_unknown_run_lists_the_latest(run: Run, week: Path, command: tuple, name: str) -> None:
    arguments = [run_name(2), name] if command[0] == "diff" else ["--snapshot", name]
    line = run(*command, "--store", week, *arguments).failed(
        2, "no snapshot", run_name(6), run_name(2)
    )
    assert run_name(1) not in line


def test_where_there_is_no_store_no_run_is_listed(run: Run, tmp_path: Path) -> None:
    run("files", "--store", tmp_path, "--snapshot", "x").failed(2, "holds no store")


# --- history


def test_history_has_a_line_for_each_run(run: Run, embed: Run, inputs: Path, store: Path) -> None:
    write_lines(inputs / "a.txt", sentences(6))
    embed(inputs / "*", "--index", "Flat").ok()
    write_bytes(inputs / "a.txt", b"caf\xe9\na dog\na cat\n")
    embed(inputs / "*", "--max-rejects", 0).failed(3)
    embed(inputs / "*", "--max-rejects", 0.5, "--max-deletes", 1).ok()
    run("index", "--store", store).ok()
    head, *lines = run("history", "--store", store).ok().out.splitlines()
    assert head.split() == [
        "run", "started", "time", "command", "rows", "added", "changed", "deleted", "embedded", "reused",
        "duplicates", "carried", "rejected", "recall", "status", "snapshot", "message",
    ]  # fmt: skip
    assert [line.split()[4] for line in lines] == ["embed", "embed", "embed", "index"]
    assert lines[0].split()[5:9] == ["6", "6", "0", "0"]
    assert lines[2].split()[5:9] == ["2", "2", "0", "6"]
    assert [line.split()[0] for line in lines] == sorted(
        path.name for path in (store / "runs").iterdir()
    )
    assert [" failed " in f"{line} " for line in lines] == [False, True, False, False]
    assert "rows rejected, more than --max-rejects" in lines[1]
    assert lines[0].endswith("committed  kept")
    assert lines[3].endswith("committed  current")
    run("vacuum", "--store", store, "--keep", 1).ok()
    lines = run("history", "--store", store).ok().out.splitlines()[1:]
    assert [line.split()[-1] for line in lines if "failed" not in line] == [
        "removed",
        "removed",
        "current",
    ]


def test_history_of_a_store_whose_first_run_failed(
    run: Run, embed: Run, inputs: Path, store: Path
) -> None:
    run("history", "--store", store).failed(2, store, "holds no store")
    write_bytes(inputs / "a.txt", b"one\n\xff\n\xff\n")
    embed(inputs / "*", "--max-rejects", 0).failed(3, "2 of 3 rows rejected")
    lines = run("history", "--store", store).ok().out.splitlines()[1:]
    assert len(lines) == 1
    assert "failed" in lines[0]
    assert "2 of 3 rows rejected" in lines[0]
    embed(inputs / "*", "--max-rejects", 1).ok()
    assert len(run("history", "--store", store).ok().out.splitlines()) == 3


def test_history_of_a_first_run_that_was_interrupted(
    run: Run, embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(inputs / "a.txt", ["one"])

    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("sentence_beam.pipelines.embed.build", interrupted)
        embed(inputs / "*").failed(130, "interrupted; run the same command again")
    (line,) = run("history", "--store", store).ok().out.splitlines()[1:]
    assert "interrupted" in line


def test_history_of_a_first_run_that_is_at_work_or_was_killed_before_its_plan(
    run: Run, store: Path
) -> None:
    for pid, status in ((os.getpid(), "running"), (2**22 + 1, "unfinished")):
        lease = Lease(
            "20260101T000000_000Z-abcdef",
            socket.gethostname(),
            pid,
            "FnApiRunner",
            "job",
            time.time(),
        )
        write_bytes(store / "lease.json", lease.to_bytes())
        (line,) = run("history", "--store", store).ok().out.splitlines()[1:]
        assert lease.run in line
        assert status in line


def test_history_keeps_the_order_when_the_clock_goes_back(
    run: Run, embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [datetime(2026, 1, 1, 2, 0, second) for second in (30, 30, 29, 31)]
    monkeypatch.setattr("sentence_beam.transforms.store.runs.run_ids.datetime", calendar(times))
    for rows in range(4):
        write_lines(inputs / "a.txt", sentences(rows + 1))
        embed(inputs / "*").ok()
    lines = run("history", "--store", store).ok().out.splitlines()[1:]
    assert [line.split()[0].partition("Z")[0] for line in lines] == [
        "20260101T020030_000", "20260101T020030_001", "20260101T020030_002", "20260101T020031_000",
    ]  # fmt: skip
    assert [line.split()[5] for line in lines] == ["1", "2", "3", "4"]
    assert lines[-1].endswith("current")


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_history_as_a_file(run: Run, nights: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"history.{suffix}"
    assert run("history", "--store", nights, "--output", out).ok().out == f"3 runs in {out}\n"
    rows = (
        pq.read_table(out).to_pylist()
        if suffix == "parquet"
        else [json.loads(line) for line in out.read_text().splitlines()]
    )
    assert [(row["run"], row["rows"], row["snapshot"]) for row in rows] == [
        (run_name(0), 9, "kept"), (run_name(1), 11, "kept"), (run_name(2), 5, "current"),
    ]  # fmt: skip


# --- diff


def test_diff_lists_ids_with_both_hashes(run: Run, nights: Path, tmp_path: Path) -> None:
    out = tmp_path / "diff.parquet"
    said = run("diff", run_name(0), run_name(1), "--store", nights, "--output", out).ok().out
    assert said == f"3 added, 1 changed, 1 deleted in {out}\n"
    table = pq.read_table(out)
    assert [(row["id"], row["change"]) for row in table.to_pylist()] == [
        ("r10", "added"), ("r11", "added"), ("r5", "deleted"), ("r7", "changed"), ("r9", "added"),
    ]  # fmt: skip
    back = tmp_path / "back.parquet"
    run("diff", "--store", nights, run_name(1), run_name(0), "--output", back).ok()
    swapped = pq.read_table(back)
    assert swapped["old_row_hash"].to_pylist() == table["new_row_hash"].to_pylist()
    assert [path.name for path in tmp_path.glob("*.tmp-*")] == []


def test_diff_of_a_snapshot_with_itself_is_an_empty_table(
    run: Run, nights: Path, tmp_path: Path
) -> None:
    out = tmp_path / "diff.parquet"
    run("diff", run_name(1), run_name(1), "--store", nights, "--output", out).ok()
    assert pq.read_table(out).num_rows == 0


def test_diff_over_a_lost_shard_is_one_line_and_no_file(
    run: Run, nights: Path, tmp_path: Path
) -> None:
    for path in (nights / "embeddings").iterdir():
        path.unlink()
    out = tmp_path / "diff.parquet"
    run("diff", run_name(0), run_name(1), "--store", nights, "--output", out).failed(
        1, f"{nights}/embeddings/"
    )
    assert list(tmp_path.glob("diff*")) == []


@pytest.mark.parametrize(
    ("output", "word"),
    [("d.txt", "must end in .parquet, .csv"), ("none/d.parquet", "no such folder")],
)
def test_diff_output_that_cannot_be_written(
    run: Run, nights: Path, tmp_path: Path, output: str, word: str
) -> None:
    run("diff", run_name(0), run_name(1), "--store", nights, "--output", tmp_path / output).failed(
        2, "--output", word
    )


# --- report


def test_the_report_of_nights(run: Run, embed: Run, inputs: Path, store: Path) -> None:
    write_parquet(inputs / "a.parquet", sentences(20), id=[f"i{n}" for n in range(20)])
    write_parquet(inputs / "b.parquet", sentences(6, 20), id=[f"j{n}" for n in range(6)])
    out = embed(inputs / "*", "--id-column", "id", "--index", "Flat").ok().out
    first = report_of(store)
    assert {name: first[name] for name in ("rows", "embedded", "added", "changed", "deleted", "spared")} == {
        "rows": 26, "embedded": 26, "added": 26, "changed": 0, "deleted": 0, "spared": 0,
    }  # fmt: skip
    assert f"report      {store}/report.html" in out
    assert (store / "report.html").read_text().startswith("<!DOCTYPE html>")

    write_parquet(
        inputs / "a.parquet",
        [*sentences(17), "new", "other", "other"],
        id=[f"i{n}" for n in range(20)],
    )
    (inputs / "b.parquet").rename(inputs / "c.parquet")
    write_parquet(inputs / "d.parquet", sentences(2, 90), id=["k0", "k1"])
    out = embed(inputs / "*").ok().out
    second = report_of(store)
    assert {name: second[name] for name in ("rows", "added", "changed", "deleted")} == {
        "rows": 28, "added": 2, "changed": 3, "deleted": 0,
    }  # fmt: skip
    assert "changes     2 rows added, 3 changed, 0 deleted" in out
    assert second["carried"] + second["reused"] + second["duplicates"] + second["embedded"] == 28
    page = inputs.parent / "nights.html"
    run("report", "--store", store, "--output", page, "--price-per-hour", 36000).ok()
    assert f">{10 * first['seconds']:,.2f}</td>" in page.read_text()
    assert "<th>spent</th>" not in (store / "report.html").read_text()

    (inputs / "a.parquet").unlink()
    embed(inputs / "*", "--max-deletes", 1).ok()
    assert {name: report_of(store)[name] for name in ("added", "changed", "deleted")} == {
        "added": 0, "changed": 0, "deleted": 20,
    }  # fmt: skip
    embed(inputs / "*").ok()
    run("index", "--store", store).ok()
    for found in report_of(store)["nights"][3:]:
        assert (found["added"], found["changed"], found["deleted"]) == (0, 0, 0)
    assert len(report_of(store)["nights"]) == 5


def test_changes_against_a_damaged_shard_are_not_known(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_lines(inputs / "a.txt", sentences(6))
    embed(inputs / "*").ok()
    shard = next((store / "embeddings").iterdir())
    shard.write_bytes(b"")
    write_lines(inputs / "a.txt", sentences(7))
    assert " rows added, " not in embed(inputs / "*").ok().out
    assert report_of(store)["deleted"] is None
    assert report_of(store)["rows"] == 7


def test_a_report_that_cannot_be_written_is_said_and_fails_nothing(
    embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    write_lines(inputs / "a.txt", sentences(6))
    monkeypatch.setattr("sentence_beam.transforms.report.store_report.write_report", full)
    outcome = embed(inputs / "*")
    assert outcome.status == 0
    assert outcome.err.count("\n") == 1
    assert "report was not written" in outcome.err
    assert "report  " not in outcome.out
    check_ledger(store, 6)


def test_the_report_command_writes_a_page_anywhere(
    run: Run, nights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_in(nights)
    monkeypatch.chdir(tmp_path)
    assert run("report", "--store", nights).ok().out == "3 runs in report.html\n"
    run("report", "--store", nights, "--output", tmp_path / "page.html").ok()
    assert (tmp_path / "page.html").read_text() == (tmp_path / "report.html").read_text()
    assert files_in(nights) == before
    run("report", "--store", nights, "--output", tmp_path / "page.txt").failed(
        2, "--output", ".html"
    )


def test_the_report_command_tells_a_monitoring_system(
    run: Run, nights: Path, tmp_path: Path
) -> None:
    printed = run("report", "--store", nights, "--format", "openmetrics").ok().out
    assert printed.endswith("# EOF\n")
    assert f'sentence_beam_last_run_committed{{store="{nights}"}} 1.0\n' in printed
    assert "sentence_beam_commit_settle_seconds{" in printed
    run(
        "report", "--store", nights, "--format", "openmetrics", "--output", tmp_path / "store.prom"
    ).ok()
    assert (tmp_path / "store.prom").read_text() == printed
    missing = tmp_path / "missing" / "store.prom"
    run("report", "--store", nights, "--format", "openmetrics", "--output", missing).failed(
        2, "--output", missing
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_renders(run: Run, nights: Path, tmp_path: Path, scheme: str) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("no chromium here")
    run("report", "--store", nights, "--output", tmp_path / "page.html").ok()
    picture = tmp_path / "page.png"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    flags += ["--force-dark-mode"] if scheme == "dark" else []
    argv = [
        browser,
        *flags,
        f"--user-data-dir={tmp_path}/profile",
        f"--screenshot={picture}",
        f"file://{tmp_path}/page.html",
    ]
    subprocess.run(argv, capture_output=True, timeout=300, check=True)
    pixels = np.asarray(Image.open(picture).convert("RGB")) / 255
    assert pixels.std() > 0.01  # something was drawn
    assert (pixels[0, 0].mean() < 0.5) == (scheme == "dark")


@pytest.mark.parametrize("price", ["-1", "free", "inf", "nan"])
def test_a_price_that_cannot_be(run: Run, store: Path, price: str) -> None:
    run("report", "--store", store, f"--price-per-hour={price}").failed(
        2, "--price-per-hour", price
    )


def test_a_price_is_for_the_page(run: Run, store: Path) -> None:
    asked = ("report", "--store", store, "--price-per-hour", "2")
    run(*asked, "--format", "openmetrics").failed(2, "--price-per-hour is for the page")


# --- readers while nights are committed


def test_readers_never_see_half_a_night(store: Path) -> None:
    """Each night's rows all have its number in their texts; whatever a reader opens must be one
    whole night.
    """
    root, stop, seen, wrong = str(store), threading.Event(), set(), []
    night(root, 0, numbered(0, 5, "night 0"), numbered(5, 9, "night 0"))

    def read() -> None:
        while not stop.is_set():
            try:
                opened = open_store(root)
                rows = opened.dataset().to_table(columns=["id", "row_hash"]).to_pylist()
                number = int(opened.manifest.run[9:15])
                if len(rows) != 9 + number or list(faults(opened.manifest)):
                    wrong.append((number, len(rows)))
                seen.add(number)
            except Exception as error:
                wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(1, 20):
        night(
            root,
            number,
            numbered(0, 5, f"night {number}"),
            numbered(5, 9 + number, f"night {number}"),
        )
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert len(seen) > 2
    assert len(rows_of(store)) == 28
