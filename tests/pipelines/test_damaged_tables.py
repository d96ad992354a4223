"""Commands on a store whose tables are damaged: one line that names the part, and nothing is
committed.
"""

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import sentences, write_lines
from helpers.snapshots import changed, edit_units, parts_of

from sentence_beam.pipelines.cli import main
from sentence_beam.transforms.store import layout, open_store

Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store of two snapshots in one folder with its inputs; tests work on copies."""
    folder = tmp_path_factory.mktemp("made")
    for number in range(2):
        for name in "abc":
            write_lines(folder / f"{name}.txt", sentences(5 + number))
        where = f"--input {folder}/*.txt --store {folder}/store --model {model}"
        assert main(["embed", *where.split()]) == 0
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of that folder, with another input."""
    copy = shutil.copytree(made, tmp_path / "made")
    write_lines(copy / "b.txt", sentences(9))
    return copy


def part_of(store: Path) -> Path:
    return store / parts_of(store)[0]["path"]


def cut(store: Path) -> None:
    part_of(store).write_bytes(part_of(store).read_bytes()[:-1])


def flip(store: Path) -> None:
    data = bytearray(part_of(store).read_bytes())
    data[len(data) // 2] ^= 1
    part_of(store).write_bytes(data)


def remove(store: Path) -> None:
    part_of(store).unlink()


def name_outside(store: Path) -> None:
    edit_units(store, changed(0, path="../x.parquet"))


def words_of(command: str, folder: Path) -> list[object]:
    """The arguments of a command on the store of a folder."""
    more: dict[str, list[object]] = {
        "embed": ["--input", folder / "*.txt"],
        "search": ["--query", "dog"],
        "vacuum": ["--keep", 1],
        "forget": ["--id", "a.txt#1", "--missing-ok"],
        "push": ["--to", f"lance:{folder / 'lance'}#docs"],
    }
    return [command, "--store", folder / "store", *more.get(command, [])]


@pytest.mark.parametrize("damage", [cut, name_outside])
def test_the_part_is_named_until_a_rollback_mends_it(
    folder: Path, run: Run, damage: Damage
) -> None:
    store = folder / "store"
    damage(store)
    before = (store / "manifest.json").read_bytes()
    push = ["push"] if find_spec("lancedb") else []
    for command in ("embed", "index", "search", "files", "vacuum", "forget", "info", *push):
        run(*words_of(command, folder)).failed(1, f"{command}: ", part_of(store), "roll back")
    found = run("verify", "--store", store)
    *lines, last = found.err.splitlines()
    assert (found.status, lines != []) == (1, True)
    assert all(str(part_of(store)) in line for line in lines)
    assert last.startswith(f"sentence-beam verify: {store}: ")
    assert (store / "manifest.json").read_bytes() == before
    run("rollback", "-1", "--store", store).ok()
    run("verify", "--store", store).ok()


@pytest.mark.parametrize(("damage", "status"), [(remove, 2), (flip, 1)])
def test_a_damaged_snapshot_is_not_restored(
    folder: Path, run: Run, damage: Damage, status: int
) -> None:
    store = folder / "store"
    run(*words_of("embed", folder)).ok()
    earlier = open_store(str(store), "-1").manifest
    kept = (store / "manifest.json").read_bytes()
    (store / "manifest.json").write_bytes((store / layout.snapshot(earlier.run)).read_bytes())
    part = part_of(store)
    damage(store)
    (store / "manifest.json").write_bytes(kept)
    run("rollback", "-1", "--store", store).failed(status, part)
    assert (store / "manifest.json").read_bytes() == kept
    run("search", "--query", "dog", "--store", store).ok()


def test_vacuum_refuses_a_changed_plan_of_a_run_that_did_not_end(folder: Path, run: Run) -> None:
    store = folder / "store"
    current = open_store(str(store)).manifest.run
    (store / layout.result(current)).unlink()
    plan = store / layout.plan(current)
    data = plan.read_bytes()
    half = len(data) // 2  # with pages of every column
    plan.write_bytes(bytes(byte ^ 1 for byte in data[:half]) + data[half:])
    before = sorted(store.rglob("*"))
    run("vacuum", "--store", store, "--keep", 1).failed(1, f"{plan} is not the plan", "run again")
    assert sorted(store.rglob("*")) == before
