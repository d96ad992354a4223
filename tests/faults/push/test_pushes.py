"""Two pushes at once, each killed or frozen at every operation: the next push leaves the table
equal to the store.

The rows of the store have every history that there is: in each of four snapshots a row has one
text, another, or none.
"""

import itertools
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.commands import Run
from helpers.databases import Aliased, Fate, KilledError, Pushing, Versioned
from helpers.killed_push import Moment, frozen, killed, wake
from helpers.pushes import Held, Kept, check, expected, files_of, held_by, in_memory

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.push import redact
from sentence_beam.transforms.push.pushed_rows import read_rows
from sentence_beam.transforms.store.manifest import Manifest

pytestmark = pytest.mark.timeout(7200)
RUNS = 4
ROWS = 3**RUNS
TEXTS = ("apple", "bird", None)
WAYS = [
    *itertools.product(("frozen",), ("sent", "answered", "killed")),
    *itertools.product(("killed",), ("lost", "late", "answered")),
]
UNHARMED = (-1, "", "")
DATABASES = {"aliased": Aliased, "versioned": Versioned}


@dataclass(frozen=True)
class Snapshots:
    """The snapshots of a store, and what a table holds of each."""

    manifests: list[Manifest]
    held: list[Held]


@dataclass(frozen=True)
class Case:
    """What befalls two pushes; which snapshots they push, and which of them wakes first.

    `table` says whether there is a table before, `look` whether they look before every batch whose
    turn it is.
    """

    database: str
    first: tuple[int, str, str]
    second: tuple[int, str, str]
    same: bool
    second_wakes_first: bool
    table: bool
    look: bool


