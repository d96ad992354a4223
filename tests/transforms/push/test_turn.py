"""Two pushes at once: the second is refused, or the first stops, and the table is the store's in
the end.
"""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.clock import Clock
from helpers.commands import Run
from helpers.databases import Aliased, Database, MadeUp
from helpers.nights import space_of
from helpers.pushes import Kept, check, expected, files_of, held_by

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.push import open_target, push
from sentence_beam.transforms.push.state import PushRecord, format_note, name_note
from sentence_beam.transforms.push.target import Table
from sentence_beam.transforms.store.runs.lease import Lease

COLUMNS = pa.schema([("id", pa.string())])
TABLE = Table(COLUMNS, space_of(), "cosine")
RECORD = PushRecord("run1", {"id": "string"})
ELSEWHERE = {"host": "other", "boot": "another", "pid_namespace": "another"}


def looked(database: Database) -> MadeUp:
    """One more push, which has looked."""
    target = MadeUp(database)
    target.state()
    return target


def begun(database: Database) -> MadeUp:
    """One more push, which has its turn."""
    target = looked(database)
    target.begin(TABLE, RECORD)
    return target


def writing(database: Database, writer: Lease) -> None:
    """Have the record of a push that goes on in the table."""
    if database.now.notes is None:
        begun(database).finish()
    database.write(
        "notes",
        notes={
            **(database.now.notes or {}),
            name_note("other"): format_note(replace(RECORD, writer=writer)),
        },
    )


def lease(renewed: float, **of: object) -> Lease:
    """A push of this machine that was seen at a time, or of another."""
    return replace(Lease.from_this_process("run1", "push", "other", True), renewed=renewed, **of)  # type: ignore[arg-type]


