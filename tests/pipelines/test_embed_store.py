"""The store's side: no place to write, a full disk, other writers, damage from an earlier night."""

import errno
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
from helpers.variants import variants

from sentence_beam.pipelines.cli import main
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs.result import read_result


@pytest.fixture
def glob(inputs: Path) -> Path:
    """Four files of five rows, and one of two rows, of which one is rejected: --max-rejects 0
    fails, and 1 passes.
    """
    for i in range(4):
        write_lines(inputs / f"{i}.txt", sentences(5, 5 * i))
    write_bytes(inputs / "4.txt", b"\xff\none\n")
    return inputs / "*.txt"


ALL = ("--max-rejects", 1)
NONE = ("--max-rejects", 0)


@pytest.fixture
def unfinished(embed: Run, glob: Path, store: Path) -> Path:
    """A store whose first run wrote every unit and did not commit."""
    embed(glob, *NONE).failed(3)
    assert manifest_of(store) is None
    return glob


# --- places that cannot be written


@pytest.mark.parametrize("output", ["file/store", "/dev/null/store"])
def test_an_output_that_cannot_be_made(
    run: Run, model: Path, glob: Path, tmp_path: Path, output: str
) -> None:
    (tmp_path / "file").write_text("not a folder")
    path = tmp_path / output
    run("embed", "--input", glob, "--store", path, "--model", model).failed(
        2, f"--store {path}", "choose another"
    )


def test_an_output_without_permission(
    embed: Run, glob: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES), "a file")
    fake_storage.refuse(monkeypatch, "write_temporary", error)
    embed(glob).failed(2, store, "Permission denied")


def test_a_scheme_without_a_filesystem(run: Run, model: Path, glob: Path) -> None:
    run("embed", "--input", glob, "--store", "xyz://bucket/store", "--model", model).failed(
        2, "xyz://bucket/store", "gs://"
    )
    run("embed", "--input", "xyz://bucket/*", "--store", "/tmp/none", "--model", model).failed(
        2, "xyz://bucket/", "gs://"
    )


# --- a full disk


def _raise(number: int, path: str = "a file") -> Callable[..., Any]:
    def broken(*_: object) -> str:
        raise OSError(number, os.strerror(number), path)

    return broken


def _full_after(patch: pytest.MonkeyPatch, writes: int) -> None:
    left = iter(range(writes))

    def write(path: str, data: bytes) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    fake_storage.meet(patch, "write_temporary", write)


