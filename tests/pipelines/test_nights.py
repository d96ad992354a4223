"""Nights in a row: whatever befalls the collection, a store ends as one run from nothing would make it."""

import random
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.changes import CHANGES, Change, first_night
from helpers.commands import FORKS, Run, in_child
from helpers.corpora import check_ledger
from helpers.layouts import Files, write_layout
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transforms.encoder import Encoder
from transforms.space import row_hash
from transforms.store import open_store

pytestmark = pytest.mark.usefixtures("cached_beam_options")
OPTIONS = ("--keep-columns", "lang", "--dtype", "float32", "--unit-tokens", 120, "--max-rejects", 1, "--max-deletes", 1)
OWN_IDS = ("--id-column", "id")
NIGHTS = st.lists(st.lists(st.sampled_from(CHANGES), max_size=4), min_size=1, max_size=3)
LONG = st.lists(st.lists(st.sampled_from(CHANGES), max_size=8), min_size=3, max_size=8)
PARTITIONS = pytest.mark.parametrize("partition", ["file", "content"])
SEEDS = st.integers(0, 10**6)


def quick(examples: int) -> Any:
    """Settings for tests in which an example takes seconds."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=examples, deadline=None, suppress_health_check=checks)


class Collection:
    """Files that change by night, on disk as they are: a file that has not changed is not written again."""

    def __init__(self, folder: Path, seed: int, rows: int = 60):
        self.folder, self.rng = folder, random.Random(seed)
        self.files, self._written = first_night(self.rng, rows), Files()
        self._write()

    def befalls(self, changes: list[Change]) -> None:
        """One day."""
        for change in changes:
            change(self.files, self.rng)
        self._write()

    @property
    def rows(self) -> Counter[tuple[str, bytes, str]]:
        """(id, row hash, kept value) of every good row."""
        rows = (row for rows in self.files.values() for row in rows)
        return Counter((i, row_hash(text), lang) for i, text, lang in rows if text is not None)

    @property
    def rejected(self) -> int:
        """How many rows have no text."""
        return sum(text is None for rows in self.files.values() for _, text, _ in rows)

    @property
    def glob(self) -> str:
        """What names all files."""
        return f"{self.folder}/**"

    def _write(self) -> None:
        for name in self._written.keys() - self.files.keys():
            (self.folder / name).unlink()
        for name, rows in self.files.items():
            if self._written.get(name) != rows:
                write_layout(self.folder, {name: rows}, random.Random(name))
        self._written = {name: list(rows) for name, rows in self.files.items()}


def rows_and_vectors(store: Path) -> tuple[Counter[tuple[str, bytes, str]], dict[tuple[str, bytes], np.ndarray]]:
    """What a store holds: (id, row hash, kept value) of its rows, and the vector of every id and text."""
    dataset = open_store(str(store)).dataset()
    if "embedding" not in dataset.schema.names:
        return Counter(), {}
    rows = dataset.to_table(columns=["id", "row_hash", "lang", "embedding"]).to_pylist()
    vectors = {(row["id"], row["row_hash"]): np.array(row["embedding"]) for row in rows}
    return Counter((row["id"], row["row_hash"], row["lang"]) for row in rows), vectors


def the_same(one: Path, other: Path) -> None:
    """Check that two stores hold the same rows with the same vectors."""
    (rows, vectors), (others, theirs) = rows_and_vectors(one), rows_and_vectors(other)
    assert rows == others
    for key, vector in vectors.items():
        assert np.abs(vector - theirs[key]).max() <= 2e-5 * np.abs(vector).max()


def run_nights(
    run: Run, model: Path, folder: Path, partition: str, ids: tuple[str, ...], seed: int, nights: list[list[Change]]
) -> None:
    """Embed night after night, checking each; then once from nothing, and compare."""
    shutil.rmtree(folder, ignore_errors=True)
    collection, store, known = Collection(folder / "in", seed), folder / "store", set[bytes]()
    given = ("--input", collection.glob, "--model", model, "--partition", partition, *OPTIONS, *ids)
    for changes in [[], *nights]:
        collection.befalls(changes)
        run("embed", "--store", store, *given).ok()
        manifest = check_ledger(store, collection.rows.total(), collection.rejected)
        paths = [unit["path"] for unit in manifest["shards"] if unit["path"]]
        assert len(set(paths)) == len(paths)
        if ids:
            assert rows_and_vectors(store)[0] == collection.rows
        texts = {text for _, text, _ in collection.rows}
        embedded = manifest["work"]["embedded"]
        assert embedded >= len(texts - known)
        if partition == "content" and not any("." in unit["unit"] for unit in manifest["shards"]):
            assert embedded == len(texts - known)
        known = texts
    run("embed", "--store", folder / "fresh", *given).ok()
    fresh = check_ledger(folder / "fresh", collection.rows.total(), collection.rejected, reused=0, carried=0)
    the_same(store, folder / "fresh")
    if partition == "file":
        names = [[(u["unit"], u["file"], u["range"], u["rows"]) for u in m["shards"]] for m in (manifest, fresh)]
        assert names[0] == names[1]


@pytest.fixture
def one_model(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    """The model is loaded once for all nights: what is tested here is what happens around it."""
    encoder = Encoder.load(str(model), dtype="float32")
    monkeypatch.setattr("transforms.steps.load_encoder.load_encoder", lambda job: encoder)


@PARTITIONS
@pytest.mark.parametrize("ids", [OWN_IDS, ()], ids=["own ids", "ids of files"])
@pytest.mark.usefixtures("one_model")
@quick(examples=4)
@given(seed=SEEDS, nights=NIGHTS)
def test_any_nights_end_like_one_run_from_nothing(
    run: Run, model: Path, tmp_path: Path, partition: str, ids: tuple[str, ...], seed: int, nights: list[list[Change]]
) -> None:
    run_nights(run, model, tmp_path / "case", partition, ids, seed, nights)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@PARTITIONS
@pytest.mark.parametrize("ids", [OWN_IDS, ()], ids=["own ids", "ids of files"])
@pytest.mark.usefixtures("one_model")
@quick(examples=60)
@given(seed=SEEDS, nights=LONG)
def test_many_nights_end_like_one_run_from_nothing(
    run: Run, model: Path, tmp_path: Path, partition: str, ids: tuple[str, ...], seed: int, nights: list[list[Change]]
) -> None:
    run_nights(run, model, tmp_path / "case", partition, ids, seed, nights)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@PARTITIONS
def test_killed_at_random_moments_of_many_nights(run: Run, model: Path, tmp_path: Path, partition: str) -> None:
    rng, store = random.Random(11), tmp_path / "store"
    collection = Collection(tmp_path / "in", seed=11, rows=300)
    argv = ["embed", "--input", collection.glob, "--model", str(model), "--partition", partition]
    argv += [str(option) for option in (*OPTIONS, *OWN_IDS, "--index", "Flat")]
    killed, took = 0, 3.0
    for night in range(12):
        collection.befalls(rng.choices(CHANGES, k=6) if night else [])
        for _ in range(rng.randint(1, 4)):
            process = FORKS.Process(target=in_child, args=([*argv, "--store", str(store)],))
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
