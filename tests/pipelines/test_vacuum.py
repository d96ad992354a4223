"""`vacuum` as a person runs it."""

import os
import shutil
import time
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import (
    files_in,
    ids_of,
    sentences,
    write_bytes,
    write_lines,
)
from helpers.snapshots import night, numbered, run_name

from sentence_beam.transforms.store.runs import lease


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of three nights, which tests copy; in each one unit of two is another."""
    store = tmp_path_factory.mktemp("three") / "store"
    for number in range(3):
        night(str(store), number, numbered(0, 5), numbered(100 + number, 110))
    return store


@pytest.fixture
def nights(three: Path, store: Path) -> Path:
    """Three nights of a store."""
    return Path(shutil.copytree(three, store))


def manifests_in(store: Path) -> list[str]:
    """The manifests of snapshots."""
    return [path for path in files_in(store, "manifests") if path.endswith(".json")]


def test_a_dry_run_removes_nothing_and_says_the_same(run: Run, nights: Path) -> None:
    before, vacuum = files_in(nights), ("vacuum", "--store", nights, "--keep", 1)
    planned = run(*vacuum, "--dry-run").ok().out
    assert files_in(nights) == before
    said = run(*vacuum).ok().out
    assert planned.replace("would be removed", "removed") == said
    out = said.splitlines()
    assert out[0] == f"snapshots   2 removed ({run_name(0)}, {run_name(1)}), 1 kept"
    kinds = {line.split()[0]: line.split(maxsplit=1)[1] for line in out[1:]}
    assert list(kinds) == ["parts", "plans", "shards", "sidecars", "all"]
    assert kinds["shards"].startswith("2 files, ")
    assert kinds["all"].endswith(" removed")
    again = run("vacuum", "--store", nights).ok().out.splitlines()
    assert again[-1] == "all         0 files, 0 bytes removed"


def made_old(store: Path, hours: float) -> None:
    """Let all files of snapshots have been written that long ago."""
    old = time.time() - hours * 3600
    for path in files_in(store, "manifests", "embeddings", "sidecars", "runs"):
        os.utime(store / path, (old, old))


def test_without_options_a_week_is_kept(run: Run, nights: Path) -> None:
    run("vacuum", "--store", nights).ok()
    assert len(manifests_in(nights)) == 3
    made_old(nights, 8 * 24)
    run("vacuum", "--store", nights).ok()
    assert len(manifests_in(nights)) == 1
    run("verify", "--store", nights).ok()


def test_keep_and_age_together_keep_what_either_keeps(run: Run, nights: Path) -> None:
    made_old(nights, 5)
    run("vacuum", "--store", nights, "--keep", 1, "--older-than", "6h").ok()
    assert len(manifests_in(nights)) == 3
    run("vacuum", "--store", nights, "--keep", 2, "--older-than", "4h").ok()
    assert len(manifests_in(nights)) == 2


def test_while_another_writes_nothing_is_removed_or_built_until_that_writer_is_dead(
    run: Run, nights: Path
) -> None:
    writer = ("run-1", "elsewhere", 17, "FlinkRunner", "job-1", time.time())
    lease.acquire(str(nights), lease.Lease(*writer))
    before, vacuum = files_in(nights), ("vacuum", "--store", nights, "--keep", 1)
    for command in (vacuum, (*vacuum, "--dry-run"), ("index", "--store", nights)):
        run(*command).failed(1, nights, "run-1", "job-1")
    assert files_in(nights) == before
    os.utime(nights / "lease.json", (time.time() - 601,) * 2)
    run(*vacuum).ok()
    assert len(manifests_in(nights)) == 1
    assert not (nights / "lease.json").exists()


def test_a_crashed_nights_work_is_taken_up_after_a_vacuum(
    run: Run, embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(inputs / "a.txt", sentences(5))
    embed(inputs / "*").ok()
    write_bytes(inputs / "b.txt", b"\xff\n" + "\n".join(sentences(5, 5)).encode())
    embed(inputs / "*", "--max-rejects", 0).failed(3)
    run("vacuum", "--store", store, "--keep", 1).ok()
    monkeypatch.setattr(
        "sentence_beam.transforms.steps.embed.load_encoder.load_encoder",
        lambda job: pytest.fail("embedded again"),
    )
    embed(inputs / "*", "--max-rejects", 1).ok()
    assert len(ids_of(store)) == 10