@pytest.fixture(scope="module")
def snapshots() -> Iterator[Snapshots]:
    """A store with every history of a row."""
    folder = Path(tempfile.mkdtemp(prefix="push-", dir=in_memory()))
    store, found = Kept(folder / "store"), Snapshots([], [])
    for run in range(RUNS):
        texts = {f"i{n}": TEXTS[n // 3**run % 3] for n in range(ROWS)}
        files = files_of(
            {name: text for name, text in texts.items() if text is not None}, ROWS // 3
        )
        store.commit_without_index(files)
        found.manifests.append(store.manifest)
        found.held.append(expected(files))
    yield found
    shutil.rmtree(folder)


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each push that does not go on is taken for dead at once, and a shard's rows are read once."""
    monkeypatch.setattr("sentence_beam.transforms.push.turn.STALE_SECONDS", 0)
    known: dict[tuple[str, tuple[str, ...]], list[pa.RecordBatch]] = {}

    def read(manifest: Manifest, number: int, columns: pa.Schema) -> list[pa.RecordBatch]:
        key = manifest.shard(number).full_path, tuple(columns.names)
        if key not in known:
            known[key] = list(read_rows(manifest, number, columns))
        return known[key]

    monkeypatch.setattr("sentence_beam.transforms.push.snapshot_difference.read_rows", read)
    monkeypatch.setattr("sentence_beam.transforms.push.pushed_rows.read_rows", read)


def operations(database: str, table: bool, snapshots: Snapshots) -> int:
    """The number of operations of a push, with a look before each batch."""
    found = DATABASES[database]()
    if table:
        Pushing(snapshots.manifests[0], found)
    return Pushing(snapshots.manifests[1], found).target.operations


def cases(database: str, snapshots: Snapshots) -> Iterator[Case]:
    """Yield all cases."""
    bits = list(itertools.product((False, True), repeat=3))
    for table in (True, False):
        number = operations(database, table, snapshots)
        fates = [(at, *way) for at in range(number) for way in WAYS]
        for first, second, (same, wakes, look) in itertools.product(
            fates, [UNHARMED, *fates], bits
        ):
            if second[1] == "frozen" or not wakes:
                yield Case(database, first, second, same, wakes, table, look)


def drawn(database: str, snapshots: Snapshots, number: int, seed: int | None) -> list[Case]:
    """Draw so many cases; in half of them nothing befalls the second push."""
    rng, found = random.Random(seed), list(cases(database, snapshots))
    whole = [case for case in found if case.second == UNHARMED]
    others = [case for case in found if case.second != UNHARMED]
    return rng.sample(whole, min(number // 2, len(whole))) + rng.sample(
        others, min(number // 2, len(others))
    )


def check_case(case: Case, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the case happen; check the table after the next push, and that it stays so."""
    monkeypatch.setattr("sentence_beam.transforms.push.turn.LOOK_SECONDS", 0 if case.look else 1000)
    database = DATABASES[case.database]()
    if case.table:
        Pushing(snapshots.manifests[0], database)
    run = 1 if case.same else 2
    first = Pushing(snapshots.manifests[1], database, Fate(*case.first))
    second = Pushing(snapshots.manifests[run], database, Fate(*case.second))
    if second.error is None and not second.is_frozen:
        check(database.held(), snapshots.held[run])
    for pushing in (second, first) if case.second_wakes_first else (first, second):
        pushing.wake()
    for pushing in (first, second):
        assert isinstance(pushing.error, SentenceBeamError | KilledError | None), pushing.error
    last = Pushing(snapshots.manifests[3], database)
    assert last.error is None
    check(database.held(), snapshots.held[3])
    writes = database.writes
    assert Pushing(snapshots.manifests[3], database).error is None
    assert database.writes == writes
    assert len(database.now.notes or {}) == 2


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("database", DATABASES)
def test_two_pushes_at_once(
    database: str, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    for case in drawn(database, snapshots, 24, 0):
        check_case(case, snapshots, monkeypatch)


@pytest.mark.slow
@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("database", DATABASES)
def test_two_pushes_at_once_in_many_ways(
    database: str,
    snapshots: Snapshots,
    monkeypatch: pytest.MonkeyPatch,
    size: float,
    tell: Callable[[str], None],
) -> None:
    found = drawn(database, snapshots, int(1500 * size), None)
    for case in found:
        check_case(case, snapshots, monkeypatch)
    tell(
        f"{len(found)} cases of two pushes at once into a table that is {database}: the next push put every row right"
    )


def texts_of(rng: random.Random) -> dict[str, str]:
    """Rows of a night: some are left out, some are other ones."""
    return {f"i{n}": f"text {rng.randrange(3)} o'{n}" for n in range(60) if rng.random() < 0.8}


def bring(run: Run, store: Kept, to: str, texts: dict[str, str]) -> None:
    """Push a snapshot of these rows, and see that the table has them."""
    store.commit_without_index(files_of(texts, 20))
    run("push", "--store", store.root, "--to", to, "--max-deletes", "1").ok()
    check(held_by(to), expected(files_of(texts)))


def killed_at(run: Run, store: Kept, to: str, moment: Moment, rng: random.Random) -> bool:
    """Whether a push was killed at that moment; the next one has to put every row right."""
    store.commit_without_index(files_of(texts_of(rng), 20))
    was_killed = killed(store.root, to, moment)
    bring(run, store, to, texts_of(rng))
    return was_killed


@pytest.mark.parametrize("number", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_a_push_is_killed(run: Run, store: Kept, to: str, number: int) -> None:
    rng = random.Random(number)
    if number > 1:
        bring(run, store, to, texts_of(rng))
    assert killed_at(run, store, to, Moment(number, answered=number > 1), rng)


@pytest.mark.slow
@pytest.mark.parametrize("there", [False, True])
def test_a_push_is_killed_at_every_write(
    run: Run, store: Kept, to: str, there: bool, tell: Callable[[str], None]
) -> None:
    rng, kills = random.Random(), 0
    for number in itertools.count(1):
        place = f"{to}_{number}"
        if there:
            bring(run, store, place, texts_of(rng))
        found = [
            killed_at(run, store, place, Moment(number, answered), rng)
            for answered in (False, True)
        ]
        kills += sum(found)
        if not any(found):
            break
    tell(f"{kills} kills of a push into {redact(to)}: the next push put every row right")


@pytest.mark.slow
def test_a_push_is_frozen_at_every_write(
    run: Run, store: Kept, shared: str, monkeypatch: pytest.MonkeyPatch, tell: Callable[[str], None]
) -> None:
    rng, number = random.Random(), 0
    bring(run, store, shared, texts_of(rng))
    for number in itertools.count(1):
        with monkeypatch.context() as patch:
            store.commit_without_index(files_of(texts_of(rng), 20))
            with frozen(store.root, shared, Moment(number, answered=rng.random() < 0.5)) as first:
                if first is None:
                    break
                patch.setattr("sentence_beam.transforms.push.turn.STALE_SECONDS", 0)
                bring(run, store, shared, texts_of(rng))
                wake(first)
        bring(run, store, shared, texts_of(rng))
    tell(
        f"{number - 1} pushes into {redact(shared)} frozen while another went on: the next push put every row right"
    )
