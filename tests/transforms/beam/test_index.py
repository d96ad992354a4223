"""An index by list in and list out: built, updated and trained again."""

from pathlib import Path
from typing import Any

import pytest
from helpers import eager
from helpers.nights import Nights, nearest
from helpers.settled import settled
from helpers.variants import variants

from sentence_beam.transforms.beam import BuildIndex, IndexRequest
from sentence_beam.transforms.beam.index import DONE, RETRAIN, TrainIndex, UpdateIndex
from sentence_beam.transforms.steps.commit.commit_run import commit_run
from sentence_beam.transforms.steps.index.decisions import RequestedIndex, choose_work
from sentence_beam.transforms.steps.index.index_build import TrainingGroup
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.run_facts import RunFact
from sentence_beam.transforms.store.verification import faults

pytest.importorskip("faiss")

pytestmark = pytest.mark.usefixtures("plain_beam")

REQUEST = IndexRequest("IVF4,Flat")
FILES = {
    name: [(f"{name}{i}", f"{'abcd'[i % 4]} {name} {i}") for i in range(60)]
    for name in ("x", "y", "z")
}
CHANGED = {**FILES, "z": [*FILES["z"][2:], ("new", "a new one")]}
EVERYWHERE = {"nprobe": 4}


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path / "store")


@pytest.fixture
def indexed(nights: Nights) -> Nights:
    """A store with a snapshot of `FILES` and its index."""
    run, units = nights.begin(FILES)
    commit_run(
        [settled(run, units), *eager.run(BuildIndex(run, REQUEST), [settled(run, units)])], run
    )
    return nights


def check_found(nights: Nights, files: dict[str, list[tuple[str, str]]]) -> None:
    """Every row and no other is found, and the nearest are those of brute force."""
    assert list(faults(nights.manifest)) == []
    (rows,) = nights.search(["a question"], 200, **EVERYWHERE)
    assert sorted(row_id for _, row_id in rows) == sorted(
        row_id for rows in files.values() for row_id, _ in rows
    )
    (rows,) = nights.search(["b question"], 5, **EVERYWHERE)
    assert [score for score, _ in rows] == pytest.approx(nearest(files, "b question", 5), abs=1e-6)


def work(run: Run, units: list[UnitRecord]) -> list[Any]:
    """What is to be done for the index of a run."""
    return list(choose_work(settled(run, units), run, RequestedIndex(REQUEST)))


def test_build_index_gives_a_first_index(indexed: Nights) -> None:
    assert indexed.index["factory"] == "IVF4,Flat"
    assert indexed.index["rows"] == 180
    check_found(indexed, FILES)


def test_build_index_updates_the_last_one(indexed: Nights) -> None:
    run, units = indexed.begin(CHANGED)
    (record,) = eager.run(BuildIndex(run, REQUEST), [settled(run, units)])
    commit_run([settled(run, units), record], run)
    assert {name: getattr(record.index.entry.change, name) for name in ("what", "added", "deleted")} == {
        "what": "followed", "added": 1, "deleted": 2,
    }  # fmt: skip
    check_found(indexed, CHANGED)


def test_build_index_of_the_same_rows_is_the_last_one(indexed: Nights) -> None:
    run, units = indexed.begin(FILES)
    (record,) = eager.run(BuildIndex(run, REQUEST), [settled(run, units)])
    assert record.index.entry.to_json() == indexed.index
    commit_run([settled(run, units), record], run)
    assert {path.name for path in (indexed.root / "runs" / run.id).iterdir()} == {
        "plan.parquet",
        "result.json",
    }


def test_build_index_of_a_run_that_is_to_fail_is_its_problem(nights: Nights) -> None:
    run, units = nights.begin(FILES)
    assert eager.run(BuildIndex(run, REQUEST), [settled(run, units, [Problem("lost", 3)])]) == [
        RunFact(problem=Problem("lost", 3))
    ]
    assert not (nights.root / "index").exists()


@variants("indexed_before", [False, True], (0,))
def test_build_index_over_a_damaged_shard_is_a_problem_that_names_it(
    nights: Nights, indexed_before: bool
) -> None:
    if indexed_before:
        nights.commit({"x": FILES["x"]}, REQUEST)
    run, units = nights.begin(FILES)
    shard = nights.root / (next(unit.path for unit in units if unit.file == "z") or "")
    data = shard.read_bytes()
    # in the footer, where no page is
    shard.write_bytes(data[:-40] + bytes([data[-40] ^ 1]) + data[-39:])
    (fact,) = eager.run(BuildIndex(run, REQUEST), [settled(run, units)])
    mend = "remove it and run embed, which makes it again"
    assert fact.problem == Problem(
        f"{shard} was changed after it was written (sha256 differs); {mend}", 1
    )
    shard.unlink()
    (fact,) = eager.run(BuildIndex(run, REQUEST), [settled(run, units)])
    assert fact.problem == Problem(f"{shard} is missing; run embed, which makes it again", 1)


def test_build_index_of_no_rows_is_none(nights: Nights) -> None:
    run, units = nights.begin({"x": []})
    assert eager.run(BuildIndex(run, IndexRequest()), [settled(run, units)]) == []


def test_train_index_makes_a_segment_of_each_group(nights: Nights) -> None:
    run, units = nights.begin(FILES)
    groups = work(run, units)
    assert {type(group) for group in groups} == {TrainingGroup}
    (record,) = eager.run(TrainIndex(run.key), groups, [])
    kinds = [segment.kind for segment in record.index.entry.segments]
    assert kinds.count("base") == len(groups)
    assert sum(segment.rows for segment in record.index.entry.segments) == 180
    assert record.index.entry.recall.value > 0.5
    commit_run([settled(run, units), record], run)
    check_found(nights, FILES)


def test_train_index_of_nothing_gives_nothing(nights: Nights) -> None:
    assert eager.run(TrainIndex(nights.begin(FILES)[0].key), [], []) == []


def test_update_index_deletes_and_adds(indexed: Nights) -> None:
    before = {segment["number"]: segment["path"] for segment in indexed.index["segments"]}
    run, units = indexed.begin(CHANGED)
    found = eager.outputs(UpdateIndex(run.key), work(run, units), names=(DONE, RETRAIN))
    assert found[RETRAIN] == []
    (record,) = found[DONE]
    assert sum(segment.deleted for segment in record.index.entry.segments) == 2
    assert [
        segment.path for segment in record.index.entry.segments if segment.number in before
    ] == [*before.values()]
    commit_run([settled(run, units), record], run)
    check_found(indexed, CHANGED)


def test_update_index_hands_on_what_is_to_be_trained_again(indexed: Nights) -> None:
    run, units = indexed.begin(CHANGED)
    reads = work(run, units)
    (held_out,) = (s for s in indexed.index["segments"] if s["kind"] == "held-out")
    damaged = held_out["locator"]
    (indexed.root / damaged).write_bytes(b"PAR1")
    found = eager.outputs(UpdateIndex(run.key), reads, names=(DONE, RETRAIN))
    assert found[DONE] == []
    assert {group.job.why for group in found[RETRAIN]} == {
        f"{damaged} was changed after it was written (sha256 differs)"
    }
    (record,) = eager.run(TrainIndex(run.key), [], found[RETRAIN])
    commit_run([settled(run, units), record], run)
    check_found(indexed, CHANGED)
