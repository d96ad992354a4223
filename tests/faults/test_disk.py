"""A disk that fails or a process that is killed at any call: the old snapshot or the new one, and
the next run heals.
"""

import contextlib
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers import snapshots as snapshot_forms
from helpers.calibrations import fit_on
from helpers.commands import Forked, Outcome, Run, in_child
from helpers.corpora import sentences, write_jsonl, write_parquet
from helpers.faulty_disk import ERRORS, WRITING, Act, Disk, die, freeze, refuse

from sentence_beam.pipelines.cli import main
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.manifest import read_manifest, snapshots
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.verification import faults

HOW = (
    "--id-column",
    "id",
    "--unit-tokens",
    "300",
    "--dtype",
    "float32",
    "--max-rejects",
    "1",
)
CODES = ("--precision", "int8", "--index", "Flat")
ALL = ("embed", "--input", "PLACE/in/*")
FILE = "found.parquet"
Content = tuple[Any, Any]  # of the store, and of what is written beside it


@dataclass(frozen=True)
class Kind:
    """What is tried: a command over a store of some nights, all with these options.

    `documents` says that rows have several sentences, `small` how many small files there are,
    `in_parts` that tables have many parts. A `table` of a database may be half written by a
    command that fails.
    """

    command: tuple[str, ...] = ALL
    nights: int = 2
    options: tuple[str, ...] = ()
    documents: bool = False
    small: int = 0
    in_parts: bool = False
    table: bool = False

    @property
    def store(self) -> "Kind":
        """What decides the store that the command finds."""
        return replace(self, command=ALL, table=False)


CHUNKS = ("--chunks", "budget:tokens=12")
KINDS = {
    "first": Kind(nights=0),
    "file": Kind(),
    "content": Kind(options=("--partition", "content")),
    "index": Kind(("index", "--index", "IVF4,SQ8")),
    "vacuum": Kind(("vacuum", "--keep", "1")),
    "rollback": Kind(("rollback", "OLD")),
    "recalibrate": Kind(("recalibrate", "--calibration", "PLACE/fitted")),
    "documents": Kind(options=CHUNKS, documents=True),
    "groups": Kind(small=20),
    "parts": Kind(in_parts=True),
    "codes": Kind((*ALL, "--precision", "uint8")),
    "append": Kind(("embed", "--append", "--input", "PLACE/more/*")),
    "push": Kind(("push", "--to", "lance:PLACE/tables#docs"), table=True),
    "neighbours": Kind(
        ("neighbours", "--of", "PLACE/store", "-k", "3", "--output", f"PLACE/{FILE}")
    ),
    "dedup": Kind(("dedup", "--min-score", "0.9", "--output", f"PLACE/{FILE}")),
    "together": Kind(
        (*ALL, "--precision", "uint8"), options=CHUNKS, documents=True, small=20, in_parts=True
    ),
}


@dataclass(frozen=True)
class Scene:
    """A kind of command and the folder with inputs and a store that it finds; every case has a copy
    at one place.
    """

    made: Path
    place: Path
    model: Path
    kind: Kind

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
        return arguments(self.kind, self.kind.command, self.place, self.model, first)

    def content(self) -> Content:
        """The store, and what the command writes beside it; None for what is not there."""
        return content_of(self.store), written(self.place)

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Commands within the block cut tables as the scene has them."""
        with in_parts() if self.kind.in_parts else contextlib.nullcontext():
            yield


@contextlib.contextmanager
def in_parts() -> Iterator[None]:
    """Tables that are written within the block have many parts."""
    with pytest.MonkeyPatch.context() as patch:
        snapshot_forms.small_parts(patch)
        yield


def arguments(
    kind: Kind, command: tuple[str, ...], place: Path, model: Path, first: str = ""
) -> list[str]:
    """A command as a person writes it."""
    named = [word.replace("PLACE", str(place)).replace("OLD", first) for word in command]
    if command[0] == "embed":  # what is named last counts
        named = [named[0], "--model", str(model), *HOW, *CODES, *kind.options, *named[1:]]
    return [*named, "--store", str(place / "store")]


def write_inputs(place: Path, night: int, kind: Kind) -> None:
    """The inputs of a night: a file that changes, one that stays, one with a rejected row, one to
    append, small ones.
    """
    folder, of_row = place / "in", 3 if kind.documents else 1
    for name, rows, start in (("a", 30, 10 * night), ("b", 20, 500)):
        texts = [" ".join(sentences(of_row, start + of_row * n)) for n in range(rows)]
        ids = [f"{name}{n}" for n in range(rows)]
        write_parquet(folder / f"{name}.parquet", texts, row_group_size=10, id=ids)
    write_jsonl(
        folder / "c.jsonl",
        [{"id": f"c{n}", "text": f"dog {n} {night}" if n else ""} for n in range(15)],
    )
    for n in range(kind.small):
        write_jsonl(
            folder / f"small{n}.jsonl",
            [{"id": f"s{n}", "text": f"cat {n} {night if n < 3 else ''}"}],
        )
    write_jsonl(
        place / "more" / "d.jsonl", [{"id": f"d{n}", "text": f"bird {n}"} for n in range(15)]
    )


def make(kind: Kind, place: Path, model: Path) -> None:
    """Make a store by its nights, the inputs of the next one and a calibration."""
    for night in range(kind.nights):
        write_inputs(place, night, kind)
        assert main(arguments(kind, ALL, place, model)) == 0
    write_inputs(place, kind.nights, kind)
    if kind.nights:
        fit_on(place / "store", "standardize", place / "fitted")


def maker(model: Path, folder: Path) -> Callable[[str], Scene]:
    """What gives the scene of a name; stores that several have in common are made once."""
    place = folder / "case"

    @functools.cache
    def made(store: Kind) -> Path:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        make(store, place, model)
        return place.rename(folder / f"made{len(list(folder.iterdir()))}")

    def find(name: str) -> Scene:
        kind = KINDS[name]
        with in_parts() if kind.in_parts else contextlib.nullcontext():
            return Scene(made(kind.store), place, model, kind)

    return find


def content_of(store: Path) -> tuple[Counter[Any], str | None, str] | None:
    """The rows of the current snapshot, which is whole, the kind of its index and its space; None
    without a snapshot.
    """
    if read_manifest(str(store)) is None:
        return None
    snapshot = open_store(str(store))
    assert list(faults(snapshot.manifest)) == []
    rows = snapshot.dataset().to_table(columns=["id", "row_hash", "norm"]).to_pylist()
    index = snapshot.manifest.data["index"]
    found = Counter((row["id"], row["row_hash"], round(row["norm"], 4)) for row in rows)
    return found, index and index["factory"], snapshot.manifest.space.id


def written(place: Path) -> Any:
    """The rows of the file that a command writes, or of the table that it pushes into; None without
    one.
    """
    if (place / FILE).exists():
        rows = pq.read_table(place / FILE).to_pylist()
        return Counter(str({name: rounded(value) for name, value in row.items()}) for row in rows)
    return pushed(place / "tables") if (place / "tables" / "docs.lance").exists() else None


def pushed(folder: Path) -> Counter[tuple[str, str]]:
    """The rows of the table that was pushed into."""
    import lancedb

    rows = (
        lancedb.connect(str(folder))
        .open_table("docs")
        .to_arrow()
        .select(["id", "text"])
        .to_pylist()
    )
    return Counter((row["id"], row["text"]) for row in rows)


def rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


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
