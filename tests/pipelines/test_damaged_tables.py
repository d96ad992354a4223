"""Commands on a store whose tables are damaged: one line that names the part, and nothing is
committed.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.commands import Run
from helpers.corpora import edit_manifest, sentences, write_lines
from helpers.snapshots import changed, edit_files, edit_units, files_of, parts_of

from sentence_beam.pipelines.cli import main
from sentence_beam.pipelines.verify import verify_by_workers
from sentence_beam.transforms.store import layout, open_store
from sentence_beam.transforms.store.verification import Extent, faults

Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store of two snapshots in one folder with its inputs; tests work on copies."""
    folder = tmp_path_factory.mktemp("made")
    for number in range(2):
        for name in "abc":
            write_lines(folder / f"{name}.txt", sentences(5 + number))
        arguments = ["embed", "--input", str(folder / "*.txt"), "--store", str(folder / "store")]
        assert main([*arguments, "--model", str(model)]) == 0
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


def take_another_table(store: Path) -> None:
    path = store / "manifest.json"
    data = json.loads(path.read_bytes())
    data["units"]["parts"] = data["files"]["parts"]
    for copy in (path, store / layout.snapshot(data["run"])):
        edit_manifest(copy, data)


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


@pytest.mark.parametrize("damage", [remove, cut, flip, name_outside, take_another_table])
def test_the_part_is_named_and_nothing_is_committed(folder: Path, run: Run, damage: Damage) -> None:
    store = folder / "store"
    damage(store)
    before = (store / "manifest.json").read_bytes()
    for command in ("embed", "index", "search", "files", "vacuum", "forget", "info"):
        run(*words_of(command, folder)).failed(1, f"{command}: ", part_of(store), "roll back")
    found = run("verify", "--store", store)
    *lines, last = found.err.splitlines()
    assert (found.status, lines != []) == (1, True)
    assert all(str(part_of(store)) in line for line in lines)
    assert last.startswith(f"sentence-beam verify: {store}: ")
    assert (store / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("damage", [remove, name_outside])
def test_a_push_writes_nothing(folder: Path, run: Run, damage: Damage) -> None:
    pytest.importorskip("lancedb", reason="lancedb is not installed")
    damage(folder / "store")
    run(*words_of("push", folder)).failed(1, part_of(folder / "store"), "roll back")


@pytest.mark.parametrize("damage", [remove, cut, name_outside])
def test_a_rollback_mends_it(folder: Path, run: Run, damage: Damage) -> None:
    store = folder / "store"
    damage(store)
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


def test_the_format_of_another_version(folder: Path, run: Run) -> None:
    path = folder / "store" / "manifest.json"
    edit_manifest(path, {**json.loads(path.read_bytes()), "format": 4})
    before = path.read_bytes()
    for command in ("embed", "index", "search", "files", "vacuum", "forget", "info", "verify"):
        said = f"{path}: format 4, this version reads 1: embed again"
        run(*words_of(command, folder)).failed(1, said)
    assert path.read_bytes() == before


@pytest.mark.parametrize("path", ["../x", "calibrations/../../x"])
def test_a_calibration_outside_the_store(folder: Path, run: Run, path: str) -> None:
    manifest = folder / "store" / "manifest.json"
    data = json.loads(manifest.read_bytes())
    edit_manifest(manifest, {**data, "calibration": {"digest": "ab", "path": path}})
    for command in ("embed", "index", "search", "files", "vacuum", "forget", "info", "verify"):
        run(*words_of(command, folder)).failed(1, f"{manifest} is corrupt", "calibration")


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


@pytest.mark.parametrize("options", [(), ("--partition", "content")], ids=["group", "content"])
def test_counts_of_files_that_share_units(
    tmp_path: Path, run: Run, model: Path, options: tuple[str, ...]
) -> None:
    store = tmp_path / "store"
    for number in range(60):
        write_lines(tmp_path / f"in/{number}.txt", sentences(2))
    run("embed", "--input", tmp_path / "in/*.txt", "--store", store, "--model", model,
        "--unit-tokens", 800, *options).ok()  # fmt: skip
    run("verify", "--store", store).ok()
    # those of a group are at its first file, and there are none by content
    place, file = next(item for item in enumerate(files_of(store)) if not item[1]["units"])
    edit_files(store, changed(place, written=2))
    found = run("verify", "--store", store)
    said = (
        f"ledger: {file['path']}: the sum of written over its units is 0, the list of files says 2"
    )
    assert (found.status, found.err.splitlines()[0]) == (1, said)


def test_workers_find_the_same_faults(folder: Path) -> None:
    store = folder / "store"
    edit_files(store, changed(1, rows=99))
    edit_units(store, changed(0, rows=7))
    cut(store)
    manifest = open_store(str(store)).manifest
    for extent in (Extent(), Extent(0.0)):
        found = faults(manifest, extent)
        assert str(part_of(store)) in found[0]
        assert (
            verify_by_workers(manifest, extent, PipelineOptions(["--runner=FnApiRunner"])) == found
        )
