"""history, diff, report and --snapshot as a person runs them, night after night.

Covers pipelines/diff.py.
Covers pipelines/history.py.
"""

import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    files_in,
    ids_of,
    manifest_of,
    sentences,
    write_bytes,
    write_lines,
    write_parquet,
)
from helpers.snapshots import night, numbered, run_name
from PIL import Image

from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.runs.lease import Lease


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
        asked = ("search", "--store", store, "--query", "dog", "-k", 9, *extra)
        assert run(*asked, "--snapshot", first).ok().out.count("a.parquet#") == 6
        assert run(*asked).ok().out.count("a.parquet#") == 1
    opened = open_store(str(store), snapshot=first)
    assert opened.dataset().to_table(columns=["id"])["id"].to_pylist() == ids
    assert len(opened.search("dog", k=9)) == 6


@pytest.mark.parametrize("name", ["20200101T000000_000Z-abcdef", "../manifest", ""])
def test_an_unknown_run_lists_the_latest(run: Run, week: Path, tmp_path: Path, name: str) -> None:
    for command in (("files",), ("verify",), ("search", "--query", "x")):
        given = (*command, "--snapshot", name, "--store")
        line = run(*given, week).failed(2, "no snapshot", run_name(6), run_name(2))
        assert run_name(1) not in line
        run(*given, tmp_path).failed(2, "holds no store")
    diff = ("diff", "--output", "d.parquet", run_name(2), name, "--store", week)
    assert run_name(1) not in run(*diff).failed(2, "no snapshot", run_name(6), run_name(2))


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
    cells = [line.split() for line in lines]
    assert [line[4] for line in cells] == ["embed", "embed", "embed", "index"]
    assert cells[0][5:9] == ["6", "6", "0", "0"]
    assert cells[2][5:9] == ["2", "2", "0", "6"]
    assert [line[0] for line in cells] == sorted(path.name for path in (store / "runs").iterdir())
    assert [" failed " in f"{line} " for line in lines] == [False, True, False, False]
    assert "rows rejected, more than --max-rejects" in lines[1]
    assert lines[0].endswith("committed  kept")
    assert lines[3].endswith("committed  current")
    run("vacuum", "--store", store, "--keep", 1).ok()
    lines = run("history", "--store", store).ok().out.splitlines()[1:]
    kept = [line.split()[-1] for line in lines if "failed" not in line]
    assert kept == ["removed", "removed", "current"]


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
        host = (socket.gethostname(), pid, "FnApiRunner", "job", time.time())
        lease = Lease("20260101T000000_000Z-abcdef", *host)
        write_bytes(store / "lease.json", lease.to_bytes())
        (line,) = run("history", "--store", store).ok().out.splitlines()[1:]
        assert lease.run in line
        assert status in line


def test_history_as_a_file(run: Run, nights: Path, tmp_path: Path) -> None:
    out = tmp_path / "history.parquet"
    assert run("history", "--store", nights, "--output", out).ok().out == f"3 runs in {out}\n"
    rows = pq.read_table(out).to_pylist()
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


def test_diff_of_a_snapshot_with_itself_and_over_a_lost_shard(
    run: Run, nights: Path, tmp_path: Path
) -> None:
    out = tmp_path / "diff.parquet"
    run("diff", run_name(1), run_name(1), "--store", nights, "--output", out).ok()
    assert pq.read_table(out).num_rows == 0
    out.unlink()
    for path in (nights / "embeddings").iterdir():
        path.unlink()
    lost = run("diff", run_name(0), run_name(1), "--store", nights, "--output", out)
    lost.failed(1, f"{nights}/embeddings/")
    assert list(tmp_path.glob("diff*")) == []


# --- report


def test_the_report_of_nights(run: Run, embed: Run, inputs: Path, store: Path) -> None:
    def told(**counts: int) -> bool:
        found = report_of(store)
        return {name: found[name] for name in counts} == counts

    write_parquet(inputs / "a.parquet", sentences(20), id=[f"i{n}" for n in range(20)])
    write_parquet(inputs / "b.parquet", sentences(6, 20), id=[f"j{n}" for n in range(6)])
    out = embed(inputs / "*", "--id-column", "id", "--index", "Flat").ok().out
    assert told(rows=26, embedded=26, added=26, changed=0, deleted=0, spared=0)
    first = report_of(store)["seconds"]
    assert f"report      {store}/report.html" in out
    assert (store / "report.html").read_text().startswith("<!DOCTYPE html>")

    texts = [*sentences(17), "new", "other", "other"]
    write_parquet(inputs / "a.parquet", texts, id=[f"i{n}" for n in range(20)])
    (inputs / "b.parquet").rename(inputs / "c.parquet")
    write_parquet(inputs / "d.parquet", sentences(2, 90), id=["k0", "k1"])
    assert "changes     2 rows added, 3 changed, 0 deleted" in embed(inputs / "*").ok().out
    assert told(rows=28, added=2, changed=3, deleted=0)
    second = report_of(store)
    assert sum(second[name] for name in ("carried", "reused", "duplicates", "embedded")) == 28
    page = inputs.parent / "nights.html"
    run("report", "--store", store, "--output", page, "--price-per-hour", 36000).ok()
    assert f">{10 * first:,.2f}</td>" in page.read_text()
    assert "<th>spent</th>" not in (store / "report.html").read_text()

    (inputs / "a.parquet").unlink()
    embed(inputs / "*", "--max-deletes", 1).ok()
    assert told(added=0, changed=0, deleted=20)
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
    asked = ("report", "--store", nights, "--format", "openmetrics")
    printed = run(*asked).ok().out
    assert printed.endswith("# EOF\n")
    assert f'sentence_beam_last_run_committed{{store="{nights}"}} 1.0\n' in printed
    assert "sentence_beam_commit_settle_seconds{" in printed
    run(*asked, "--output", tmp_path / "store.prom").ok()
    assert (tmp_path / "store.prom").read_text() == printed
    missing = tmp_path / "missing" / "store.prom"
    run(*asked, "--output", missing).failed(2, "--output", missing)
    run(*asked, "--price-per-hour", "2").failed(2, "--price-per-hour is for the page")
    run(*asked[:3], "--price-per-hour=inf").failed(2, "--price-per-hour", "inf")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_renders(run: Run, nights: Path, tmp_path: Path, scheme: str) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("no chromium here")
    run("report", "--store", nights, "--output", tmp_path / "page.html").ok()
    picture = tmp_path / "page.png"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    flags += ["--force-dark-mode"] if scheme == "dark" else []
    flags += [f"--user-data-dir={tmp_path}/profile", f"--screenshot={picture}"]
    argv = [browser, *flags, f"file://{tmp_path}/page.html"]
    subprocess.run(argv, capture_output=True, timeout=300, check=True)
    pixels = np.asarray(Image.open(picture).convert("RGB")) / 255
    assert pixels.std() > 0.01  # something was drawn
    assert (pixels[0, 0].mean() < 0.5) == (scheme == "dark")
