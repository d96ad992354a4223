"""Files beyond the budget of a run: which wait, what the store has of them, and what it says.

Covers transforms/steps/plan/budget.py.
"""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers.corpora import write_jsonl
from helpers.plans import ids_in, job_of, night, planned
from helpers.snapshots import files_of, units_of

from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.runs.recorded_plan import pending_in
from sentence_beam.transforms.store.runs.result import Result
from sentence_beam.transforms.store.verification import faults

ALONE = 60  # rows of a file that shares no unit


def rows_of(name: str, rows: int, edit: int = 0) -> list[dict[str, str]]:
    return [
        {"id": f"{name}-{row}-{edit}", "text": f"text {name} {row} {edit}"} for row in range(rows)
    ]


class Two:
    """A folder, and two stores of it: one with a budget, one without."""

    def __init__(self, folder: Path):
        self.folder = folder / "in"
        self.budgeted = folder / "budgeted"
        self.plain = folder / "plain"
        self.number = 0

    def write(self, name: str, rows: int, edit: int = 0) -> None:
        write_jsonl(self.folder / f"{name}.jsonl", rows_of(name, rows, edit))

    def night(self, budget: int | None, **values: Any) -> Result:
        """A night of the store with a budget, and the same one of the other."""
        self.number += 1
        glob = self.folder / "*.jsonl"
        values = {"max_deletes": 1.0, **values}
        assert night(self.plain, glob, number=self.number, **values).message == "committed"
        return night(self.budgeted, glob, number=self.number, budget=budget, **values)


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


def manifest_of(store: Path) -> Manifest:
    manifest = read_manifest(str(store))
    assert manifest is not None
    return manifest


def shards_of(store: Path) -> list[tuple[Any, ...]]:
    return [(unit["unit"], unit["path"], unit["rows"], unit["read"]) for unit in units_of(store)]


def cut_files_of(store: Path) -> list[dict[str, Any]]:
    """The files of a store; how an empty one would be cut is chosen when it has rows."""
    files = files_of(store)
    return [file if file["size"] else {**file, "cut": None} for file in files]


def test_random_histories(two: Two, tmp_path: Path) -> None:
    for seed in range(60):
        history = Two(tmp_path / str(seed))
        try:
            go(history, random.Random(seed))
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error


def go(two: Two, rng: random.Random) -> None:
    files: dict[str, tuple[int, int]] = {}
    held: dict[str, set[str]] = {}
    count = 0
    for _ in range(rng.randint(3, 7)):
        for _ in range(rng.choice([0, 1, 3, 25])):
            count += 1
            name = f"{rng.randrange(1000):03d}-{count}"
            files[name] = (rng.choice([0, 1, 3, ALONE, 200]), 0)
            two.write(name, *files[name])
        for name in list(files):
            what = rng.random()
            if what < 0.1:
                files[name] = (rng.choice([0, 1, 3, ALONE]), files[name][1] + 1)
                two.write(name, *files[name])
            elif what < 0.2:
                del files[name]
                (two.folder / f"{name}.jsonl").unlink()
        if not files:
            continue
        result = two.night(rng.choice([1, 50, 1000, 10**9]))
        assert result.message == "committed", result.message
        held = check(two, files, held)
    for _ in range(100):
        if not manifest_of(two.budgeted).pending.files:
            break
        assert two.night(500).message == "committed"
        held = check(two, files, held)
    assert shards_of(two.budgeted) == shards_of(two.plain)
    assert cut_files_of(two.budgeted) == cut_files_of(two.plain)


def check(
    two: Two, files: Mapping[str, tuple[int, int]], held: Mapping[str, set[str]]
) -> dict[str, set[str]]:
    """Check that the rows of each file are those of the last snapshot or of the input."""
    manifest = manifest_of(two.budgeted)
    assert not list(faults(manifest))
    table = manifest.read_files()
    assert pending_in(table) == manifest.pending
    waiting = {row["path"] for row in table.to_pylist() if row["pending_bytes"] is not None}
    now: dict[str, set[str]] = {}
    for row_id in ids_in(two.budgeted):
        now.setdefault(row_id.rpartition("-")[0].rpartition("-")[0], set()).add(row_id)
    for name, made in files.items():
        path = f"{name}.jsonl"
        wanted = {row["id"] for row in rows_of(name, *made)}
        if path in waiting:
            assert now.get(name, set()) == held.get(name, set())
        else:
            assert now.get(name, set()) == wanted
    assert set(now) <= set(files)
    return now
