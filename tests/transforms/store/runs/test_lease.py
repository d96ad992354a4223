"""The lease: who may write, when it may be taken over, and what a writer does that lost it.

Covers transforms/store/runs/lease_file.py.
"""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from helpers import fake_storage
from helpers.clock import Clock
from helpers.snapshots import run_name

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store.runs import lease, lease_file, writer_process
from sentence_beam.transforms.store.runs.run_result import Result, record_result

OLD_FIELDS = ("run", "host", "pid", "runner", "job", "renewed")


def holder(**values: object) -> lease.Lease:
    """A lease of this very process."""
    return replace(lease.Lease.from_this_process("run1", "FnApiRunner", "job1", True), **values)  # type: ignore[arg-type]


def tell_writes(patch: pytest.MonkeyPatch, written: threading.Event) -> None:
    """Set the event after each conditional write."""

    def replace_if(call: Callable[..., object], *given: object) -> object:
        found = call(*given)
        written.set()
        return found

    fake_storage.replace_call(patch, "replace_if", replace_if)


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


def test_a_lease_that_could_not_be_given_back_closes_the_store_to_nobody_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other_process: int
) -> None:
    root = str(tmp_path)
    lease.acquire(root, holder())
    fake_storage.refuse(monkeypatch, "delete_if", OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        lease.release(root, "run1")
    monkeypatch.undo()
    lease.acquire(root, holder(run="run2"))
    with pytest.raises(SentenceBeamError, match="run2"):
        lease.acquire(root, holder(run="run3"))
    lease.release(root, "run2")
    lease.acquire(
        root,
        holder(
            run="run2", pid=other_process, process_start=writer_process.read_start(other_process)
        ),
    )
    with pytest.raises(SentenceBeamError, match="run2"):
        lease.acquire(root, holder(run="run3"))


def test_a_dead_writers_lease_is_taken_over(tmp_path: Path, dead_pid: int) -> None:
    lease.acquire(str(tmp_path), holder(pid=dead_pid, process_start=1))
    lease.acquire(str(tmp_path), holder(run="run2"))
    assert json.loads((tmp_path / "lease.json").read_bytes())["run"] == "run2"


def test_a_process_that_nobody_has_counted_yet_is_dead(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "600"])
    lease.acquire(
        str(tmp_path), holder(pid=child.pid, process_start=writer_process.read_start(child.pid))
    )
    with pytest.raises(SentenceBeamError, match="run1"):
        lease.check(str(tmp_path))
    child.kill()
    while writer_process.read_start(child.pid) is not None:
        time.sleep(0.001)
    lease.check(str(tmp_path))
    child.wait()


def test_a_later_process_of_the_same_id_is_not_the_writer(
    tmp_path: Path, other_process: int
) -> None:
    start = writer_process.read_start(other_process)
    assert start
    lease.acquire(str(tmp_path), holder(pid=other_process, process_start=start))
    with pytest.raises(SentenceBeamError, match="is being written by run run1"):
        lease.acquire(str(tmp_path), holder(run="run2"))
    lease.release(str(tmp_path), "run1")
    lease.acquire(str(tmp_path), holder(pid=other_process, process_start=start - 1))
    lease.acquire(str(tmp_path), holder(run="run2"))


ELSEWHERE = {
    "a container of this machine": {"pid_namespace": "pid:[1]"},
    "a container of any machine, or a machine without an id": {"boot": "0-0", "machine": ""},
    "another machine of this name": {"boot": "0-0", "machine": "another"},
    "a copy of this machine by another name": {"host": "elsewhere", "boot": "0-0"},
    "a system that hides what it is": {"boot": "", "pid_namespace": ""},
}


