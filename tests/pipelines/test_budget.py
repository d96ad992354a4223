"""A budget from the command line: what runs of it say, and what other commands do with the files
that wait.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import Run
from helpers.corpora import sentences, write_parquet

from sentence_beam.transforms.store import open_store

OPTIONS = ("--id-column", "id", "--unit-tokens", 60)
FILES = "abcd"


@pytest.fixture
def glob(inputs: Path) -> Path:
    """Four files of ten rows."""
    for number, name in enumerate(FILES):
        write(inputs / f"{name}.parquet", number)
    return inputs / "*.parquet"


def write(path: Path, number: int) -> None:
    """Ten rows of their own."""
    write_parquet(path, sentences(10, 10 * number), id=[f"{number}-{n}" for n in range(10)])


def pending_of(store: Path) -> dict[str, int]:
    counts: dict[str, int] = open_store(str(store)).manifest.data["pending"]
    return counts


def result_of(store: Path) -> dict[str, Any]:
    run = open_store(str(store)).manifest.run
    result: dict[str, Any] = json.loads((store / "runs" / run / "result.json").read_text())
    return result


def test_runs_of_a_budget_up_to_the_last_file(
    embed: Run, run: Run, glob: Path, store: Path, tmp_path: Path
) -> None:
    plan = run("plan", "--input", glob, *OPTIONS, "--budget", 1, "--price-per-hour", 2).ok().out
    assert "budget      1 tokens a run: 4 runs, about " in plan
    assert "pending     3 files, about " in plan
    out = embed(glob, *OPTIONS, "--budget", 1).ok().out
    assert "files       1 taken" in out
    assert "budget      1 tokens: " in out
    pending = pending_of(store)
    tokens = f"{pending['tokens']} tokens"
    assert f"pending     3 files, about {tokens}: 3 more runs of this budget" in out
    assert result_of(store)["pending"] == pending
    report = json.loads((store / "report.json").read_text())
    assert report["pending"] == report["nights"][0]["pending"] == pending
    assert f"pending     3 files, about {tokens}" in run("info", "--store", store).ok().out
    assert json.loads(run("info", "--store", store, "--json").ok().out)["pending"] == pending
    history = run("history", "--store", store).ok().out.splitlines()
    assert history[0].split()[-2:] == ["pending", "message"]
    assert history[1].split()[-1] == "3"
    run("verify", "--store", store).ok()
    metrics = tmp_path / "metrics.txt"
    run("report", "--store", store, "--format", "openmetrics", "--output", metrics).ok()
    assert f'sentence_beam_pending_tokens{{store="{store}"}} ' in metrics.read_text()
    for left in (2, 1):
        embed(glob, *OPTIONS).ok()
        assert pending_of(store)["files"] == left
    assert "1 run" in run("plan", "--input", glob, "--store", store).ok().out
    out = embed(glob, *OPTIONS).ok().out
    assert "pending" not in out
    assert pending_of(store) == {"files": 0, "bytes": 0, "tokens": 0}
    assert len(open_store(str(store)).numpy()[0]) == 40
    assert "4 unchanged" in run("plan", "--input", glob, "--store", store).ok().out


def test_other_commands_keep_what_waits(
    embed: Run, run: Run, glob: Path, inputs: Path, store: Path
) -> None:
    embed(glob, *OPTIONS).ok()
    for number, name in enumerate(FILES):
        write(inputs / f"{name}.parquet", 10 + number)
    embed(glob, *OPTIONS, "--budget", 1).ok()
    pending = pending_of(store)
    assert pending["files"] == 3
    embed(glob, *OPTIONS, "--precision", "float16").failed(
        2, "precision would change in every row, and 3 files are pending: say --budget none with"
    )
    run("index", "--store", store, "--index", "Flat").ok()
    assert pending_of(store) == pending
    run("recalibrate", "--store", store, "--calibration", "none").ok()
    assert pending_of(store) == pending
    run("forget", "--store", store, "--id", "1-3", "--max-deletes", 1).ok()
    assert pending_of(store) == pending
    embed(glob, *OPTIONS).ok()
    assert pending_of(store)["files"] == 2
    run("rollback", "-1", "--store", store).ok()
    assert pending_of(store) == pending
    out = (
        embed(glob, *OPTIONS, "--budget", "none", "--precision", "float16", "--max-deletes", 1)
        .ok()
        .out
    )
    assert "pending" not in out
    assert pending_of(store)["files"] == 0
    assert open_store(str(store)).manifest.options.budget is None
    assert len(open_store(str(store)).numpy()[0]) == 40
    run("verify", "--store", store).ok()
