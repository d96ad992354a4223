"""The lease: who may write, when it may be taken over, and what a writer does that lost it."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from helpers.snapshots import run_name

from transforms.errors import SentenceBeamError
from transforms.store import lease, process

OLD_FIELDS = ("run", "host", "pid", "runner", "job", "renewed")


def holder(**values: object) -> lease.Lease:
    """A lease of this very process."""
    return replace(lease.Lease.of_this_process("run1", "FnApiRunner", "job1", True), **values)  # type: ignore[arg-type]


def silent_for(folder: Path, seconds: float) -> None:
    """Make the lease's file so old."""
    written = time.time() - seconds
    os.utime(folder / "lease.json", (written, written))


@pytest.fixture
def dead_pid() -> int:
    """The id of a process that has ended."""
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


@pytest.fixture
def other_process() -> Iterator[int]:
    """The id of another process that lives."""
    with subprocess.Popen(["sleep", "600"]) as child:
        yield child.pid
        child.kill()


def test_a_second_writer_is_told_run_and_job(tmp_path: Path) -> None:
    lease.acquire(str(tmp_path), holder())
    with pytest.raises(SentenceBeamError, match="run run1 .job job1"):
        lease.acquire(str(tmp_path), holder(run="run2"))
    lease.release(str(tmp_path), "run2")
    with pytest.raises(SentenceBeamError, match="run1"):
        lease.acquire(str(tmp_path), holder(run="run2"))
    lease.release(str(tmp_path), "run1")
    lease.acquire(str(tmp_path), holder(run="run2"))


def test_a_dead_writers_lease_is_taken_over(tmp_path: Path, dead_pid: int) -> None:
    lease.acquire(str(tmp_path), holder(pid=dead_pid, process_start=1))
    lease.acquire(str(tmp_path), holder(run="run2"))
    assert json.loads((tmp_path / "lease.json").read_bytes())["run"] == "run2"


def test_a_process_that_nobody_has_counted_yet_is_dead(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "600"])
    lease.acquire(str(tmp_path), holder(pid=child.pid, process_start=process.start_of(child.pid)))
    with pytest.raises(SentenceBeamError, match="run1"):
        lease.check(str(tmp_path))
    child.kill()
    while process.start_of(child.pid) is not None:
        time.sleep(0.001)
    lease.check(str(tmp_path))
    child.wait()


def test_a_later_process_of_the_same_id_is_not_the_writer(tmp_path: Path, other_process: int) -> None:
    start = process.start_of(other_process)
    assert start
    lease.acquire(str(tmp_path), holder(pid=other_process, process_start=start))
    with pytest.raises(SentenceBeamError, match="is being written by run run1"):
        lease.acquire(str(tmp_path), holder(run="run2"))
    lease.release(str(tmp_path), "run1")
    lease.acquire(str(tmp_path), holder(pid=other_process, process_start=start - 1))
    lease.acquire(str(tmp_path), holder(run="run2"))


ELSEWHERE = {
    "a container of this machine": {"pid_namespace": "pid:[1]"},
    "a container of another machine, or this one before it was started again": {"boot": "0-0"},
    "another host": {"host": "elsewhere", "boot": "0-0"},
    "an engine": {"pid": None},
    "a system that hides what it is": {"boot": "", "pid_namespace": ""},
}


@pytest.mark.parametrize("where", ELSEWHERE)
def test_a_writer_elsewhere_is_trusted_for_ten_minutes(tmp_path: Path, dead_pid: int, where: str) -> None:
    lease.acquire(str(tmp_path), replace(holder(pid=dead_pid, process_start=1), **ELSEWHERE[where]))
    silent_for(tmp_path, 590)
    with pytest.raises(SentenceBeamError, match="is being written by run run1"):
        lease.acquire(str(tmp_path), holder(run="run2"))
    silent_for(tmp_path, 610)
    lease.acquire(str(tmp_path), holder(run="run2"))
    assert [path.name for path in tmp_path.iterdir() if ".tmp-" in path.name] == []


@pytest.mark.parametrize("ahead", [-3600, 3600])
def test_clocks_of_two_hosts_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    lease.acquire(str(tmp_path), holder(host="elsewhere", boot="0-0"))
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + ahead)
    with pytest.raises(SentenceBeamError, match="is being written by run run1"):
        lease.acquire(str(tmp_path), holder(run="run2"))
    monkeypatch.undo()
    lease.release(str(tmp_path), "run1")
    lease.acquire(str(tmp_path), holder(host="elsewhere", boot="0-0", renewed=clock() + ahead))
    silent_for(tmp_path, 610)
    lease.acquire(str(tmp_path), holder(run="run2"))


def test_the_lease_of_an_earlier_version_is_read(tmp_path: Path, dead_pid: int) -> None:
    def write(**values: object) -> None:
        old = {name: value for name, value in asdict(holder(**values)).items() if name in OLD_FIELDS}
        (tmp_path / "lease.json").write_text(json.dumps(old))

    write()
    with pytest.raises(SentenceBeamError, match="run run1 .job job1"):
        lease.check(str(tmp_path))
    lease.renew(str(tmp_path), "run1")
    assert lease.holds(str(tmp_path), "run1")
    write(pid=dead_pid)
    lease.check(str(tmp_path))
    write(host="elsewhere")
    silent_for(tmp_path, 610)
    lease.check(str(tmp_path))


def test_the_lease_of_a_later_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "lease.json").write_text(json.dumps({**asdict(holder()), "more": 1}))
    with pytest.raises(SentenceBeamError, match="run run1"):
        lease.check(str(tmp_path))


@pytest.mark.parametrize("content", [b'{"run": "ru', b"[]", b"3", b'{"run": "r"}', b""])
def test_a_lease_cut_short_is_nobodys(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lease.json").write_bytes(content)
    lease.acquire(str(tmp_path), holder(run="run2"))


def test_renewal_keeps_a_lease_alive_and_never_takes_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0)
    lease.acquire(str(tmp_path), holder(pid=None, host="x", boot="0-0"))
    silent_for(tmp_path, 610)
    lease.Renewal(str(tmp_path), "other", leased=False)()
    assert not lease.is_alive(str(tmp_path), "run1")
    lease.Renewal(str(tmp_path), "run1", leased=True)()
    assert lease.is_alive(str(tmp_path), "run1")
    with pytest.raises(SentenceBeamError, match="run1"):
        lease.check(str(tmp_path))


def test_a_writer_that_lost_its_lease_is_told_at_the_next_renewal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0)
    lease.acquire(str(tmp_path), holder(run=run_name(1)))
    renewal = lease.Renewal(str(tmp_path), "run1", leased=True)
    with pytest.raises(SentenceBeamError, match="the lease was taken from this run"):
        renewal()
    lease.release(str(tmp_path), run_name(1))
    with pytest.raises(SentenceBeamError, match="the lease was taken from this run"):
        renewal()
    lease.Renewal(str(tmp_path), "run1", leased=False)()
