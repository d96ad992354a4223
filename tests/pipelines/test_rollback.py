"""rollback: an earlier snapshot's rows and index become the current ones again.

Covers transforms/steps/commit/restore.py.
"""

import shutil
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    files_in,
    manifest_of,
    rows_of,
    sentences,
    vectors_of,
    write_parquet,
)
from helpers.snapshots import units_of
from helpers.variants import variants

from sentence_beam.pipelines.cli import main
from sentence_beam.transforms.store import open_store


def write(inputs: Path, start: int) -> None:
    """Ten rows that stay and ten others."""
    write_parquet(inputs / "a.parquet", sentences(10), id=[f"a{i}" for i in range(10)])
    write_parquet(
        inputs / "b.parquet", sentences(10, start), id=[f"b{i}" for i in range(start, start + 10)]
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store of six files with an index, in two snapshots: the first four files differ."""
    folder = tmp_path_factory.mktemp("made")
    command = f"embed --input {folder}/*.parquet --store {folder}/store --model {model}".split()
    for starts in ((0, 10, 20, 30, 40, 50), (100, 110, 120, 130)):
        for number, start in enumerate(starts):
            write_parquet(folder / f"{number}.parquet", sentences(10, start))
        assert main([*command, "--index", "Flat", "--max-deletes", "1"]) == 0
    return folder / "store"


@pytest.fixture
def two(made: Path, store: Path) -> Path:
    """A copy of that store, which a test may damage."""
    return Path(shutil.copytree(made, store))


def found(store: Path) -> list[dict[str, object]]:
    """All that a search gives."""
    return open_store(str(store)).search(sentences(2), k=30)


def test_rows_index_and_the_next_run(run: Run, embed: Run, inputs: Path, store: Path) -> None:
    def digests(manifest: dict[str, object]) -> list[str]:
        return [unit["sha256"] for unit in units_of(store, manifest)]

    write(inputs, 10)
    embed(inputs / "*", "--id-column", "id", "--index", "Flat").ok()
    first, before = manifest_of(store), (rows_of(store), vectors_of(store), found(store))
    write(inputs, 50)
    embed(inputs / "*").ok()
    second = manifest_of(store)
    assert found(store) != before[2]
    shards = files_in(store, "embeddings", "index")

    out = run("rollback", first["run"], "--store", store).ok().out
    assert "10 rows added, 0 changed, 10 deleted" in out
    third = check_ledger(store, 20, carried=20)
    assert (third["previous"], third["index"]) == (second["run"], first["index"])
    assert units_of(store, third) == units_of(store, first)
    assert third["run"] not in (first["run"], second["run"])
    assert (rows_of(store), vectors_of(store), found(store)) == before
    assert files_in(store, "embeddings", "index") == shards
    assert not (store / "lease.json").exists()
    run("verify", "--store", store).ok()
    run("history", "--store", store).ok()

    embed(inputs / "*").ok()
    after = check_ledger(store, 20, carried=10, embedded=0)
    assert digests(after) == digests(second)
    run("rollback", second["run"], "--store", store).ok()
    run("verify", "--store", store).ok()


def test_everything_embedded_again_after_a_rollback_is_really_embedded(
    run: Run, embed: Run, inputs: Path, store: Path
) -> None:
    write(inputs, 10)
    embed(inputs / "*").ok()
    first = manifest_of(store)["run"]
    embed(inputs / "*", "--reembed").ok()
    run("rollback", first, "--store", store).ok()
    embed(inputs / "*", "--reembed").ok()
    assert check_ledger(store, 20, embedded=20)["generation"] == 2


def test_what_cannot_be_rolled_back_to(run: Run, two: Path) -> None:
    current = manifest_of(two)
    first, rollback = current["previous"], ("rollback", "--store", two)
    run(*rollback, current["run"]).failed(2, "is the current snapshot")
    run(*rollback, "../manifest").failed(2, "has no snapshot")
    units = units_of(two, open_store(str(two), first).manifest.data)
    gone = next(unit["path"] for unit in units if unit["file"] == "1.parquet")
    (two / gone).unlink()
    run(*rollback, first).failed(2, two / gone, first)
    run("vacuum", "--store", two, "--keep", 1).ok()
    second = (two / "manifest.json").read_bytes()  # with a fence
    run(*rollback, first).failed(2, "has no snapshot", first)
    assert (two / "manifest.json").read_bytes() == second


@variants("kind", ["path", "locator", "shard"], kept=(2,))
def test_a_snapshot_with_a_file_that_was_cut_is_not_restored(
    run: Run, two: Path, kind: str
) -> None:
    second = (two / "manifest.json").read_bytes()
    first = open_store(str(two), "-1").manifest
    segment = first.data["index"]["segments"][0]
    named = units_of(two, first.data)[0]["path"] if kind == "shard" else segment[kind]
    (two / named).write_bytes((two / named).read_bytes()[:-1])
    rollback = run("rollback", first.run, "--store", two)
    rollback.failed(2, two / named, " bytes, not ", first.run)
    assert (two / "manifest.json").read_bytes() == second
    assert not (two / "lease.json").exists()


def test_shards_that_come_back_are_all_read_and_of_the_others_one_in_its_turn(
    run: Run, two: Path
) -> None:
    second, current = (two / "manifest.json").read_bytes(), units_of(two)
    first = units_of(two, open_store(str(two), "-1").manifest.data)
    returning = {unit["path"] for unit in first} - {unit["path"] for unit in current}
    assert (len(first), len(returning)) == (6, 4)
    rollback, places = ("rollback", "-1", "--store", two), set()
    for name in sorted(returning):
        path = two / name
        whole = path.read_bytes()
        path.write_bytes(bytes([*whole[:-1], whole[-1] ^ 1]))
        run(*rollback).failed(2, path, "was changed after it was written")
        assert (two / "manifest.json").read_bytes() == second
        path.write_bytes(whole)
    for _ in range(2):
        out = run(*rollback).ok().out
        assert "4 by reading" in out or "5 by reading" in out  # of the two others one at most
        places.add(manifest_of(two)["check_from"])
    assert len(places) == 2


@pytest.mark.usefixtures("every_shard_checked")
def test_a_snapshot_with_a_shard_that_was_changed_is_not_restored(run: Run, two: Path) -> None:
    second = (two / "manifest.json").read_bytes()
    carried = sorted(unit["path"] for unit in units_of(two) if unit["file"] == "4.parquet")
    path = two / carried[0]
    whole = path.read_bytes()
    path.write_bytes(bytes([*whole[:-1], whole[-1] ^ 1]))
    rollback = ("rollback", "-1", "--store", two)
    run(*rollback).failed(2, path, "was changed after it was written")
    assert (two / "manifest.json").read_bytes() == second
    path.write_bytes(whole)
    said = "6 of 6 carried shards are sound: 0 by the checksum of a listing, 6 by reading"
    assert said in run(*rollback).ok().out
