"""A disk that fails or a process that is killed at any call: the old snapshot or the new one, and the next run heals."""

import errno
import functools
import os
import random
import shutil
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import FORKS, Outcome, Run, in_child
from helpers.corpora import sentences, write_jsonl, write_parquet
from helpers.faulty_disk import ERRORS, WRITING, Disk, die, refuse

from pipelines.cli import main
from transforms.store import lease, open_store
from transforms.store.manifest import read_manifest, snapshots
from transforms.store.verify import faults

pytest.importorskip("faiss")
pytestmark = [pytest.mark.usefixtures("one_model"), pytest.mark.timeout(7200)]
HOW = ("--id-column", "id", "--unit-tokens", "300", "--dtype", "float32", "--max-rejects", "1", "--check-carried", "1")
CODES = ("--precision", "int8", "--index", "Flat")
CHANGING = WRITING | {"delete"}


@dataclass(frozen=True)
class Scene:
    """A command and the folder with inputs and a store that it finds; every case has a copy of it at one place."""

    made: Path
    place: Path
    command: tuple[str, ...]

    def begin(self) -> None:
        """Put everything in place."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.made, self.place)

    @property
    def store(self) -> Path:
        return self.place / "store"

    @property
    def argv(self) -> list[str]:
        """The command's arguments; `OLD` stands for the run of the first snapshot."""
        first = min(snapshots(str(self.made / "store")), default="")
        return [argument.replace("OLD", first) for argument in self.command] + ["--store", str(self.store)]


def texts(folder: Path, night: int) -> None:
    """The inputs of a night: a file that changes, one that stays, one of JSON with a line that is rejected."""
    names = [f"a{n}" for n in range(30)]
    write_parquet(folder / "a.parquet", sentences(30, 10 * night), row_group_size=10, id=names)
    write_parquet(folder / "b.parquet", sentences(20, 500), row_group_size=10, id=[f"b{n}" for n in range(20)])
    write_jsonl(folder / "c.jsonl", [{"id": f"c{n}", "text": f"dog {n} {night}" if n else ""} for n in range(15)])


SCENES = ("first", "file", "content", "index", "vacuum", "rollback")
Scenes = Callable[[str], Scene]