@pytest.mark.parametrize("where", ELSEWHERE)
def test_a_writer_elsewhere_is_trusted_for_ten_minutes(
    tmp_path: Path, dead_pid: int, where: str
) -> None:
    lease.acquire(str(tmp_path), replace(holder(pid=dead_pid, process_start=1), **ELSEWHERE[where]))
    silent_for(tmp_path, 590)
    with pytest.raises(SentenceBeamError, match="is being written by run run1"):
        lease.acquire(str(tmp_path), holder(run="run2"))
    silent_for(tmp_path, 610)
    lease.acquire(str(tmp_path), holder(run="run2"))
    assert [path.name for path in tmp_path.iterdir() if ".tmp-" in path.name] == []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with what this machine says of itself; it has one network card."""
    here = tmp_path / "machine"
    monkeypatch.setattr(writer_process, "PROC", here / "proc")
    monkeypatch.setattr(writer_process, "MACHINE_ID", here / "machine-id")
    monkeypatch.setattr(writer_process, "NETWORK", here / "net")
    for folder in ("net/eth0/device", "net/veth7", "proc/self/ns", "proc/sys/kernel/random"):
        (here / folder).mkdir(parents=True)
    (here / "net/eth0/address").write_text("52:54:00:12:34:56\n")
    (here / "proc/self/ns/pid").symlink_to(writer_process.WHOLE_MACHINE)
    (here / "machine-id").write_text("0123456789abcdef" * 2 + "\n")
    start_again(here, 1)
    return here


def start_again(machine: Path, boot: int) -> None:
    """Give the machine another boot, and a container's card another address."""
    (machine / "proc/sys/kernel/random/boot_id").write_text(f"{boot}-0\n")
    (machine / "net/veth7/address").write_text(f"76:e0:12:8d:e5:{boot}\n")


def test_a_machine_that_was_started_again_has_no_writer_left(tmp_path: Path, machine: Path) -> None:
    lease.acquire(str(tmp_path), holder())
    with pytest.raises(SentenceBeamError, match="is being written by run run1"):
        lease.check(str(tmp_path))
    start_again(machine, 2)
    assert not lease.is_alive(str(tmp_path), "run1")
    lease.acquire(str(tmp_path), holder(run="run2"))


DOUBTS = {
    "an image without an id": lambda here: (here / "machine-id").write_text(""),
    "an image that was never started": lambda here: (here / "machine-id").write_text(
        "uninitialized"
    ),
    "no file": lambda here: (here / "machine-id").unlink(),
    "a container with the id of its image": lambda here: contained(here),
}


def contained(machine: Path) -> None:
    """Give the machine the process ids of a container."""
    (machine / "proc/self/ns/pid").unlink()
    (machine / "proc/self/ns/pid").symlink_to("pid:[4026532300]")


@pytest.mark.parametrize("doubt", DOUBTS)
def test_a_machine_that_cannot_be_known_again_is_waited_for(
    tmp_path: Path, machine: Path, doubt: str
) -> None:
    DOUBTS[doubt](machine)
    lease.acquire(str(tmp_path), holder())
    start_again(machine, 2)
    with pytest.raises(SentenceBeamError, match="is being written by run run1"):
        lease.check(str(tmp_path))


def test_a_copy_of_a_machine_is_another_machine(tmp_path: Path, machine: Path) -> None:
    lease.acquire(str(tmp_path), holder())
    start_again(machine, 2)
    (machine / "net/eth0/address").write_text("52:54:00:12:34:57\n")
    with pytest.raises(SentenceBeamError, match="is being written by run run1"):
        lease.check(str(tmp_path))


@pytest.mark.parametrize("ahead", [-3600, 3600])
def test_clocks_of_two_hosts_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
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
        old = {
            name: value for name, value in asdict(holder(**values)).items() if name in OLD_FIELDS
        }
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
def test_a_lease_cut_short_is_nobodys(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_file, "WRITING_SECONDS", 0)
    (tmp_path / "lease.json").write_bytes(content)
    lease.acquire(str(tmp_path), holder(run="run2"))


def test_renewal_keeps_a_lease_alive_and_never_takes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0)
    lease.acquire(str(tmp_path), holder(host="x", boot="0-0"))
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


def test_a_job_that_is_done_again_after_its_commit_has_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0)
    record_result(str(tmp_path), Result("run1", "committed", 0, "", "", 0.0))
    lease.Renewal(str(tmp_path), "run1", leased=True)()
    record_result(str(tmp_path), Result("run2", "failed", 3, "", "", 0.0))
    with pytest.raises(SentenceBeamError, match="the lease was taken from this run"):
        lease.Renewal(str(tmp_path), "run2", leased=True)()


def test_a_lease_that_is_read_while_it_is_written_in_place_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(9))

    def half(call: Callable[[str], object], path: str) -> object:
        if next(times) % 3 == 0:
            return b"", "1"
        return call(path)

    monkeypatch.setattr(lease, "RENEW_SECONDS", 0)
    monkeypatch.setattr(lease_file, "WRITING_SECONDS", 0)
    lease.acquire(str(tmp_path), holder(pid=None))
    fake_storage.replace_call(monkeypatch, "read_versioned", half)
    lease.Renewal(str(tmp_path), "run1", leased=True)()
    times = iter(range(9))
    assert lease.holds(str(tmp_path), "run1")


