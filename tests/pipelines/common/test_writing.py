"""The lease of a run: while it is silent, when it was never submitted, and while an engine works
for it.
"""

import errno
import json
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState
from helpers.commands import Run
from helpers.corpora import sentences, write_lines
from helpers.snapshots import night, numbered

from sentence_beam.pipelines.common.writing import Writer, read_run_result, writing
from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs import run_result as runs
from sentence_beam.transforms.store.shards.unit_store import UnitStore

ENGINE = ("--runner", "PortableRunner", "--dtype", "float32")


@pytest.fixture
def glob(inputs: Path) -> Path:
    """A file of ten rows."""
    return write_lines(inputs / "a.txt", sentences(10))


def test_a_run_is_alive_through_steps_that_finish_no_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
    with writing(str(tmp_path), "run1", PipelineOptions(["--runner=FnApiRunner"])):
        standing = json.loads((tmp_path / "lease.json").read_text())
        (tmp_path / "lease.json").write_text(json.dumps({**standing, "renewed": 0.0}))
        until = time.monotonic() + 10
        while (
            json.loads((tmp_path / "lease.json").read_text())["renewed"] == 0.0
            and time.monotonic() < until
        ):
            time.sleep(0.005)
        with pytest.raises(SentenceBeamError, match="run1"):
            lease.check(str(tmp_path))
    assert not (tmp_path / "lease.json").exists()


def test_a_sign_of_life_does_not_bring_back_a_lease_that_was_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.001)
    with writing(str(tmp_path), "run1", PipelineOptions(["--runner=FnApiRunner"])):
        for _ in range(20):
            lease.release(str(tmp_path), "run1")
            time.sleep(0.005)
            assert not (tmp_path / "lease.json").exists()
            lease.acquire(str(tmp_path), lease.Lease("run1", "h", None, "x", "j", time.time()))


def fail_in_a_run(root: str, taken: bool) -> None:
    """Have a run miss one of its files, whose lease another run took meanwhile, or not."""
    with writing(root, "run1", PipelineOptions(["--runner=FnApiRunner"])):
        if taken:
            lease.release(root, "run1")
            lease.acquire(root, lease.Lease("run2", "h", None, "x", "j", time.time()))
        raise FileNotFoundError(
            errno.ENOENT, "No such file or directory", "store/plan.parquet.tmp-1"
        )


def test_a_run_whose_lease_was_taken_says_so_if_it_misses_a_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fail_in_a_run(str(tmp_path), taken=False)
    with pytest.raises(SentenceBeamError, match="the lease was taken from this run"):
        fail_in_a_run(str(tmp_path), taken=True)


class Submitted:
    """A job that an engine has taken."""

    def __init__(self, state: Any, end: BaseException | None = None):
        self._state, self._end = state, end

    @property
    def state(self) -> str:
        """What the engine says of the job."""
        if isinstance(self._state, Exception):
            raise self._state
        return self._state

    def wait_until_finish(self) -> None:
        """Until this process hears of its end."""
        if self._end:
            raise self._end


def _cannot_be_submitted(*_: object) -> None:
    raise ConnectionRefusedError(111, "Connection refused", "localhost:8099")


SUBMISSIONS: dict[str, tuple[Callable[..., Any], bool]] = {
    "never submitted": (_cannot_be_submitted, False),
    "failed": (lambda *_: Submitted(PipelineState.FAILED, RuntimeError("it failed")), False),
    "ended without a result": (lambda *_: Submitted(PipelineState.DONE), False),
    "interrupted while it runs": (
        lambda *_: Submitted(PipelineState.RUNNING, KeyboardInterrupt()),
        True,
    ),
    "out of sight": (lambda *_: Submitted(OSError("no answer"), OSError("no answer")), True),
}


