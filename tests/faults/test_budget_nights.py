"""Nights within a budget beside a store without one: edits, deletes, kills; in the end both stores
are the same, and no text was embedded twice.
"""

import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.commands import Run, child_process
from helpers.corpora import sentences, write_jsonl, write_parquet
from helpers.snapshots import files_of, units_of

from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.verification import faults

NIGHTS = 5
EXACT = 2e-5  # of a vector's largest component
MORE = 1.01  # times the tokens of the store without a budget


class Stores:
    """A folder of input files, and two stores of it."""

    def __init__(self, run: Run, folder: Path, model: Path, rng: random.Random):
        self.run = run
        self.inputs = folder / "in"
        self.budgeted = folder / "budgeted"
        self.plain = folder / "plain"
        self.rng = rng
        self.count = 0
        self.tokens = {self.budgeted: 0, self.plain: 0}
        self.options = ["--input", f"{self.inputs}/*", "--id-column", "id", "--model", str(model)]
        self.options += ["--unit-tokens", "300", "--dtype", "float32", "--max-deletes", "1"]
        self.options += ["--max-rejects", "1"]

    def change(self, is_first: bool) -> None:
        """Add, edit and delete files."""
        for _ in range(self.rng.choice([4, 12] if is_first else [0, 1, 6])):
            self.count += 1
            kind = self.rng.choice(["parquet", "jsonl"])
            self.write(self.inputs / f"{self.rng.randrange(100):02d}-{self.count}.{kind}")
        for path in sorted(self.inputs.iterdir())[1:]:
            what = self.rng.random()
            if what < 0.15 and not is_first:
                self.write(path)
            elif what < 0.25 and not is_first:
                path.unlink()

    def write(self, path: Path) -> None:
        """Write rows of a file anew; few have a text that others have, and some are rejected."""
        self.count += 1
        rows = self.rng.choice([2, 5, 40, 90])
        texts: list[Any] = sentences(rows, 1000 * self.count)
        if rows > 5:
            texts[3] = None
        ids = [f"{path.stem}-{row}" for row in range(rows)]
        if path.suffix == ".parquet":
            write_parquet(path, texts, row_group_size=30, id=ids)
        else:
            write_jsonl(path, [{"id": i, "text": text} for i, text in zip(ids, texts, strict=True)])

    def embed(self, store: Path, *options: object) -> None:
        self.run("embed", *self.options, "--store", store, *options).ok()
        self.tokens[store] += result_of(store)["ledger"]["real"]

    def kill_one(self, budget: str) -> None:
        """Begin a run within a budget, and kill it."""
        arguments = [*self.options, "--store", str(self.budgeted), "--budget", budget]
        process = child_process(["embed", *arguments])
        process.start()
        time.sleep(self.rng.random() * 3)
        process.kill()
        process.join()
        if process.exitcode == 0:
            self.tokens[self.budgeted] += result_of(self.budgeted)["ledger"]["real"]


def manifest_of(store: Path) -> Manifest:
    return open_store(str(store)).manifest


def result_of(store: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(
        (store / "runs" / manifest_of(store).run / "result.json").read_text()
    )
    return result


def shards_of(store: Path) -> list[tuple[Any, ...]]:
    columns = ("unit", "path", "rows", "read", "rejected", "rejects", "tokens")
    return [tuple(unit[name] for name in columns) for unit in units_of(store)]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("one_model")
@pytest.mark.parametrize("seed", range(4))
def test_nights_of_a_budget(run: Run, model: Path, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    stores = Stores(run, tmp_path, model, rng)
    stores.inputs.mkdir()
    for night in range(NIGHTS):
        stores.change(is_first=not night)
        stores.embed(stores.plain)
        budget = rng.choice(["1", "300", "1k", "1M"])
        if rng.random() < 0.5:
            stores.kill_one(budget)
        stores.embed(stores.budgeted, "--budget", budget)
        check(stores.budgeted)
    while manifest_of(stores.budgeted).pending.files:
        stores.embed(stores.budgeted, "--budget", "500")
        check(stores.budgeted)
    assert shards_of(stores.budgeted) == shards_of(stores.plain)
    files = [files_of(store) for store in (stores.budgeted, stores.plain)]
    assert files[0] == files[1]
    check_shards(stores)
    assert stores.tokens[stores.budgeted] <= MORE * stores.tokens[stores.plain]


def check(store: Path) -> None:
    """Check that what is not pending is as in the input, and that the counts add up."""
    manifest = manifest_of(store)
    assert not list(faults(manifest))
    waiting = [file for file in files_of(store) if file["pending_bytes"] is not None]
    assert manifest.pending.files == len(waiting)
    assert manifest.pending.bytes == sum(file["pending_bytes"] for file in waiting)
    assert manifest.pending.tokens == sum(file["pending_tokens"] for file in waiting)


def check_shards(stores: Stores) -> None:
    """Check that both stores have the same rows in the same order, vectors and rejects."""
    for unit in units_of(stores.plain):
        for name in filter(None, (unit["path"], unit["rejects"])):
            mine, other = (pq.read_table(store / name) for store in (stores.budgeted, stores.plain))
            drop = ["embedding", "norm"] if "embedding" in mine.column_names else []
            assert mine.drop_columns(drop).equals(other.drop_columns(drop))
            if drop:
                vectors = [np.array(table["embedding"].to_pylist()) for table in (mine, other)]
                largest = np.abs(vectors[1]).max(axis=1, keepdims=True)
                assert (np.abs(vectors[0] - vectors[1]) <= EXACT * largest).all()