@pytest.mark.parametrize("writes", [0, 12])
def test_a_disk_that_fills_up_costs_the_run_and_no_finished_unit(
    embed: Run, glob: Path, store: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    with monkeypatch.context() as patch:
        _full_after(patch, writes)
        outcome = embed(glob, *ALL)
    assert outcome.status in (1, 2)
    assert outcome.err.count("\n") == 1
    assert "No space left" in outcome.err
    assert manifest_of(store) is None
    made = files_in(store, "embeddings")
    embed(glob, *ALL).ok()
    check_ledger(store, 21, 1, embedded=21)
    assert made.items() <= files_in(store, "embeddings").items()


def test_a_disk_that_fills_up_behind_the_commit(
    embed: Run, glob: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            "sentence_beam.transforms.store.runs.run_end.record_result",
            _raise(errno.ENOSPC, "result.json"),
        )
        outcome = embed(glob, *ALL)
    assert outcome.status == 0
    assert outcome.err.startswith("committed; the record of it was not written (")
    assert outcome.err.count("\n") == 1
    assert "result.json" in outcome.err
    assert "21 written" in outcome.out
    assert check_ledger(store, 21, 1)["work"]["embedded"] == 21
    assert not list((store / "runs").glob("*/result.json"))
    embed(glob, *ALL).ok()
    check_ledger(store, 21, 1, carried=21)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 kB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", folder], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_disk_that_is_really_full(run: Run, model: Path, inputs: Path, small_disk: Path) -> None:
    write_lines(inputs / "a.txt", sentences(4000))
    store = small_disk / "store"
    arguments = ("--input", inputs / "*", "--store", store, "--model", model, "--unit-tokens", 2000)
    outcome = run("embed", *arguments)
    assert outcome.status == 1
    assert outcome.err.count("\n") == 1
    assert "No space left" in outcome.err
    assert manifest_of(store) is None
    assert files_in(store, "embeddings")
    assert not [path for path in files_in(store) if ".tmp-" in path]
    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    run("embed", *arguments).ok()
    check_ledger(store, 4000)


# --- other writers


def test_a_second_writer_is_told_run_and_job(embed: Run, glob: Path, store: Path) -> None:
    lease.acquire(
        str(store), lease.Lease("run-1", "elsewhere", 17, "FlinkRunner", "job-1", time.time())
    )
    embed(glob, *ALL).failed(1, store, "run-1", "job-1", "FlinkRunner", "elsewhere")
    assert manifest_of(store) is None
    assert json.loads((store / "lease.json").read_text())["run"] == "run-1"


OTHERS: dict[str, dict[str, Any]] = {
    "dead process": {"host": socket.gethostname(), "pid": 2**22 + 1},
    "silent for long": {"host": "elsewhere"},
    "engine silent for long": {"host": "elsewhere", "pid": None},
}


@variants("other", OTHERS, kept=(0,))
def test_the_lease_of_a_dead_writer_is_taken_over(
    embed: Run, glob: Path, store: Path, other: str
) -> None:
    values = {
        "run": "r",
        "host": "h",
        "pid": 1,
        "runner": "x",
        "job": "j",
        "renewed": time.time(),
        **OTHERS[other],
    }
    store.mkdir()
    (store / "lease.json").write_text(json.dumps(values))
    if other != "dead process":
        os.utime(store / "lease.json", (time.time() - 7 * 3600,) * 2)
    embed(glob, *ALL).ok()
    check_ledger(store, 21, 1)
    assert not (store / "lease.json").exists()


def test_a_commit_in_between_stands_and_the_later_run_says_so(
    embed: Run,
    glob: Path,
    store: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    embed(glob, *ALL).ok()
    theirs: list[bytes] = []
    from sentence_beam.transforms.store.runs import run_end

    original = run_end.commit

    def late(*args: Any) -> Any:
        monkeypatch.setattr(run_end, "commit", original)
        (store / "lease.json").unlink()  # as if it had gone stale
        (glob.parent / "9.txt").write_text("theirs\n")
        options = ["--input", str(glob), "--store", str(store), "--max-rejects", "1"]
        assert main(["embed", *options]) == 0
        theirs.append((store / "manifest.json").read_bytes())
        capfd.readouterr()
        return original(*args)

    monkeypatch.setattr(run_end, "commit", late)
    (glob.parent / "8.txt").write_text("ours\n")
    line = embed(glob, *ALL).failed(1, store, "committed while this run worked", "run again")
    assert json.loads(theirs[0])["run"] in line
    assert (store / "manifest.json").read_bytes() == theirs[0]
    check_ledger(store, 23, 1)
    embed(glob, *ALL).ok()
    check_ledger(store, 23, 1, carried=23)


def test_a_failed_run_is_on_record(unfinished: Path, store: Path) -> None:
    results = [read_result(str(store), path.name) for path in (store / "runs").iterdir()]
    assert [(r.status, r.exit_code) for r in results if r] == [("failed", 3)]
    assert results[0] is not None
    assert "--max-rejects" in results[0].message


def test_an_unforeseen_failure_is_one_line_and_on_record(
    embed: Run, glob: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            "sentence_beam.transforms.steps.embed.unit_embedder.collapse", lambda hashes: 1 / 0
        )
        outcome = embed(glob, *ALL)
    assert outcome.status == 1
    assert outcome.err.count("\n") == 1
    assert "ZeroDivisionError: division by zero; finished work is kept, run again" in outcome.err
    assert not (store / "lease.json").exists()
    results = [read_result(str(store), path.name) for path in (store / "runs").iterdir()]
    assert [r.status for r in results if r] == ["failed"]


# --- what an earlier run left


def test_a_missing_reject_file_is_written_again(embed: Run, unfinished: Path, store: Path) -> None:
    next((store / "rejects").iterdir()).unlink()
    embed(unfinished, *ALL).ok()
    check_ledger(store, 21, 1)


MANIFESTS = [b"", b'{"format": 1, "run": "x"', b"[]", b"{}", b'{"format": 99}', b"\x00\xff\xfe"]


def test_a_damaged_manifest_stops_the_run_and_stays(embed: Run, glob: Path, store: Path) -> None:
    embed(glob, *ALL).ok()
    for content in MANIFESTS:
        (store / "manifest.json").write_bytes(content)
        embed(glob, *ALL).failed(1, store / "manifest.json")
        assert (store / "manifest.json").read_bytes() == content
        assert not (store / "lease.json").exists()


def test_a_lost_manifest_is_rebuilt_from_what_stands(embed: Run, glob: Path, store: Path) -> None:
    embed(glob, *ALL).ok()
    first, made = manifest_of(store), files_in(store, "embeddings", "sidecars")
    (store / "manifest.json").unlink()
    embed(glob, *ALL).ok()
    assert files_in(store, "embeddings", "sidecars") == made
    second = check_ledger(store, 21, 1, embedded=21)
    assert first is not None
    assert units_of(store, second) == units_of(store, first)


def test_foreign_files_in_a_store_are_left_alone(embed: Run, glob: Path, store: Path) -> None:
    store.mkdir()
    (store / "notes.txt").write_text("mine")
    (store / "embeddings").mkdir()
    (store / "embeddings" / "x.tmp-123").write_text("left by a crash")
    embed(glob, *ALL).ok()
    check_ledger(store, 21, 1)
    assert (store / "notes.txt").read_text() == "mine"


def _flip(path: Path, at: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(at * len(data))] ^= 0xFF
    path.write_bytes(data)


def test_without_sidecars_a_damaged_shard_is_made_again_and_no_other(
    embed: Run, unfinished: Path, store: Path
) -> None:
    embed(unfinished, *ALL).ok()
    vectors = vectors_of(store)
    (store / "manifest.json").unlink()
    shard = sorted((store / "embeddings").iterdir())[1]
    before = files_in(store, "embeddings")
    _flip(shard, 0.5)
    for path in (store / "sidecars").iterdir():
        path.unlink()
    embed(unfinished, *ALL).ok()
    check_ledger(store, 21, 1, embedded=21)
    after = files_in(store, "embeddings")
    assert vectors_of(store) == vectors
    changed = {name for name in before if before[name] != after[name]}
    assert changed <= {f"embeddings/{shard.name}"}