def ended() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of this process."""
    clock = Clock()
    monkeypatch.setattr("sentence_beam.transforms.push.turn.time", clock)
    return clock


def test_one_push_has_its_turn_until_its_end() -> None:
    database = Aliased()
    first = begun(database)
    with pytest.raises(
        SentenceBeamError,
        match=r"to memory:#docs: another push into it is under way \(process \d+",
    ):
        looked(database)
    first.upsert(pa.record_batch({"id": ["a"]}))
    first.finish()
    state = looked(database).state()
    assert state is not None
    assert list(state.live.values()) == [replace(RECORD, done=True)]


def test_what_another_push_wrote_since_the_look_is_noticed() -> None:
    database = Aliased()
    begun(database).finish()
    first, second = looked(database), looked(database)
    first.begin(TABLE, RECORD)
    for _ in range(2):
        with pytest.raises(
            SentenceBeamError,
            match="another push wrote into it meanwhile; push again, one at a time",
        ):
            second.begin(TABLE, RECORD)
        second.turn.give_up()
    first.finish()


def test_a_table_that_another_push_makes_at_the_same_time_is_left_alone() -> None:
    database = Aliased()
    first, second = looked(database), looked(database)
    first.begin(TABLE, RECORD)
    with pytest.raises(SentenceBeamError, match="another push wrote into it meanwhile"):
        second.begin(TABLE, RECORD)
    first.finish()


def test_the_dead_have_no_turn() -> None:
    database = Aliased()
    writing(database, lease(time.time(), pid=ended()))
    begun(database).finish()


@pytest.mark.parametrize("renewed", [-1e9, 0, 1e9])
def test_a_silent_push_is_watched_by_ones_own_clock(renewed: float, clock: Clock) -> None:
    database = Aliased()
    writing(database, lease(renewed, **ELSEWHERE))
    began = clock.now
    begun(database).finish()
    assert 600 <= clock.now - began < 620


def test_a_push_of_another_machine_that_gives_a_sign_of_life_goes_on(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, began = Aliased(), clock.now
    writing(database, lease(7, **ELSEWHERE))

    def sleep(seconds: float) -> None:
        clock.now += seconds
        if clock.now > began + 60:
            writing(database, lease(8, **ELSEWHERE))

    monkeypatch.setattr(clock, "sleep", sleep)
    with pytest.raises(
        SentenceBeamError,
        match=r"under way \(process \d+ on other\); wait for its end, or 10 minutes",
    ):
        looked(database)
    assert clock.now - began < 70


def test_a_push_of_another_machine_that_ends_is_waited_for(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Aliased()
    writing(database, lease(7, **ELSEWHERE))
    monkeypatch.setattr(
        clock, "sleep", lambda _: database.write("notes", notes=database.versions[-2].notes)
    )
    begun(database).finish()


def test_a_push_of_this_machine_is_not_waited_for(clock: Clock) -> None:
    database = Aliased()
    for renewed in (clock.now, clock.now - 599):
        writing(database, lease(renewed))
        with pytest.raises(SentenceBeamError, match="is under way"):
            looked(database)
        database.write("notes", notes=None)
    writing(database, lease(clock.now - 600))
    began = clock.now
    begun(database).finish()
    assert clock.now == began


def test_a_push_whose_turn_was_taken_stops_before_its_next_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sentence_beam.transforms.push.turn.LOOK_SECONDS", 0)
    database = Aliased()
    first = begun(database)
    monkeypatch.setattr("sentence_beam.transforms.push.turn.STALE_SECONDS", 0)
    second = begun(database)
    for step in (lambda: first.upsert(pa.record_batch({"id": ["a"]})), first.finish):
        with pytest.raises(SentenceBeamError, match="another push wrote into it meanwhile"):
            step()
    first.turn.give_up()
    second.finish()
    assert database.held() == {}


def test_a_long_push_says_that_it_lives(clock: Clock) -> None:
    database = Aliased()
    target = begun(database)
    for _ in range(100):
        clock.now += 50
        target.upsert(pa.record_batch({"id": ["a"]}))
        with pytest.raises(SentenceBeamError, match="is under way"):
            looked(database)
    target.finish()


def test_two_pushes_into_lance(store: Kept, quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lance = pytest.importorskip("sentence_beam.transforms.push.lance", exc_type=ImportError)
    to, upsert, others = f"lance:{quick}/lance#docs", lance.LanceTarget.upsert, list[str]()
    later = files_of({"i1": "other", "i2": "text 2", "i40": "new"})

    def meanwhile(target: object, rows: pa.RecordBatch) -> None:
        if not others:
            with open_target(to) as second, pytest.raises(SentenceBeamError) as error:
                push(lambda: store.manifest, second)
            others.append(str(error.value))
            store.commit_without_index(later)
            # the first is taken for dead
            monkeypatch.setattr("sentence_beam.transforms.push.turn.STALE_SECONDS", 0)
            monkeypatch.setattr("sentence_beam.transforms.push.turn.LOOK_SECONDS", 0)
            with open_target(to) as third:
                push(lambda: store.manifest, third)
        upsert(target, rows)

    monkeypatch.setattr(lance.LanceTarget, "upsert", meanwhile)
    with (
        pytest.raises(SentenceBeamError, match="another push wrote into it meanwhile"),
        open_target(to) as first,
    ):
        push(lambda: store.manifest, first)
    assert "is under way" in others[0]
    check(held_by(to), expected(later))
    with open_target(to) as again:
        assert push(lambda: store.manifest, again).changes.added == 0


def test_two_pushes_into_a_folder_of_qdrant(run: Run, store: Kept, quick: Path) -> None:
    qdrant = pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")
    client = qdrant.QdrantClient(path=str(quick / "qdrant"))
    run("push", "--store", store.root, "--to", f"qdrant:{quick}/qdrant#docs").failed(
        1, "already accessed by another"
    )
    client.close()
    run("push", "--store", store.root, "--to", f"qdrant:{quick}/qdrant#docs").ok()


def test_two_pushes_into_postgres(
    run: Run, store: Kept, pgvector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sentence_beam.transforms.push.postgres.WAIT_SECONDS", 0.1)
    to = f"{pgvector}#at_once"
    with open_target(to) as first:
        first.state()
        line = run("push", "--store", store.root, "--to", to).failed(1, "another push into it")
    assert line.endswith("is under way; wait for its end")
    run("push", "--store", store.root, "--to", to).ok()
    with open_target(to) as first:
        first.state()
        run("push", "--store", store.root, "--to", f"{pgvector}#public.at_once").failed(
            1, "another push into it"
        )