@pytest.fixture(scope="module")
def scene(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Scenes:
    """The scene of a name: a store of two nights, or of none, with the inputs of the next, and a command for it."""
    place = tmp_path_factory.mktemp("scene") / "case"

    def embed(partition: str) -> tuple[str, ...]:
        named = ("--input", f"{place}/in/*", "--model", str(model), "--partition", partition)
        return ("embed", *named, *HOW, *CODES)

    @functools.cache
    def made(nights: int, partition: str) -> Path:
        shutil.rmtree(place, ignore_errors=True)
        for night in range(nights):
            texts(place / "in", night)
            assert main([*embed(partition), "--store", str(place / "store")]) == 0
        texts(place / "in", nights)
        return place.rename(tmp_path_factory.mktemp("made") / "scene")

    others = {
        "index": ("index", "--index", "IVF4,SQ8"),
        "vacuum": ("vacuum", "--keep", "1"),
        "rollback": ("rollback", "OLD"),
    }

    def find(name: str) -> Scene:
        if name == "first":
            return Scene(made(0, "file"), place, embed("file"))
        if name == "content":
            return Scene(made(2, "content"), place, embed("content"))
        return Scene(made(2, "file"), place, others.get(name, embed("file")))

    return find


def content(store: Path) -> tuple[Counter[Any], str | None] | None:
    """The rows of the current snapshot, which is whole, and the kind of its index; None where there is no snapshot."""
    if read_manifest(str(store)) is None:
        return None
    snapshot = open_store(str(store))
    assert list(faults(snapshot.manifest)) == []
    rows = snapshot.dataset().to_table(columns=["id", "row_hash", "norm"]).to_pylist()
    index = snapshot.manifest.data["index"]
    return Counter((row["id"], row["row_hash"], round(row["norm"], 4)) for row in rows), index and index["factory"]


@dataclass
class Trial:
    """What a scene comes to undisturbed, and the cases that are tried over it."""

    scene: Scene
    run: Run

    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scene.begin()
        self.old = content(self.scene.store)
        with Disk(self.scene.place).used() as disk:
            self.run(*self.scene.argv).ok()
        self.names = disk.calls
        self.calls = [call.split()[0] for call in disk.calls]
        self.new = content(self.scene.store)

    def check(self, succeeded: bool) -> None:
        """The store is what it was, or what it was to become; the same command again makes it so."""
        found = content(self.scene.store)
        assert found == self.new if succeeded else found in (self.old, self.new)
        standing = self.scene.store / "lease.json"
        if standing.exists():  # in a process that goes on; other ones are seen to be dead
            past = time.time() - lease.STALE_SECONDS - 60
            os.utime(standing, (past, past))
        self.run(*self.scene.argv).ok()
        assert content(self.scene.store) == self.new


def ended(outcome: Outcome) -> bool:
    """Whether a command succeeded; where it did not, it said so with one line. Beside it, what it could not do besides."""
    lines = [line for line in outcome.err.splitlines() if not line.startswith("ERROR: ")]
    if outcome.status == 0:
        assert all("committed" in line for line in lines)
        return True
    assert len(lines) == 1
    assert lines[0].startswith("sentence-beam ")
    return False


def refused(trial: Trial, first: int, code: int, lasting: bool) -> str:
    """A case with an error from one call on; how it ended."""
    trial.scene.begin()
    disk = Disk(trial.scene.place, first, ERRORS[code], refuse(code), lasting)
    with disk.used():
        outcome = trial.run(*trial.scene.argv)
    try:
        succeeded = ended(outcome)
        trial.check(succeeded)
    except Exception:  # the other cases are tried too
        where = f"{errno.errorcode[code]} at {disk.calls[first]}{' and from then on' if lasting else ''}"
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


def test_a_disk_that_fails_now_and_then(run: Run, scene: Scenes, tell: Callable[[str], None]) -> None:
    tell(f"disk, file: {try_errors(Trial(scene('file'), run), 3)}")


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
def test_a_disk_that_fails_at_any_call(
    run: Run, scene: Scenes, tell: Callable[[str], None], name: str, size: float
) -> None:
    tell(f"disk, {name}: {try_errors(Trial(scene(name), run), 100 * size)}")


def test_what_fails_after_the_commit_fails_no_run(run: Run, scene: Scenes) -> None:
    trial = Trial(scene("file"), run)
    trial.scene.begin()
    done = next(at for at, name in enumerate(trial.names) if name.startswith("rename store/manifest.json.tmp-")) + 1
    disk = Disk(trial.scene.place, done, frozenset({"delete"}), refuse(errno.EIO), lasting=True)
    with disk.used():
        run(*trial.scene.argv).ok()
    assert disk.met
    trial.check(succeeded=True)


def killed(place: Path, argv: list[str], first: int) -> None:
    """Run a command until one of its calls, in a process of its own."""
    with Disk(place, first, CHANGING, die).used():
        in_child(argv)


@pytest.fixture
def no_child() -> Iterator[list[Any]]:
    """Children that do not outlive the test."""
    children: list[Any] = []
    yield children
    for child in children:
        child.kill()
        child.join()


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
def test_killed_at_any_write(
    run: Run, scene: Scenes, tell: Callable[[str], None], name: str, size: float, no_child: list[Any]
) -> None:
    trial = Trial(scene(name), run)
    found = [at for at, kind in enumerate(trial.calls) if kind in CHANGING]
    tried: Counter[str] = Counter()
    for at in some(found, 30 * size):
        trial.scene.begin()
        child = FORKS.Process(target=killed, args=(trial.scene.place, trial.scene.argv, at))
        no_child.append(child)
        child.start()
        child.join()
        assert child.exitcode in (0, -signal.SIGKILL)
        tried["ended before" if child.exitcode == 0 else "killed"] += 1
        trial.check(child.exitcode == 0)
    tell(f"kills, {name}: {tried.total()} cases at {len(found)} calls that change something: {dict(tried)}")
