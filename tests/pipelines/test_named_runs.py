"""A run with a name: its restart goes on with the run and its plan."""

import json
import os
import random
import time
from pathlib import Path

import pytest
from helpers.commands import Run, child_process
from helpers.corpora import check_ledger, files_in, manifest_of, sentences, write_parquet
from helpers.snapshots import files_of

NAME = ("--job", "night")


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """A folder with 120 rows in four row groups."""
    write(tmp_path / "in" / "a.parquet", 120)
    return tmp_path / "in"


def write(path: Path, rows: int) -> None:
    ids = [f"{path.stem}{n}" for n in range(rows)]
    write_parquet(path, sentences(rows), row_group_size=30, id=ids)


def command(inputs: Path, store: Path, model: Path, *options: str) -> list[str]:
    named = ["--input", str(inputs / "*.parquet"), "--store", str(store), "--model", str(model)]
    kept = ["--unit-tokens", "60", "--id-column", "id", "--dtype", "float32", "--index", "Flat"]
    return ["embed", *named, *kept, *options]


def begin(argv: list[str], store: Path, err: Path | str = os.devnull) -> object:
    """Start a command; returns its process when a shard is there."""
    process = child_process(argv, str(err))
    process.start()
    end = time.monotonic() + 120
    while process.is_alive() and not files_in(store, "sidecars") and time.monotonic() < end:
        time.sleep(0.005)
    assert process.is_alive()
    return process


def kill(argv: list[str], store: Path) -> str:
    """Start a command and kill it when it has made a shard; returns its run."""
    process = begin(argv, store)
    time.sleep(random.Random(4).random() * 0.02)
    process.kill()
    process.join()
    assert manifest_of(store) is None
    return json.loads((store / "lease.json").read_text())["run"]


@pytest.mark.timeout(180)
def test_a_restart_goes_on_with_the_run_and_its_plan(
    run: Run, inputs: Path, store: Path, model: Path
) -> None:
    argv = command(inputs, store, model, *NAME)
    killed = kill(argv, store)
    write(inputs / "b.parquet", 30)  # after the plan
    line = run(*argv, "--max-tokens", "7").failed(2, "--job night", killed, "--max-tokens")
    assert "index" not in line
    run(*argv).ok()
    snapshot = manifest_of(store)
    assert snapshot["run"] == killed
    assert [file["path"] for file in files_of(store, snapshot)] == ["a.parquet"]
    check_ledger(store, 120, embedded=120)
    run(*argv).ok()
    assert manifest_of(store)["run"] != killed
    assert manifest_of(store)["previous"] == killed
    check_ledger(store, 150)
    assert not files_in(store, f"runs/{killed}/index"), "left by the first, removed by the second"
    assert not (store / "lease.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_two_processes_of_a_name_make_one_snapshot(
    inputs: Path, store: Path, model: Path, tmp_path: Path
) -> None:
    argv = command(inputs, store, model, *NAME)
    errs = [tmp_path / "err0", tmp_path / "err1"]
    first = begin(argv, store, errs[0])
    second = child_process(argv, str(errs[1]))
    second.start()
    for process in (first, second):
        process.join(120)
    assert [first.exitcode, second.exitcode] == [0, 0], [err.read_text() for err in errs]
    check_ledger(store, 120, embedded=120)
    assert len(files_in(store, "manifests")) <= 2  # the second may have come after the first's end
    assert not (store / "lease.json").exists()


def test_input_that_cannot_be_read_again_has_no_name(run: Run, store: Path) -> None:
    run("embed", "--input", "-", "--store", store, *NAME).failed(2, "--job night", "standard input")
