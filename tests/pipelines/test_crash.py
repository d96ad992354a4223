"""Killed at any moment, a run is taken up by the next one: nothing lost, nothing made twice,
nothing half written.
"""

import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import child_process
from helpers.corpora import (
    check_ledger,
    files_in,
    manifest_of,
    rows_of,
    sentences,
    vectors_of,
    write_parquet,
)
from helpers.snapshots import files_of

KILLS = 2


def command(glob: Path, store: Path, model: Path, partition: str = "file") -> list[str]:
    options = ["--unit-tokens", "60", "--id-column", "id", "--index", "Flat", "--dtype", "float32"]
    options += ["--partition", partition]
    named = ["--input", str(glob), "--store", str(store), "--model", str(model)]
    return ["embed", *named, *options]


def stages(store: Path) -> dict[str, int]:
    """How many files of each kind stand."""
    return {
        name: len(files_in(store, name))
        for name in ("embeddings", "sidecars", "index", "manifests")
    }


def the_same(store: Path) -> dict[str, Any]:
    """What a disturbed and an undisturbed run must agree on."""
    manifest = manifest_of(store)
    assert manifest is not None
    names = ("space", "rows", "work", "tokens", "units", "index", "partition")
    files = [{**file, "folder": "", "source": "", "version": ""} for file in files_of(store)]
    return {name: manifest[name] for name in names} | {"files": files}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A folder with an input file and the store of an undisturbed run; tests copy it."""
    folder = tmp_path_factory.mktemp("first")
    in_peace(command(write_rows(folder), folder / "store", model))
    return folder


def killed_at(argv: list[str], store: Path, wanted: int, rng: random.Random) -> bool:
    """Start the command and kill it a moment after `wanted` shards stand; False where it ended
    before.
    """
    process = child_process(argv)
    process.start()
    while process.is_alive() and len(files_in(store, "embeddings")) < wanted:
        time.sleep(0.005)
    time.sleep(rng.random() * 0.03)
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


def write_rows(folder: Path) -> Path:
    """Write 360 rows in twelve row groups; return the file."""
    ids = [f"i{n}" for n in range(360)]
    return write_parquet(folder / "in" / "a.parquet", sentences(360), row_group_size=30, id=ids)


@pytest.fixture
def glob(tmp_path: Path) -> Path:
    """360 rows in twelve row groups."""
    return write_rows(tmp_path)


@pytest.mark.parametrize("partition", ["file", pytest.param("content", marks=pytest.mark.slow)])
def test_killed_at_random_moments(
    model: Path, glob: Path, store: Path, tmp_path: Path, first: Path, partition: str
) -> None:
    calm = first / "store"
    if partition != "file":
        calm = tmp_path / "calm"
        in_peace(command(glob, calm, model, partition))
    check_ledger(calm, 360, embedded=360)
    total = stages(calm)["embeddings"]
    assert total >= 40

    rng, argv = random.Random(5), command(glob, store, model, partition)
    for kill in range(KILLS):
        before = {name: files_in(store, name) for name in ("embeddings", "sidecars")}
        assert killed_at(argv, store, 1 + kill * total // KILLS, rng)
        assert manifest_of(store) is None
        for name, files in before.items():
            made = files_in(store, name)
            again = [
                path
                for path, stat in files.items()
                if ".tmp-" not in path and made.get(path) != stat
            ]
            assert not again, (name, kill)
    in_peace(argv, str(tmp_path / "err"))
    assert (tmp_path / "err").read_text() == ""
    check_ledger(store, 360)
    assert the_same(store) == the_same(calm)
    named = str(manifest_of(store))
    assert ".tmp-" not in named
    assert not (store / "lease.json").exists()


def in_peace(argv: list[str], err: str = os.devnull) -> None:
    """Run the command in a child, undisturbed."""
    process = child_process(argv, err)
    process.start()
    process.join()
    assert process.exitcode == 0


@pytest.mark.slow
def test_killed_in_the_middle_of_a_document(model: Path, store: Path, tmp_path: Path) -> None:
    text = ".\n\n".join(sentences(1200))
    glob = write_parquet(
        tmp_path / "in" / "a.parquet", [text, "A short one."], id=["long", "short"]
    )
    cut, calm = ("--chunks", "budget:tokens=12"), tmp_path / "calm"
    in_peace([*command(glob, calm, model), *cut])
    total, rng = stages(calm)["embeddings"], random.Random(8)
    assert total >= 40

    argv = [*command(glob, store, model), *cut]
    for kill in range(4):
        before = {
            path: stat
            for path, stat in files_in(store, "embeddings").items()
            if ".tmp-" not in path
        }
        assert killed_at(argv, store, 1 + kill * total // 4, rng)
        assert manifest_of(store) is None
        assert before.items() <= files_in(store, "embeddings").items()
    standing = {path for path in files_in(store, "embeddings") if ".tmp-" not in path}
    assert 0 < len(standing) < total
    in_peace(argv)
    assert the_same(store) == the_same(calm)
    pieces = sorted(
        (row for row in rows_of(store) if row["id"] == "long"), key=lambda row: row["piece"]
    )
    assert [row["piece"] for row in pieces] == list(range(pieces[0]["pieces"]))
    assert "".join("".join(row["text"].split()) for row in pieces) == "".join(text.split())


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["file", "content"])
def test_killed_between_floats_and_codes(
    model: Path, glob: Path, store: Path, tmp_path: Path, partition: str
) -> None:
    calm, rng, codes = tmp_path / "calm", random.Random(7), ("--precision", "int8")
    in_peace([*command(glob, calm, model, partition), *codes])
    argv, floats = (
        [*command(glob, store, model, partition), *codes],
        stages(calm)["embeddings"] // 2,
    )
    for wanted in (floats, floats + floats // 2):
        assert killed_at(argv, store, wanted, rng)
        assert manifest_of(store) is None
    standing = {
        path: stat for path, stat in files_in(store, "embeddings").items() if ".tmp-" not in path
    }
    assert len(standing) > floats
    in_peace(argv)
    check_ledger(store, 360)
    assert the_same(store) == the_same(calm)
    assert standing.items() <= files_in(store, "embeddings").items()
    assert len(files_in(store, "ranges")) == 1


def test_a_night_that_changes_half_the_units_killed_at_random_moments(
    model: Path, glob: Path, store: Path, tmp_path: Path, first: Path
) -> None:
    calm, rng = tmp_path / "calm", random.Random(6)
    for place in (store, calm):
        shutil.copytree(first / "store", place)
    before, standing = manifest_of(store), stages(store)["embeddings"]
    # rows move to other units, others are new
    texts = [*sentences(360)[180:], *sentences(180, 600)]
    ids = [f"i{n}" for n in range(180, 540)]
    write_parquet(glob, texts, row_group_size=30, id=ids)
    in_peace(command(glob, calm, model))
    made = stages(calm)["embeddings"] - standing
    for kill in range(KILLS):
        wanted = standing + 1 + kill * made // KILLS
        assert killed_at(command(glob, store, model), store, wanted, rng)
        assert manifest_of(store) == before
    in_peace(command(glob, store, model))
    check_ledger(store, 360)
    assert the_same(store)["rows"] == the_same(calm)["rows"]
    assert rows_of(store) == rows_of(calm)
    mine, theirs = (np.array(list(vectors_of(place).values())) for place in (store, calm))
    assert np.abs(mine - theirs).max() <= 2e-5 * np.abs(theirs).max()


def wait_for(store: Path, shards: int) -> None:
    """Return when so many shards stand."""
    started = time.monotonic()
    while stages(store)["embeddings"] < shards and time.monotonic() - started < 60:
        time.sleep(0.01)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted(
    model: Path, glob: Path, store: Path, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    process = child_process(command(glob, store, model), str(tmp_path / "err"))
    process.start()
    wait_for(store, 1)
    os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode == status
    assert (
        tmp_path / "err"
    ).read_text() == "sentence-beam embed: interrupted; run the same command again to go on\n"
    assert manifest_of(store) is None
    assert not (store / "lease.json").exists()
    finished = files_in(store, "embeddings")
    in_peace(command(glob, store, model))
    check_ledger(store, 360)
    assert finished.items() <= files_in(store, "embeddings").items()


def test_two_writers_at_once(model: Path, glob: Path, store: Path, tmp_path: Path) -> None:
    errs = [tmp_path / "err0", tmp_path / "err1"]
    both = [child_process(command(glob, store, model), str(err)) for err in errs]
    for process in both:
        process.start()
    for process in both:
        process.join(120)
    assert sorted(process.exitcode for process in both) == [0, 1]
    assert "is being written by run" in "".join(err.read_text() for err in errs)
    check_ledger(store, 360, embedded=360)
