"""A disk that fails or a process that is killed at any call: the old snapshot or the new one, and
the next run heals.
"""

import contextlib
import errno
import os
import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import Forked, Outcome, Run, in_child
from helpers.faulty_disk import ERRORS, WRITING, Act, Disk, die, freeze, refuse
from helpers.scenes import FILE, KINDS, Content, Scene, maker

from sentence_beam.transforms.store.runs import lease

pytest.importorskip("faiss")
pytestmark = [
    pytest.mark.usefixtures("one_model", "every_shard_checked"),
    pytest.mark.timeout(7200),
]
CHANGING = WRITING | {"delete"}
# for the short form, beside `file`: a run, a database and a folder of files
CHEAP = ("append", "push", "dedup")
FROZEN = ("embed", "recalibrate", "index")
BEGINS_TO_COUNT = ("rename store/manifest.json.tmp-", f"rename {FILE}.tmp-")
Trials = Callable[[str], "Trial"]


@dataclass
class Trial:
    """What a scene comes to undisturbed, and the cases that are tried over it."""

    scene: Scene
    run: Run
    old: Content
    new: Content
    names: list[str]  # of the calls of the command, undisturbed
    wrong: list[str] = field(default_factory=list)

    @property
    def calls(self) -> list[str]:
        """The kinds of the calls."""
        return [name.split()[0] for name in self.names]

    @property
    def changing(self) -> list[int]:
        """The calls that change something."""
        return [at for at, kind in enumerate(self.calls) if kind in CHANGING]

    @property
    def telling(self) -> int | str:
        """The call by which the command's work begins to count; one in the middle if a database
        makes it.
        """
        there = (
            begin for begin in BEGINS_TO_COUNT if any(call.startswith(begin) for call in self.names)
        )
        return next(there, len(self.names) // 2)

    @property
    def committed(self) -> int:
        """The call after the one that commits."""
        return next(
            at for at, name in enumerate(self.names, 1) if name.startswith(BEGINS_TO_COUNT[0])
        )

    def go(self) -> Outcome:
        """Run the command."""
        with self.scene.used():
            return self.run(*self.scene.argv)

    def check(self, succeeded: bool | None) -> None:
        """The store is what it was to become if the command succeeded, what it was if it failed,
        and one of both if it was killed (None); the same command again makes it what it was to
        become."""
        found, wanted = (
            self.scene.content(),
            {True: [self.new], False: [self.old], None: [self.old, self.new]},
        )
        if self.scene.kind.table and not succeeded:
            assert found[0] == self.old[0]
        else:
            assert found in wanted[succeeded]
        self.free()
        self.go().ok()
        assert self.scene.content() == self.new

    def free(self) -> None:
        """Have the lease be stale that a process of this machine left which is not dead."""
        standing = self.scene.store / "lease.json"
        if standing.exists():
            past = time.time() - lease.STALE_SECONDS - 60
            os.utime(standing, (past, past))


@pytest.fixture(scope="module")
def scene(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Scene]:
    """The scene of a name."""
    return maker(model, tmp_path_factory.mktemp("scenes"))


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, tuple[Content, Content, list[str]]]:
    """What was and what came of each scene, and the names of all calls."""
    return {}


@pytest.fixture
def trial(
    run: Run,
    scene: Callable[[str], Scene],
    undisturbed: dict[str, tuple[Content, Content, list[str]]],
) -> Trials:
    """The trial over the scene of a name."""

    def find(name: str) -> Trial:
        found = scene(name)
        if name not in undisturbed:
            found.begin()
            with found.used():
                run(*found.argv).ok()  # a process keeps parts that it has read: count the next
            found.begin()
            old = found.content()
            with Disk(found.place).used() as disk, found.used():
                run(*found.argv).ok()
            undisturbed[name] = old, found.content(), disk.calls
        return Trial(found, run, *undisturbed[name])

    return find


