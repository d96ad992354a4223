"""Nights in a row: whatever befalls the collection, a store ends as one run from nothing would make
it.
"""

import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.changes import CHANGES, Change, add, merge
from helpers.collection import Collection, rows_and_vectors, the_same
from helpers.commands import Run, child_process
from helpers.corpora import check_ledger
from helpers.snapshots import units_of
from helpers.variants import variants
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

OPTIONS = (
    "--keep-columns",
    "lang",
    "--dtype",
    "float32",
    "--unit-tokens",
    120,
    "--max-rejects",
    1,
    "--max-deletes",
    1,
)
OWN_IDS = ("--id-column", "id")
MADE_IDS = ("--id-column", "")
NIGHTS = st.lists(st.lists(st.sampled_from(CHANGES), max_size=4), min_size=1, max_size=3)
LONG = st.lists(st.lists(st.sampled_from(CHANGES), max_size=8), min_size=3, max_size=8)
# cut by the share of text in the first megabyte, as it was when the store first saw the file
BY_TEXT = ("jsonl", "csv", "tsv")
PARTITIONS = pytest.mark.parametrize("partition", ["file", "content"])
SEEDS = st.integers(0, 10**6)


def quick(examples: int) -> Any:
    """Settings for tests in which an example takes seconds."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=examples, deadline=None, suppress_health_check=checks)


def cuts(store: Path) -> list[tuple[Any, ...]]:
    """The units of all files whose cuts do not depend on what stood in them when first seen."""
    return [
        (unit["unit"], unit["file"], unit["start"], unit["stop"], unit["rows"])
        for unit in units_of(store)
        if not unit["file"].partition(".")[2].startswith(BY_TEXT)
    ]


def run_nights(
    run: Run,
    model: Path,
    folder: Path,
    partition: str,
    ids: tuple[str, ...],
    seed: int,
    nights: list[list[Change]],
) -> None:
    """Embed night after night, checking each; then once from nothing, and compare."""
    shutil.rmtree(folder, ignore_errors=True)
    collection, store, known = Collection(folder / "in", seed), folder / "store", set[bytes]()
    given = ("--input", collection.glob, "--model", model, "--partition", partition, *OPTIONS, *ids)
    for changes in [[], *nights]:
        collection.befalls(changes)
        run("embed", "--store", store, *given).ok()
        manifest = check_ledger(store, collection.rows.total(), collection.rejected)
        paths = [unit["path"] for unit in units_of(store, manifest) if unit["path"]]
        assert len(set(paths)) == len(paths)
        if ids == OWN_IDS:
            assert rows_and_vectors(store)[0] == collection.rows
        texts = {text for _, text, _ in collection.rows}
        embedded = manifest["work"]["embedded"]
        assert embedded >= len(texts - known)
        if partition == "content" and not any(
            "." in unit["unit"] for unit in units_of(store, manifest)
        ):
            assert embedded == len(texts - known)
        known = texts
    run("embed", "--store", folder / "fresh", *given).ok()
    check_ledger(
        folder / "fresh", collection.rows.total(), collection.rejected, reused=0, carried=0
    )
    the_same(store, folder / "fresh")
    if partition == "file":
        assert cuts(store) == cuts(folder / "fresh")


@variants(
    ("partition", "ids"),
    [("file", OWN_IDS), ("content", MADE_IDS), ("file", MADE_IDS), ("content", OWN_IDS)],
    kept=(0, 1),
    ids=["file-own ids", "content-ids of files", "file-ids of files", "content-own ids"],
)
@quick(examples=2)
@example(seed=682, nights=[[], [], [add, merge]])
@given(seed=SEEDS, nights=NIGHTS)
def test_any_nights_end_like_one_run_from_nothing(
    run: Run,
    model: Path,
    tmp_path: Path,
    partition: str,
    ids: tuple[str, ...],
    seed: int,
    nights: list[list[Change]],
) -> None:
    run_nights(run, model, tmp_path / "case", partition, ids, seed, nights)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@PARTITIONS
@pytest.mark.parametrize("ids", [OWN_IDS, MADE_IDS], ids=["own ids", "ids of files"])
@quick(examples=60)
@given(seed=SEEDS, nights=LONG)
def test_many_nights_end_like_one_run_from_nothing(
    run: Run,
    model: Path,
    tmp_path: Path,
    partition: str,
    ids: tuple[str, ...],
    seed: int,
    nights: list[list[Change]],
) -> None:
    run_nights(run, model, tmp_path / "case", partition, ids, seed, nights)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@PARTITIONS
def test_killed_at_random_moments_of_many_nights(
    run: Run, model: Path, tmp_path: Path, partition: str
) -> None:
    rng, store = random.Random(11), tmp_path / "store"
    collection = Collection(tmp_path / "in", seed=11, rows=300)
    argv = ["embed", "--input", collection.glob, "--model", str(model), "--partition", partition]
    argv += [str(option) for option in (*OPTIONS, *OWN_IDS, "--index", "Flat")]
    killed, took = 0, 3.0
    for night in range(12):
        collection.befalls(rng.choices(CHANGES, k=6) if night else [])
        for _ in range(rng.randint(1, 4)):
            process = child_process([*argv, "--store", str(store)])
            started = time.monotonic()
            process.start()
            process.join(rng.random() * took)
            process.kill()
            process.join()
            killed += process.exitcode != 0
            took = time.monotonic() - started if process.exitcode == 0 else took
        run(*argv, "--store", store).ok()
        check_ledger(store, collection.rows.total(), collection.rejected)
        assert rows_and_vectors(store)[0] == collection.rows
        assert not (store / "lease.json").exists()
    assert killed > 12
    run(*argv, "--store", tmp_path / "fresh").ok()
    the_same(store, tmp_path / "fresh")
