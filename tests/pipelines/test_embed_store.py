"""The store's side: no place to write, a full disk, other writers, damage from an earlier night."""

import errno
import json
import os
import socket
import time
from pathlib import Path

import pytest
from helpers import fake_storage
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    files_in,
    manifest_of,
    sentences,
    vectors_of,
    write_bytes,
    write_lines,
)
from helpers.snapshots import units_of

from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs.run_result import read_result

ALL = ("--max-rejects", 1)


@pytest.fixture
def glob(inputs: Path) -> Path:
    """Four files of five rows, and one of two rows, of which one is rejected: --max-rejects 0
    fails, and 1 passes.
    """
    for i in range(4):
        write_lines(inputs / f"{i}.txt", sentences(5, 5 * i))
    write_bytes(inputs / "4.txt", b"\xff\none\n")
    return inputs / "*.txt"


def test_a_store_that_cannot_be_written_is_named(
    run: Run, embed: Run, glob: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("embed", "--input", glob, "--store", "/dev/null/store").failed(
        2, "--store /dev/null/store", "choose another"
    )
    for option, other in (("--store", "--input"), ("--input", "--store")):
        run("embed", option, "xyz://bucket/a", other, glob).failed(2, "xyz://bucket/a", "gs://")
    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES), "a file")
    fake_storage.refuse(monkeypatch, "write_temporary", error)
    embed(glob).failed(2, store, "Permission denied")


def test_a_disk_that_fills_up_costs_the_run_and_no_finished_unit(
    embed: Run, glob: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(range(12))

    def write(path: str, data: bytes) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    with monkeypatch.context() as patch:
        fake_storage.meet(patch, "write_temporary", write)
        outcome = embed(glob, *ALL)
    assert (outcome.status, outcome.err.count("\n")) == (1, 1)
    assert "No space left" in outcome.err
    assert manifest_of(store) is None
    made = files_in(store, "embeddings")
    embed(glob, *ALL).ok()
    check_ledger(store, 21, 1, embedded=21)
    assert made
    assert made.items() <= files_in(store, "embeddings").items()


def test_a_second_writer_is_told_of_the_first_and_a_dead_one_gives_way(
    embed: Run, glob: Path, store: Path
) -> None:
    other = lease.Lease("run-1", "elsewhere", 17, "FlinkRunner", "job-1", time.time())
    lease.acquire(str(store), other)
    embed(glob, *ALL).failed(1, store, "run-1", "job-1", "FlinkRunner", "elsewhere")
    assert manifest_of(store) is None
    path = store / "lease.json"
    held = json.loads(path.read_text())
    assert held["run"] == "run-1"
    path.write_text(json.dumps({**held, "host": socket.gethostname(), "pid": 2**22 + 1}))
    embed(glob, *ALL).ok()
    check_ledger(store, 21, 1)
    assert not path.exists()


def test_an_unforeseen_failure_is_one_line_and_on_record(
    embed: Run, glob: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = "sentence_beam.transforms.steps.embed.unit_embedder.collapse"
    with monkeypatch.context() as patch:
        patch.setattr(hashes, lambda hashes: 1 / 0)
        outcome = embed(glob, *ALL)
    assert (outcome.status, outcome.err.count("\n")) == (1, 1)
    assert "ZeroDivisionError: division by zero; finished work is kept, run again" in outcome.err
    assert not (store / "lease.json").exists()
    results = [read_result(str(store), path.name) for path in (store / "runs").iterdir()]
    assert [r.status for r in results if r] == ["failed"]


def test_a_damaged_manifest_stops_the_run_and_stays(embed: Run, glob: Path, store: Path) -> None:
    embed(glob, *ALL).ok()
    (store / "manifest.json").write_bytes(b'{"format": 1, "run": "x"')
    embed(glob, *ALL).failed(1, store / "manifest.json")
    assert (store / "manifest.json").read_bytes() == b'{"format": 1, "run": "x"'
    assert not (store / "lease.json").exists()


def test_what_an_earlier_run_left_is_used_and_what_is_missing_or_damaged_made_again(
    embed: Run, glob: Path, store: Path
) -> None:
    (store / "embeddings").mkdir(parents=True)
    (store / "notes.txt").write_text("mine")
    (store / "embeddings" / "x.tmp-123").write_text("left by a crash")
    embed(glob, "--max-rejects", 0).failed(3)  # which wrote every unit, and did not commit
    next((store / "rejects").iterdir()).unlink()
    embed(glob, *ALL).ok()
    units, made = units_of(store, check_ledger(store, 21, 1)), files_in(store, "embeddings")

    (store / "manifest.json").unlink()
    embed(glob, *ALL).ok()
    assert units_of(store, check_ledger(store, 21, 1, embedded=21)) == units
    assert files_in(store, "embeddings") == made

    vectors, shard = vectors_of(store), sorted((store / "embeddings").glob("*.parquet"))[1]
    (store / "manifest.json").unlink()
    for path in (store / "sidecars").iterdir():
        path.unlink()
    shard.write_bytes(shard.read_bytes()[:-20])
    damaged = files_in(store, "embeddings")
    embed(glob, *ALL).ok()
    check_ledger(store, 21, 1, embedded=21)
    after = files_in(store, "embeddings")
    assert vectors_of(store) == vectors
    assert {name for name in made if damaged[name] != after[name]} == {f"embeddings/{shard.name}"}
    assert (store / "notes.txt").read_text() == "mine"