def ended(outcome: Outcome) -> bool:
    """Whether a command succeeded; where it did not, it said so with one line. Beside it, what it
    could not do besides.
    """
    lines = [line for line in outcome.err.splitlines() if not line.startswith("ERROR: ")]
    if outcome.status == 0:
        assert all("committed" in line or "cannot be removed" in line for line in lines)
        return True
    assert len(lines) == 1
    assert lines[0].startswith("sentence-beam ")
    return False


def refused(
    trial: Trial, first: int | str, code: int, lasting: bool, kinds: frozenset[str] | None = None
) -> str:
    """A case with an error from one call on, of those kinds that can have it if none are named; how
    it ended.
    """
    trial.scene.begin()
    disk = Disk(trial.scene.place, first, kinds or ERRORS[code], refuse(code), lasting)
    with disk.used():
        outcome = trial.go()
    try:
        succeeded = ended(outcome)
        trial.check(succeeded)
    except Exception:  # the other cases are tried too
        at = first if isinstance(first, str) else trial.names[first]
        where = f"{errno.errorcode[code]} at {at}{' and from then on' if lasting else ''}"
        trial.wrong.append(f"{where}: {outcome.err}\n{traceback.format_exc()}")
        return "wrong"
    if not disk.met:
        return "met no call"
    return "succeeded" if succeeded else "ended with one line"


def cases(trial: Trial) -> list[tuple[int, int, bool]]:
    """Every call with every error that it can have, for this once and from then on."""
    calls = enumerate(trial.calls)
    return [
        (at, code, lasting)
        for at, kind in calls
        for code, kinds in ERRORS.items()
        if kind in kinds
        for lasting in (False, True)
    ]


def some(found: list[Any], count: float) -> list[Any]:
    """Some of the cases, always the same ones, or all."""
    return random.Random(5).sample(found, min(len(found), int(count)))


def try_errors(trial: Trial, count: float) -> str:
    """Try so many of the cases; a line with how they ended."""
    tried = Counter(refused(trial, *case) for case in some(cases(trial), count))
    assert not trial.wrong, "\n".join(trial.wrong)
    return f"{tried.total()} cases at {len(trial.calls)} calls: {dict(sorted(tried.items()))}"


def test_a_disk_that_fails_now_and_then(trial: Trials, tell: Callable[[str], None]) -> None:
    tell(f"disk, file: {try_errors(trial('file'), 2)}")


