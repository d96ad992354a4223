"""Random histories: whatever was asked of a store in whatever order, it ends as one made from
scratch.
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.calibrations import fit_on
from helpers.changes import CHANGES, new_row
from helpers.collection import Collection
from helpers.commands import Run
from helpers.corpora import check_ledger
from helpers.layouts import Files

from sentence_beam.transforms.search import Searcher
from sentence_beam.transforms.space import row_hash
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.manifest import Manifest, snapshots
from sentence_beam.transforms.store.shards.shard_reading import read_pooled

pytest.importorskip("faiss")
pytestmark = [pytest.mark.usefixtures("one_model"), pytest.mark.timeout(7200)]
FIXED = (
    "--id-column",
    "id",
    "--dtype",
    "float32",
    "--unit-tokens",
    120,
    "--max-rejects",
    1,
    "--max-deletes",
    1,
)
EXACT = {"float32": 2e-5, "float16": 2e-3}  # of a vector's largest component
Key = tuple[str, bytes]


@dataclass(frozen=True)
class Asked:
    """Those options of a store that may change from run to run, as the command line takes them."""

    calibration: str = ""
    precision: str = "float32"
    keep: str = "lang"
    dim: int = 24
    index: str = "none"
    metric: str = "cosine"

    def flags(self, before: "Asked | None" = None) -> list[object]:
        """The options that differ from earlier ones, or all."""
        given: list[object] = []
        for name, value in vars(self).items():
            if before is None or value != getattr(before, name):
                given += [_FLAGS[name], value]
        return given


_FLAGS = {
    "calibration": "--calibration", "precision": "--precision", "keep": "--keep-columns", "dim": "--dim",
    "index": "--index", "metric": "--metric",
}  # fmt: skip
_VALUES: dict[str, list[Any]] = {
    "precision": ["float32", "float16", "int8", "uint8", "binary"], "keep": ["lang", "", "lang,text"],
    "dim": [16, 24], "index": ["none", "Flat", "SQ8", "IVF2,SQ8"], "metric": ["cosine", "ip", "l2"],
}  # fmt: skip


@dataclass(frozen=True)
class State:
    """What a store is to hold: files with their rows, how they were asked for, and erased ids."""

    files: Files
    asked: Asked
    gone: frozenset[str] = frozenset()

    @property
    def rows(self) -> Counter[tuple[str, bytes, str | None]]:
        """(id, row hash, kept value) of every good row."""
        rows = (row for rows in self.files.values() for row in rows)
        kept = "lang" in self.asked.keep
        return Counter(
            (i, row_hash(text), lang if kept else None)
            for i, text, lang in rows
            if text is not None and i not in self.gone
        )

    @property
    def rejected(self) -> int:
        return sum(
            text is None or i in self.gone for rows in self.files.values() for i, text, _ in rows
        )


@dataclass
class History:
    """A store, the collection beside it, and what each of its snapshots is to hold; a step is one
    command.
    """

    run: Run
    model: Path
    folder: Path
    partition: str
    seed: int
    past: dict[str, State] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.rng = random.Random(self.seed)
        self.collection = Collection(self.folder / "in", self.seed, rows=50)
        self.embed(Asked().flags(), State(self.on_disk(), Asked()))
        fitted = [
            fit_on(self.store, method, self.folder / method[:5])
            for method in ("standardize", "remove-top:2")
        ]
        self.calibrations = ["", *map(str, fitted)]

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def manifest(self) -> Manifest:
        return open_store(str(self.store)).manifest

    @property
    def state(self) -> State:
        return self.past[self.manifest.run]

    def on_disk(self) -> Files:
        return {name: list(rows) for name, rows in self.collection.files.items()}

    def call(self, name: str, arguments: list[object], becomes: State) -> None:
        """Run a command that makes a snapshot, and look at it."""
        self.steps.append(" ".join(map(str, [name, *arguments])))
        self.run(name, "--store", self.store, *arguments).ok()
        self.past[self.manifest.run] = becomes
        check_ledger(self.store, becomes.rows.total(), becomes.rejected)
        check_rows(self.store, becomes)
        check_index(self.manifest, becomes)

    def embed(self, options: list[object], becomes: State) -> None:
        named = [
            "--input",
            self.collection.glob,
            "--model",
            self.model,
            "--partition",
            self.partition,
        ]
        self.call("embed", [*named, *FIXED, *options], becomes)

    def changed(self, **always: Any) -> Asked:
        """The options with some of them changed."""
        values = {"calibration": self.calibrations, **_VALUES}
        chosen = {
            name: self.rng.choice(among)
            for name, among in values.items()
            if self.rng.random() < 0.25
        }
        return replace(self.state.asked, **{**chosen, **always})

    def night(self) -> None:
        """Whatever befalls the collection, and other options."""
        self.collection.befalls(self.rng.choices(CHANGES, k=self.rng.randint(0, 5)))
        before, asked = self.state.asked, self.changed()
        again = ["--reembed"] if self.rng.random() < 0.1 else []
        now = replace(self.state, files=self.on_disk(), asked=asked)
        self.embed([*asked.flags(before), *again], now)

    def append(self) -> None:
        """A file more, while some of the earlier ones are no longer there."""
        held, files = self.state.files, self.collection.files
        if self.partition == "content" or any(
            held.get(name) != rows for name, rows in files.items()
        ):
            return self.night()
        for name in self.rng.sample(sorted(files), min(2, len(files) - 1)):
            del files[name]
        files[f"more{len(self.steps)}.jsonl"] = [
            new_row(self.rng) for _ in range(self.rng.randint(1, 8))
        ]
        self.collection.befalls([])
        self.embed(["--append"], replace(self.state, files={**held, **self.on_disk()}))

    def rollback(self) -> None:
        """An earlier snapshot again."""
        there = sorted(set(snapshots(str(self.store))) - {self.manifest.run})
        if not there:
            return self.night()
        chosen = self.rng.choice(there)
        self.call("rollback", [chosen], self.past[chosen])

    def vacuum(self) -> None:
        """What only earlier snapshots name, removed; and the rest as it was."""
        state = self.state
        self.steps.append("vacuum")
        self.run("vacuum", "--store", self.store, "--keep", self.rng.randint(1, 2)).ok()
        check_rows(self.store, state)
        check_index(self.manifest, state)

    def forget(self) -> None:
        """Some rows out of every file, also if they return; the snapshots before are removed."""
        ids = sorted({i for i, _, _ in self.state.rows})
        if len(ids) < 10:
            return self.night()
        erased = self.rng.sample(ids, 3)
        becomes = replace(self.state, gone=self.state.gone | {*erased})
        self.call("forget", ["--id", *erased], becomes)
        assert snapshots(str(self.store)) == [self.manifest.run]
        self.run("verify", "--store", self.store, "--forgotten").ok()

    def index(self) -> None:
        """Another index."""
        asked = replace(
            self.state.asked,
            index=self.rng.choice(_VALUES["index"][1:]),
            metric=self.rng.choice(_VALUES["metric"]),
        )
        self.call(
            "index",
            ["--index", asked.index, "--metric", asked.metric],
            replace(self.state, asked=asked),
        )

    def recalibrate(self) -> None:
        """Another calibration."""
        asked = replace(self.state.asked, calibration=self.rng.choice(self.calibrations[1:]))
        self.call(
            "recalibrate", ["--calibration", asked.calibration], replace(self.state, asked=asked)
        )

    def go(self, steps: int) -> None:
        """So many steps, then the store beside one that is made from scratch of what it holds."""
        acts = [
            self.night,
            self.night,
            self.night,
            self.append,
            self.rollback,
            self.vacuum,
            self.forget,
            self.index,
            self.recalibrate,
        ]
        try:
            for _ in range(steps):
                self.rng.choice(acts)()
            self.check_from_scratch()
        except BaseException as error:
            raise AssertionError(
                f"seed {self.seed}, {self.partition}:\n" + "\n".join(self.steps)
            ) from error

    def check_from_scratch(self) -> None:
        state, fresh = self.state, self.folder / "fresh"
        scratch = Collection(self.folder / "scratch", self.seed)
        scratch.files = {
            name: [row for row in rows if row[0] not in state.gone]
            for name, rows in state.files.items()
        }
        scratch.befalls([])
        named = ["--input", scratch.glob, "--model", self.model, "--partition", self.partition]
        self.run("embed", "--store", fresh, *named, *FIXED, *state.asked.flags()).ok()
        made = open_store(str(fresh)).manifest
        assert self.manifest.space.id == made.space.id
        mine, theirs = vectors(self.manifest), vectors(made)
        assert mine.keys() == theirs.keys()
        for key, of_kinds in mine.items():
            for (vector, off), (other, _) in zip(of_kinds, theirs[key], strict=True):
                assert np.abs(vector - other).max() <= off * np.abs(other).max()


def check_rows(store: Path, state: State) -> None:
    """The store has these rows, with the columns that were asked for."""
    dataset = open_store(str(store)).dataset()
    names = set(dataset.schema.names)
    if state.rows:
        assert ("lang" in names, "text" in names) == ("lang" in state.asked.keep, True)
        rows = dataset.to_table(
            columns=sorted(names & {"id", "row_hash", "lang", "text"})
        ).to_pylist()
        assert Counter((row["id"], row["row_hash"], row.get("lang")) for row in rows) == state.rows
        assert all(row_hash(row["text"]) == row["row_hash"] for row in rows if "text" in row)


def check_index(manifest: Manifest, state: State) -> None:
    """Where there is to be an index it is one, and finds every row and no other."""
    index = manifest.data["index"]
    if not state.rows:
        return
    assert (index is not None) == (state.asked.index != "none")
    if index is not None:
        assert (index["factory"], index["metric"]) == (state.asked.index, state.asked.metric)
        searcher = Searcher(
            Manifest.from_data(manifest.root, {**manifest.data, "index": {**index, "nprobe": 64}})
        )
        hits = searcher.nearest(np.ones((1, manifest.space.dim), np.float32), 10_000)
        (rows,) = searcher.rows.describe(hits)
        assert Counter(row["id"] for row in rows) == Counter(i for i, _, _ in state.rows.elements())


def vectors(manifest: Manifest) -> dict[Key, list[tuple[np.ndarray, float]]]:
    """Of each id and text the pooled vector, and the stored one where it is a float; how exact each
    of them is.
    """
    found: dict[Key, list[tuple[np.ndarray, float]]] = {}
    table = open_store(manifest.root).dataset().to_table()
    pooled = [
        part
        for path in manifest.shard_paths
        for part, _ in read_pooled(path, manifest.space.normalize)
    ]
    exact = EXACT.get(manifest.space.precision)
    for row, whole in zip(table.to_pylist(), np.concatenate(pooled) if pooled else [], strict=True):
        stored = [(np.array(row["embedding"], np.float32), exact)] if exact else []
        found[row["id"], row["row_hash"]] = [(whole, 2e-5), *stored]
    return found


@pytest.mark.parametrize("partition", ["content", pytest.param("file", marks=pytest.mark.slow)])
def test_a_history(
    run: Run, model: Path, tmp_path: Path, tell: Callable[[str], None], partition: str
) -> None:
    history = History(run, model, tmp_path / "case", partition, seed=3)
    history.go(5)
    tell(f"histories, {partition}: 1 history, {len(history.steps)} commands")


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["file", "content"])
def test_histories(
    run: Run, model: Path, tmp_path: Path, tell: Callable[[str], None], partition: str, size: float
) -> None:
    commands, first = 0, random.SystemRandom().randrange(10**6)
    histories = max(1, int(20 * size))
    for seed in range(first, first + histories):
        history = History(run, model, tmp_path / "case", partition, seed)
        history.go(10)
        commands += len(history.steps)
    tell(f"histories, {partition}: {histories} histories from seed {first}, {commands} commands")