# seconds of silence after which a job's lease is free, and those after which it is not yet
STATES = {
    lease.JobState.ENDED: (0, None),
    lease.JobState.UNLISTED: (610, 590),
    lease.JobState.UNKNOWN: (6 * 3600 + 10, 6 * 3600 - 10),
    lease.JobState.RUNNING: (None, 48 * 3600),
}


@pytest.mark.parametrize("state", STATES)
def test_a_job_on_an_engine_holds_its_lease_as_long_as_the_engine_has_it(
    tmp_path: Path, state: lease.JobState
) -> None:
    free, held = STATES[state]
    lease.acquire(str(tmp_path), holder(pid=None))
    if held is not None:
        silent_for(tmp_path, held)
        with pytest.raises(SentenceBeamError, match="until the engine says that it ended"):
            lease.acquire(str(tmp_path), holder(run="run2"), lambda _: state)
    if free is not None:
        silent_for(tmp_path, free)
        lease.acquire(str(tmp_path), holder(run="run2"), lambda _: state)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of this process."""
    clock = Clock()
    monkeypatch.setattr(lease, "time", clock)
    monkeypatch.setattr(lease_file, "time", clock)
    return clock


def test_two_hundred_processes_ask_for_the_lease_once_a_second_at_most(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = fake_storage.note(monkeypatch, "read_versioned", "replace_if")
    lease.acquire(str(tmp_path), holder(pid=None))
    processes = [lease.Looks(str(tmp_path), "run1") for _ in range(200)]
    silent = []
    for second in range(480 + 960):
        clock.now += 1
        if second == 480:  # by now each has found out that it is not alone
            requests.clear()
        for looks in processes:
            looks.look_if_due()
        silent.append(clock.now - json.loads((tmp_path / "lease.json").read_bytes())["renewed"])
    assert max(silent) < lease.STALE_SECONDS / 5
    assert len(requests) / 960 <= 1
    assert [name for name, _ in requests].count("replace_if") <= 960 / 30


@pytest.mark.parametrize("ahead", [-20, 20])
def test_what_a_host_with_another_clock_renewed_just_now_is_not_written_again(
    tmp_path: Path, ahead: float
) -> None:
    lease.acquire(str(tmp_path), holder(pid=None, renewed=time.time() + ahead))
    before = (tmp_path / "lease.json").read_bytes()
    assert lease.renew(str(tmp_path), "run1") is lease.Renewed.BY_OTHERS
    assert (tmp_path / "lease.json").read_bytes() == before


def test_many_short_steps_of_a_process_keep_the_lease_alive(tmp_path: Path, clock: Clock) -> None:
    lease.acquire(str(tmp_path), holder(pid=None))
    silent = []
    for _ in range(100):
        with lease.kept_alive(str(tmp_path), "run1"):
            clock.now += 20
        silent.append(clock.now - json.loads((tmp_path / "lease.json").read_bytes())["renewed"])
    assert max(silent) <= 2 * lease.RENEW_SECONDS


def test_one_long_step_keeps_the_lease_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = threading.Event()
    lease.acquire(str(tmp_path), holder(pid=None))
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
    tell_writes(monkeypatch, written)
    with lease.kept_alive(str(tmp_path), "run1"):
        for _ in range(3):
            written.clear()
            assert written.wait(60)


def test_steps_within_a_step_share_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = threading.Event()
    lease.acquire(str(tmp_path), holder(pid=None))
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
    tell_writes(monkeypatch, written)
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def count(thread: threading.Thread) -> None:
        if thread.name.endswith("(_look_until)"):
            started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", count)
    with lease.kept_alive(str(tmp_path), "run1"):
        for _ in range(64):
            with lease.kept_alive(str(tmp_path), "run1"):
                pass
        written.clear()
        assert written.wait(60)  # after the last of them, too
    assert len(started) == 1
    assert not started[0].is_alive()


def test_steps_side_by_side_in_a_process_look_at_the_lease_as_one_does(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease.acquire(str(tmp_path), holder(pid=None))
    looked = fake_storage.note(monkeypatch, "read_versioned")
    steps = [lease.Renewal(str(tmp_path), "run1", leased=True) for _ in range(8)]
    for _ in range(600):
        clock.now += 1
        for step in steps:
            step()
        with lease.kept_alive(str(tmp_path), "run1"):
            pass
    # a look reads it, and so does the writing
    assert len(looked) <= 2 * (1 + 600 / lease.RENEW_SECONDS)


def test_work_goes_on_where_the_storage_refuses_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0)
    lease.acquire(str(tmp_path), holder(pid=None))
    renewal = lease.Renewal(str(tmp_path), "run1", leased=True)
    fake_storage.refuse(monkeypatch, "replace_if", OSError("429 rate limit exceeded"))
    renewal()
    monkeypatch.undo()
    renewal()
    assert lease.is_alive(str(tmp_path), "run1")


def test_work_does_not_wait_for_a_storage_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0)
    monkeypatch.setattr(lease, "ANSWER_SECONDS", 0.01)
    fake_storage.meet(monkeypatch, "read_versioned", lambda path: answer.wait(60))
    renewal = lease.Renewal(str(tmp_path), "run1", leased=True)
    renewal()
    answer.set()
    monkeypatch.setattr(lease, "ANSWER_SECONDS", 60)
    with pytest.raises(SentenceBeamError, match="the lease was taken from this run"):
        renewal()


def test_the_writer_is_the_run_of_the_lease(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert (lease.writer(root), lease.holds(root, "run1")) == (None, False)
    lease.acquire(root, holder())
    assert lease.writer(root) == "run1"
    assert (lease.holds(root, "run1"), lease.holds(root, "run2")) == (True, False)


@pytest.mark.parametrize(
    ("on_engine", "silence", "alive"),
    [
        (False, 0, True),
        (False, lease.STALE_SECONDS - 60, True),
        (False, lease.STALE_SECONDS + 60, False),
        (True, lease.STALE_SECONDS + 60, True),
        (True, lease.ENGINE_STALE_SECONDS + 60, False),
    ],
)
def test_a_run_is_alive_if_it_holds_the_lease_and_renewed_it_lately(
    tmp_path: Path, on_engine: bool, silence: int, alive: bool
) -> None:
    root = str(tmp_path)
    assert not lease.is_alive(root, "run1")
    held = lease.Lease.from_this_process("run1", "FlinkRunner", "job1", not on_engine)
    lease.acquire(root, held)
    silent_for(tmp_path, silence)
    assert lease.is_alive(root, "run1") == alive
    assert not lease.is_alive(root, "run2")


def test_a_run_whose_process_ended_is_not_alive(tmp_path: Path, dead_pid: int) -> None:
    lease.acquire(str(tmp_path), holder(pid=dead_pid, process_start=1))
    assert not lease.is_alive(str(tmp_path), "run1")


@pytest.mark.parametrize(
    ("in_process", "who", "until"),
    [
        (True, "process {pid} on {host}", "10 minutes after its last sign of life"),
        (False, "submitted from {host}", "until the engine says that it ended, or 6 hours"),
    ],
)
def test_who_waits_for_a_writer_is_told_how_long(
    tmp_path: Path, in_process: bool, who: str, until: str
) -> None:
    held = lease.Lease.from_this_process("run1", "FlinkRunner", "job1", in_process)
    lease.acquire(str(tmp_path), held)
    with pytest.raises(SentenceBeamError) as caught:
        lease.check(str(tmp_path))
    said = str(caught.value)
    assert said.startswith(f"{tmp_path} is being written by run run1 (job job1, FlinkRunner, ")
    assert who.format(pid=held.pid, host=held.host) in said
    assert until in said


def test_a_step_that_lost_the_lease_names_the_store(tmp_path: Path) -> None:
    looks = lease.get_looks(str(tmp_path), "run1")
    looks.is_lost = True
    lease.Renewal(str(tmp_path), "run1", leased=False)()
    with pytest.raises(SentenceBeamError) as caught:
        lease.Renewal(str(tmp_path), "run1", leased=True)()
    assert str(caught.value).startswith(f"{tmp_path}: the lease was taken from this run")


def test_an_engine_is_asked_for_the_job_of_the_lease(tmp_path: Path) -> None:
    held = lease.Lease.from_this_process("run1", "FlinkRunner", "job1", False, "engine1")
    lease.acquire(str(tmp_path), held)
    asked: list[lease.Lease] = []

    def ask(of: lease.Lease) -> lease.JobState:
        asked.append(of)
        return lease.JobState.ENDED

    lease.check(str(tmp_path), ask)
    assert asked == [held]
    assert (held.pid, held.engine) == (None, "engine1")


def test_of_two_that_take_the_lease_at_once_one_is_told_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_storage.replace_call(monkeypatch, "replace_if", lambda *_: False)
    with pytest.raises(SentenceBeamError, match="is being written by run run1"):
        lease.acquire(str(tmp_path), holder())
