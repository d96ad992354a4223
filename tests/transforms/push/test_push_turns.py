"""Two pushes at once: the second is refused, or the first stops, and the table is the store's in the end."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.commands import Run
from helpers.nights import space_of
from helpers.pushes import Kept, check, expected, files_of, held_by

from transforms.errors import SentenceBeamError
from transforms.push import open_target, push
from transforms.push.target import State
from transforms.push.turn import Turn
from transforms.store.lease import Lease

BEGUN = State(space_of(), "cosine", {"id": "string"}, None, ("run1",))


class Remembered:
    """What a database remembers, and turns of pushes into it."""

    def __init__(self) -> None:
        self.state: State | None = None

    def turn(self) -> Turn:
        """The turn of one more push, which has looked."""
        turn = Turn("memory:#docs", lambda: self.state, self.keep)
        turn.look()
        return turn

    def keep(self, state: State) -> None:
        """Remember a state."""
        self.state = state


def writer(renewed: float, **of: object) -> Lease:
    """A push of another machine that was seen at a time, or of this one."""
    return replace(Lease.of_this_process("run1", "push", "other", True), renewed=renewed, **of)  # type: ignore[arg-type]


def ended() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


def test_one_push_has_its_turn_until_its_end() -> None:
    database = Remembered()
    first = database.turn()
    first.take(BEGUN)
    with pytest.raises(SentenceBeamError, match=r"--to memory:#docs: another push into it is under way \(process \d+"):
        database.turn()
    first.keep()
    first.end(replace(BEGUN, run="run1", pending=()))
    assert database.state == replace(BEGUN, run="run1", pending=())
    database.turn()


def test_what_another_push_wrote_since_the_look_is_noticed() -> None:
    database = Remembered()
    first, second = database.turn(), database.turn()
    first.take(BEGUN)
    with pytest.raises(SentenceBeamError, match="another push wrote into it meanwhile; push again, one at a time"):
        second.take(BEGUN)
    first.end(BEGUN)


def test_of_two_that_take_it_in_the_same_moment_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    database = Remembered()
    first = database.turn()
    second = database.turn()
    monkeypatch.setattr("transforms.push.turn.time.sleep", lambda _: second._write(taken))
    taken = replace(BEGUN, writer=writer(time.time()))
    with pytest.raises(SentenceBeamError, match="another push wrote into it meanwhile"):
        first.take(BEGUN)
    assert database.state == taken


def test_the_dead_and_the_silent_have_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    database, now = Remembered(), time.time()
    elsewhere = {"host": "other", "boot": "another", "pid_namespace": "another"}
    for one in (writer(now, pid=ended()), writer(now - 700, **elsewhere)):
        database.state = replace(BEGUN, writer=one)
        database.turn()
    database.state = replace(BEGUN, writer=writer(now - 500, **elsewhere))
    with pytest.raises(SentenceBeamError, match=r"under way \(process \d+ on other\); wait for its end, or 10 minutes"):
        database.turn()


def test_a_push_whose_turn_was_taken_stops_before_its_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transforms.push.turn.LOOK_SECONDS", 0)
    database = Remembered()
    first = database.turn()
    first.take(BEGUN)
    monkeypatch.setattr("transforms.push.turn.STALE_SECONDS", 0)
    second = database.turn()
    second.take(BEGUN)
    for step in (first.keep, lambda: first.end(BEGUN)):
        with pytest.raises(SentenceBeamError, match="another push wrote into it meanwhile"):
            step()
    first.give_up()
    second.end(BEGUN)


def test_a_long_push_says_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    database = Remembered()
    turn = database.turn()
    turn.take(BEGUN)
    assert database.state is not None
    first = database.state.writer
    for name in ("LOOK_SECONDS", "RENEW_SECONDS"):
        monkeypatch.setattr(f"transforms.push.turn.{name}", 0)
    turn.keep()
    assert database.state.writer is not None
    assert first is not None
    assert database.state.writer.renewed > first.renewed
    turn.end(BEGUN)


def test_two_pushes_into_lance(store: Kept, quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lance = pytest.importorskip("transforms.push.lance", exc_type=ImportError)
    to, upsert, others = f"lance:{quick}/lance#docs", lance.LanceTarget.upsert, list[str]()
    later = files_of({"i1": "other", "i2": "text 2", "i40": "new"})

    def meanwhile(target: object, rows: pa.RecordBatch) -> None:
        if not others:
            with open_target(to) as second, pytest.raises(SentenceBeamError) as error:
                push(store.manifest, second)
            others.append(str(error.value))
            store.commit_without_index(later)
            monkeypatch.setattr("transforms.push.turn.STALE_SECONDS", 0)  # the first is taken for dead
            monkeypatch.setattr("transforms.push.turn.LOOK_SECONDS", 0)
            with open_target(to) as third:
                push(store.manifest, third)
        upsert(target, rows)

    monkeypatch.setattr(lance.LanceTarget, "upsert", meanwhile)
    with pytest.raises(SentenceBeamError, match="another push wrote into it meanwhile"), open_target(to) as first:
        push(store.manifest, first)
    assert "is under way" in others[0]
    check(held_by(to), expected(later))
    with open_target(to) as again:
        assert push(store.manifest, again).changes.added == 0


def test_two_pushes_into_a_folder_of_qdrant(run: Run, store: Kept, quick: Path) -> None:
    qdrant = pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")
    client = qdrant.QdrantClient(path=str(quick / "qdrant"))
    run("push", "--store", store.root, "--to", f"qdrant:{quick}/qdrant#docs").failed(1, "already accessed by another")
    client.close()
    run("push", "--store", store.root, "--to", f"qdrant:{quick}/qdrant#docs").ok()


def test_two_pushes_into_postgres(run: Run, store: Kept, pgvector: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transforms.push.postgres.WAIT_SECONDS", 0.1)
    with open_target(f"{pgvector}#at_once") as first:
        first.state()
        line = run("push", "--store", store.root, "--to", f"{pgvector}#at_once").failed(1, "another push into it")
    assert line.endswith("is under way; wait for its end")
    run("push", "--store", store.root, "--to", f"{pgvector}#at_once").ok()
