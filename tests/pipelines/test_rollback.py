"""rollback: an earlier snapshot's rows and index become the current ones again.

Covers transforms/steps/commit/restore.py.
"""

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

from sentence_beam.transforms.store import open_store


def write(inputs: Path, start: int) -> None:
    """Ten rows that stay and ten others."""
    write_parquet(inputs / "a.parquet", sentences(10), id=[f"a{i}" for i in range(10)])
    write_parquet(
        inputs / "b.parquet", sentences(10, start), id=[f"b{i}" for i in range(start, start + 10)]
    )


def found(store: Path) -> list[dict[str, object]]:
    """All that a search gives."""
    return open_store(str(store)).search(sentences(2), k=30)


def test_rows_index_and_the_next_run(run: Run, embed: Run, inputs: Path, store: Path) -> None:
    write(inputs, 10)
    embed(inputs / "*", "--id-column", "id", "--index", "Flat").ok()
    first, rows, vectors, hits = manifest_of(store), rows_of(store), vectors_of(store), found(store)
    write(inputs, 50)
    embed(inputs / "*").ok()
    second = manifest_of(store)
    assert found(store) != hits
    shards = files_in(store, "embeddings", "index")

    out = run("rollback", first["run"], "--store", store).ok().out
    assert "10 rows added, 0 changed, 10 deleted" in out
    third = check_ledger(store, 20, carried=20)
    assert (third["previous"], third["index"], units_of(store, third)) == (
        second["run"],
        first["index"],
        units_of(store, first),
    )
    assert third["run"] not in (first["run"], second["run"])
    assert (rows_of(store), vectors_of(store), found(store)) == (rows, vectors, hits)
    assert files_in(store, "embeddings", "index") == shards
    assert not (store / "lease.json").exists()
    run("verify", "--store", store).ok()
    run("history", "--store", store).ok()

    embed(inputs / "*").ok()
    after = check_ledger(store, 20, carried=10, embedded=0)
    assert [unit["sha256"] for unit in units_of(store, after)] == [
        unit["sha256"] for unit in units_of(store, second)
    ]
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


def test_what_cannot_be_rolled_back_to(run: Run, embed: Run, inputs: Path, store: Path) -> None:
    write(inputs, 10)
    embed(inputs / "*").ok()
    first = manifest_of(store)
    write(inputs, 50)
    embed(inputs / "*").ok()
    run("rollback", manifest_of(store)["run"], "--store", store).failed(
        2, "is the current snapshot"
    )
    run("rollback", "../manifest", "--store", store).failed(2, "has no snapshot")
    gone = next(unit["path"] for unit in units_of(store, first) if unit["file"] == "b.parquet")
    (store / gone).unlink()
    run("rollback", first["run"], "--store", store).failed(2, store / gone, first["run"])
    run("vacuum", "--store", store, "--keep", 1).ok()
    second = (store / "manifest.json").read_bytes()  # with a fence
    run("rollback", first["run"], "--store", store).failed(2, "has no snapshot", first["run"])
    assert (store / "manifest.json").read_bytes() == second


@variants("kind", ["path", "locator", "shard"], kept=(2,))
def test_a_snapshot_with_a_file_that_was_cut_is_not_restored(
    run: Run, embed: Run, inputs: Path, store: Path, kind: str
) -> None:
    write(inputs, 10)
    embed(inputs / "*", "--id-column", "id", "--index", "Flat").ok()
    first = manifest_of(store)
    write(inputs, 50)
    embed(inputs / "*").ok()
    second = (store / "manifest.json").read_bytes()
    named = (
        units_of(store, first)[0]["path"]
        if kind == "shard"
        else first["index"]["segments"][0][kind]
    )
    (store / named).write_bytes((store / named).read_bytes()[:-1])
    run("rollback", first["run"], "--store", store).failed(
        2, store / named, " bytes, not ", first["run"]
    )
    assert (store / "manifest.json").read_bytes() == second
    assert not (store / "lease.json").exists()


@pytest.mark.usefixtures("every_shard_checked")
def test_a_snapshot_with_a_shard_that_was_changed_is_not_restored(
    run: Run, embed: Run, inputs: Path, store: Path
) -> None:
    write(inputs, 10)
    embed(inputs / "*").ok()
    first = manifest_of(store)
    write(inputs, 50)
    embed(inputs / "*").ok()
    second = (store / "manifest.json").read_bytes()
    out = run("rollback", "-1", "--store", store).ok().out
    shards = len(units_of(store, first))
    assert (
        f"{shards} of {shards} carried shards are sound: 0 by the checksum of a listing, {shards} by reading"
        in out
    )
    for unit in units_of(store, first):
        path = store / unit["path"]
        whole = path.read_bytes()
        path.write_bytes(bytes([*whole[:-1], whole[-1] ^ 1]))
        restore = ("rollback", first["run"], "--store", store)
        (store / "manifest.json").write_bytes(second)
        run(*restore).failed(2, path, "was changed after it was written", first["run"])
        assert (store / "manifest.json").read_bytes() == second
        path.write_bytes(whole)
    run(*restore).ok()


def test_shards_that_come_back_are_all_read(
    run: Run, embed: Run, inputs: Path, store: Path
) -> None:
    for number in range(6):
        write_parquet(inputs / f"{number}.parquet", sentences(10, 10 * number))
    embed(inputs / "*").ok()
    first = {unit["path"] for unit in units_of(store)}
    for number in range(4):
        write_parquet(inputs / f"{number}.parquet", sentences(10, 100 + number))
    embed(inputs / "*").ok()
    second = (store / "manifest.json").read_bytes()
    returning = first - {unit["path"] for unit in units_of(store)}
    assert (len(first), len(returning)) == (6, 4)
    for name in sorted(returning):
        path = store / name
        whole = path.read_bytes()
        path.write_bytes(bytes([*whole[:-1], whole[-1] ^ 1]))
        run("rollback", "-1", "--store", store).failed(2, path, "was changed after it was written")
        assert (store / "manifest.json").read_bytes() == second
        path.write_bytes(whole)
    out = run("rollback", "-1", "--store", store).ok().out
    # of the two others at most one has its turn
    assert "4 by reading" in out or "5 by reading" in out


def test_each_rollback_reads_another_shard(run: Run, embed: Run, inputs: Path, store: Path) -> None:
    write(inputs, 10)
    embed(inputs / "*").ok()
    write(inputs, 50)
    embed(inputs / "*").ok()
    places = set()
    for _ in range(2):
        run("rollback", "-1", "--store", store).ok()
        places.add(manifest_of(store)["check_from"])
    assert len(places) == 2