@pytest.mark.parametrize("how", SUBMISSIONS)
def test_the_lease_is_given_back_unless_an_engine_may_still_work(
    embed: Run, glob: Path, store: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    run, stays = SUBMISSIONS[how]
    monkeypatch.setattr(beam.Pipeline, "run", run)
    assert embed(glob, *ENGINE).status == (130 if how.startswith("interrupted") else 1)
    assert (store / "lease.json").exists() == stays
    monkeypatch.undo()
    outcome = embed(glob)
    assert outcome.status == (1 if stays else 0)
    assert ("is being written by run" in outcome.err) == stays


def test_a_mistake_on_the_way_to_an_engine_gives_it_back_too(
    embed: Run, glob: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sentence_beam.pipelines.embed.build", lambda *_: 1 / 0)
    assert embed(glob, *ENGINE).status == 1
    assert not (store / "lease.json").exists()


def test_a_writer_that_lost_its_lease_stops_embedding(
    embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(inputs / "a.txt", sentences(200))
    write = UnitStore.write

    def frozen(self: UnitStore, *arguments: Any) -> Any:
        """The first unit takes so long that another run takes the lease."""
        record = write(self, *arguments)
        lease.release(str(store), json.loads((store / "lease.json").read_text())["run"])
        lease.acquire(
            str(store), lease.Lease.from_this_process("another", "FnApiRunner", "job", True)
        )
        monkeypatch.setattr(UnitStore, "write", write)
        time.sleep(0.05)
        return record

    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(UnitStore, "write", frozen)
    embed(inputs / "*", "--unit-tokens", 60).failed(
        1, f"{store}: the lease was taken from this run"
    )
    made = len(list((store / "embeddings").iterdir()))
    assert not (store / "manifest.json").exists()
    lease.release(str(store), "another")
    monkeypatch.undo()
    embed(inputs / "*", "--unit-tokens", 60).ok()
    assert made < len(list((store / "embeddings").iterdir())) / 2


@pytest.mark.parametrize("content", [None, b"", b"null", b"[]"])
def test_a_run_that_committed_is_a_success_without_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    root = str(tmp_path / "store")
    whole = night(root, 0, numbered(0, 5), numbered(5, 9))
    monkeypatch.setattr(runs, "HERE", deque())  # as in a process that submitted the job
    path = tmp_path / "store" / "runs" / whole.run / "result.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    found = read_run_result(root, whole.run, Writer(PipelineOptions(["--runner=FnApiRunner"])))
    assert found is not None
    assert (found.status, found.exit_code, found.duplicate_ids) == ("committed", 0, None)
    assert found.message == "committed; the record of it is missing or damaged"
    assert (found.ledger, found.tokens, found.space) == (whole.ledger, 45, whole.space)
    with pytest.raises(SentenceBeamError, match="ended without a result"):
        read_run_result(root, "another", Writer(PipelineOptions(["--runner=FnApiRunner"])))


def test_a_job_that_fails_after_its_commit_is_a_success(
    embed: Run, glob: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "HERE", deque(maxlen=0))  # as where an engine's workers commit
    run = beam.Pipeline.run

    def failing(self: beam.Pipeline, *arguments: Any, **options: Any) -> Any:
        run(self, *arguments, **options)
        raise RuntimeError("the worker that had committed was lost")

    monkeypatch.setattr(beam.Pipeline, "run", failing)
    outcome = embed(glob)
    assert outcome.status == 0
    assert (
        outcome.err
        == "committed; the job failed afterwards (the worker that had committed was lost)\n"
    )
    assert "10 written" in outcome.out


def test_a_disk_that_does_not_confirm_the_commit_is_said(
    run: Run, embed: Run, glob: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_beam.transforms.storage import local

    sync = local.sync_folder

    def broken(path: str) -> None:
        if (store / "manifest.json").exists():
            raise storage.UnsyncedError(5, "Input/output error", path)
        sync(path)

    monkeypatch.setattr(local, "sync_folder", broken)
    outcome = embed(glob)
    assert outcome.status == 0
    assert outcome.err.splitlines()[-1].startswith("committed, but the disk did not confirm it")
    monkeypatch.undo()
    assert "committed, but the disk did not confirm it" in run("history", "--store", store).ok().out
    run("verify", "--store", store).ok()
