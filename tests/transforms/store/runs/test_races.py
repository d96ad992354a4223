"""Writers at once, round after round: one wins each, and every file that its snapshot names is
there.
"""

import itertools
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from helpers.settled import finish
from helpers.snapshots import begin, night, numbered, write_unit

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.vacuum import Rubbish, find_rubbish, remove
from sentence_beam.transforms.store.verification import faults

LATER = 2 * 86_400.0  # when the work of a run that did not end may go


@pytest.fixture(params=["local", "gs", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store may be made, on each kind of storage with conditions."""
    return (
        str(tmp_path)
        if request.param == "local"
        else f"{request.getfixturevalue(request.param)}/store"
    )


ROUNDS = [2, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]


def at_once(*acts: Callable[[], str]) -> list[str]:
    """What came of each act, all of them begun together."""
    start, came = threading.Barrier(len(acts)), [""] * len(acts)

    def act(number: int) -> None:
        start.wait()
        try:
            came[number] = acts[number]()
        except (SentenceBeamError, OSError) as error:
            came[number] = str(error)

    threads = [threading.Thread(target=act, args=(number,)) for number in range(len(acts))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert all("\n" not in line for line in came)
    return came


def write(run: Run, rows: list[dict[str, str]]) -> str:
    """Write units and commit them; what the result says. A run that is to have the lease takes it
    first.
    """
    if run.leased:
        lease.acquire(run.root, lease.Lease.from_this_process(run.id, "FnApiRunner", run.id, True))
    units = [
        write_unit(run.root, place, list(unit.items()), run.id) for place, unit in enumerate(rows)
    ]
    return commit(run, units)


def commit(run: Run, units: list[UnitRecord]) -> str:
    """Commit units; what the result says."""
    return finish(run, units, []).message


def clear(rubbish: Rubbish) -> str:
    """Remove what vacuum found."""
    remove(rubbish)
    return "removed"


def check_whole(root: str, run: str) -> None:
    """The snapshot is that of the run, and nothing of it is missing or damaged."""
    current = open_store(root).manifest
    assert current.run == run
    assert list(faults(current)) == []


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("leased", [True, False])
def test_of_two_writers_one_wins(root: str, rounds: int, leased: bool) -> None:
    for number in range(rounds):
        runs = [begin(root, 2 * number + i, 2, leased=leased) for i in range(2)]
        own = ("a", "b") if number % 2 else ("same", "same")
        rows = [[numbered(0, 5, f"{number} {text}"), numbered(5, 9, str(number))] for text in own]
        came = at_once(*(partial(write, *pair) for pair in zip(runs, rows, strict=True)))
        assert came.count("committed") == 1, came
        (winner,) = (run for run, line in zip(runs, came, strict=True) if line == "committed")
        (lost,) = (line for line in came if line != "committed")
        assert any(
            said in lost for said in ("is being written by run", "committed while this run worked")
        ), lost
        check_whole(root, winner.id)
        assert not lease.holds(root, runs[0].id)
        assert not lease.holds(root, runs[1].id)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_of_a_run_that_stood_still_and_vacuum_one_wins(root: str, rounds: int) -> None:
    """The run takes up a shard that no snapshot names; both have passed the lease, or never asked
    for it.
    """
    names = itertools.count()
    for number in range(rounds):
        old = numbered(0, 5, f"round {number}")
        night(root, next(names), old)
        night(root, next(names), numbered(0, 5, "other"))
        run = begin(root, next(names), 1)
        rubbish = find_rubbish(root, 1, 0.0, time.time() + LATER)
        units = [write_unit(root, 0, list(old.items()))]
        assert units[0].path in {entry.path.removeprefix(f"{root}/") for entry in rubbish.files}
        committing, removing = at_once(partial(commit, run, units), partial(clear, rubbish))
        assert (committing == "committed") == ("a run committed meanwhile" in removing), (
            committing,
            removing,
        )
        current = read_manifest(root)
        assert current is not None
        check_whole(root, run.id if committing == "committed" else run.previous or "")


def test_readers_never_see_half_a_night(tmp_path: Path) -> None:
    """Whatever a reader opens is one whole night: rows as many as its number says."""
    root, stop, seen, wrong = str(tmp_path), threading.Event(), set(), []

    def commit(number: int) -> None:
        text = f"night {number}"
        night(root, number, numbered(0, 5, text), numbered(5, 9 + number, text))

    def read() -> None:
        while not stop.is_set():
            try:
                opened = open_store(root)
                rows = opened.dataset().to_table(columns=["id", "row_hash"]).num_rows
                number = int(opened.manifest.run[9:15])
                if rows != 9 + number or list(faults(opened.manifest)):
                    wrong.append((number, rows))
                seen.add(number)
            except Exception as error:
                wrong.append(error)

    commit(0)
    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(1, 20):
        commit(number)
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert len(seen) > 2
    assert len(open_store(root)) == 28