@pytest.mark.parametrize(
    "name",
    [
        *CHEAP,
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("recalibrate", "neighbours", "together")
        ),
    ],
)
def test_a_disk_that_is_gone_before_the_work_counts(trial: Trials, name: str) -> None:
    found = trial(name)
    assert refused(found, found.telling, errno.EIO, lasting=True) == "ended with one line", (
        found.wrong
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_disk_that_fails_at_any_call(
    trial: Trials, tell: Callable[[str], None], name: str, size: float
) -> None:
    tell(f"disk, {name}: {try_errors(trial(name), 100 * size)}")


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_disk_that_takes_nothing_any_more_from_any_write_on(
    trial: Trials, tell: Callable[[str], None], name: str, size: float
) -> None:
    found = trial(name)
    some_of_them = some(found.changing, len(found.changing) * size)
    tried = Counter(refused(found, at, errno.EIO, True, CHANGING) for at in some_of_them)
    assert not found.wrong, "\n".join(found.wrong)
    tell(
        f"full from a write on, {name}: {tried.total()} of {len(found.changing)} writes: {dict(sorted(tried.items()))}"
    )


@pytest.mark.slow
def test_what_fails_after_the_commit_fails_no_run(trial: Trials) -> None:
    found = trial("file")
    found.scene.begin()
    disk = Disk(
        found.scene.place, found.committed, frozenset({"delete"}), refuse(errno.EIO), lasting=True
    )
    with disk.used():
        found.go().ok()
    assert disk.met
    found.check(succeeded=True)


@pytest.mark.parametrize(
    "code",
    [
        errno.EIO,
        pytest.param(errno.ENOSPC, marks=pytest.mark.slow),
        pytest.param(errno.EACCES, marks=pytest.mark.slow),
    ],
)
def test_a_run_that_has_committed_is_a_success_whatever_fails_from_then_on(
    trial: Trials, code: int
) -> None:
    found = trial("file")
    found.scene.begin()
    with Disk(
        found.scene.place, found.committed, ERRORS[code], refuse(code), lasting=True
    ).used() as disk:
        outcome = found.go()
    assert disk.met
    assert outcome.status == 0
    assert "committed" in outcome.err
    found.check(succeeded=True)


def test_a_gate_that_fails_on_a_full_disk_says_so(run: Run, scene: Callable[[str], Scene]) -> None:
    found = scene("file")
    found.begin()
    argv = [*found.argv, "--max-rejects", "0"]
    with Disk(found.place).used() as disk:
        run(*argv).failed(3, "1 of 65 rows rejected")
    found.begin()
    last = next(
        at
        for at, name in enumerate(disk.calls)
        if name.startswith("create store/runs/") and "result.json" in name
    )
    with Disk(found.place, last, ERRORS[errno.ENOSPC], refuse(errno.ENOSPC), lasting=True).used():
        run(*argv).failed(3, "1 of 65 rows rejected")


def met_in_child(scene: Scene, first: int, act: Act, err: str) -> None:
    """Run a command up to one of its calls that change something, which meets its fate, in a
    process of its own.
    """
    with Disk(scene.place, first, CHANGING, act).used(), scene.used():
        in_child(scene.argv, err)


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Callable[[Scene, int, Act], Any]]:
    """Start a command in a process that does not outlive the test, whose call meets its fate."""
    children: list[Any] = []

    def start(scene: Scene, first: int, act: Act) -> Any:
        children.append(
            Forked(target=met_in_child, args=(scene, first, act, str(tmp_path / "err")))
        )
        children[-1].start()
        return children[-1]

    yield start
    for process in children:
        process.kill()
        process.join()


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_killed_at_any_write(
    trial: Trials, tell: Callable[[str], None], name: str, size: float, child: Callable[..., Any]
) -> None:
    found = trial(name)
    tried: Counter[str] = Counter()
    for at in some(found.changing, 30 * size):
        found.scene.begin()
        process = child(found.scene, at, die)
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        tried["ended before" if process.exitcode == 0 else "killed"] += 1
        found.check(True if process.exitcode == 0 else None)
    tell(
        f"kills, {name}: {tried.total()} cases at {len(found.changing)} calls that change something: {dict(tried)}"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name, kind in KINDS.items() if kind.command[0] in FROZEN]
)
def test_frozen_at_any_write_while_another_run_commits_and_vacuum_removes_what_it_left(
    trial: Trials,
    tell: Callable[[str], None],
    name: str,
    size: float,
    child: Callable[..., Any],
    tmp_path: Path,
) -> None:
    found = trial(name)
    tried: Counter[str] = Counter()
    for at in some(found.changing, 15 * size):
        found.scene.begin()
        process = child(found.scene, at, freeze)
        if not is_frozen(process):
            tried["ended before"] += 1
            continue
        found.free()
        found.go().ok()
        found.run("vacuum", "--store", found.scene.store, "--keep", 1).ok()
        os.kill(process.pid, signal.SIGCONT)
        process.join()
        said = (tmp_path / "err").read_text()
        where = f"{found.names[at]}: {process.exitcode}, {said}"
        assert found.scene.content() == found.new, where
        assert process.exitcode in (0, 1), where
        assert len(said.splitlines()) == process.exitcode, where
        assert "finished work is kept" not in said, where
        tried["ended with one line" if process.exitcode else "succeeded"] += 1
    tell(
        f"frozen, {name}: {tried.total()} cases at {len(found.changing)} calls that change something: {dict(tried)}"
    )


def is_frozen(process: Any) -> bool:
    """Wait until a process stands still; False if it ends."""
    while process.is_alive():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                return True
        time.sleep(0.01)
    return False
