"""The end of a run, by list in and list out.

Covers transforms/steps/commit/commit_run.py.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import eager
from helpers.nights import Nights
from helpers.settled import settled
from helpers.snapshots import units_of

from sentence_beam.transforms.beam import Commit, Settle
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import RangesEntry
from sentence_beam.transforms.store.index_entries import IndexEntry
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.records import Problem
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.run_facts import IndexRecord, RunFact
from sentence_beam.transforms.store.runs.run_result import COMMITTED, read_result

pytestmark = pytest.mark.usefixtures("plain_beam")

PROBLEMS = [Problem("worse", 4), Problem("lost", 1), Problem("found", 1)]
FILES = {"a": [("1", "x"), ("2", "y")], "b": [("3", "z")]}


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path / "store")


def test_units_become_the_snapshot(nights: Nights) -> None:
    nights.commit_without_index(FILES)
    run, units = nights.begin({**FILES, "b": [("3", "other"), ("4", "z")]})
    # an engine may deliver a unit twice
    (result,) = eager.run(Commit(run), [settled(run, [*units, units[0]])], [])
    assert (result.status, result.exit_code, result.ledger["written"]) == (COMMITTED, 0, 4)
    assert result.changes == {"added": 1, "changed": 1, "deleted": 0}
    assert nights.manifest.run == run.id
    assert [(unit["unit"], unit["sha256"]) for unit in units_of(nights.root)] == sorted(
        (u.unit, u.sha256) for u in units
    )
    assert read_result(run.root, run.id) == result
    assert (nights.root / "report.json").is_file()


def test_what_else_is_known_of_a_run_is_put_on_record(nights: Nights) -> None:
    run, units = nights.begin(FILES)
    scratch = nights.root / "runs" / run.id / "index"
    scratch.mkdir(parents=True)
    (scratch / "index-queries.npy").write_bytes(b"")
    said = dict.fromkeys(("nprobe", "rerank", "rows"), 0) | {"factory": "Flat", "metric": "ip"}
    file = {"path": layout.index_file("0" * 64, "faiss"), "sha256": "0" * 64}
    files = {"trained": file, "queries": file}
    index = IndexEntry.from_json({**said, **files, "segments": [], "request": {}, "recall": None})
    ranges = RangesEntry("ranges/0.json", "0", "s")
    known = [RunFact(index=IndexRecord(index)), RunFact(ranges=ranges)]
    (result,) = eager.run(
        Commit(run),
        [settled(run, units)],
        known,
        [RunFact(duplicate_ids=2), RunFact(duplicate_ids=3)],
    )
    assert result.duplicate_ids == 5
    assert nights.manifest.index == result.index == index
    assert nights.manifest.ranges == ranges
    assert not scratch.exists()


def test_a_problem_is_the_result_and_leaves_the_store_alone(nights: Nights) -> None:
    nights.commit_without_index(FILES)
    run, units = nights.begin(FILES)
    (result,) = eager.run(Commit(run), [settled(run, units, PROBLEMS)], [])
    assert (result.exit_code, result.message) == (1, "found")  # always the same one of several
    assert read_result(run.root, run.id) == result
    assert nights.manifest.run == run.previous


BAD_UNITS: dict[str, tuple[Callable[[list], list], int]] = {
    "one is missing": (lambda units: units[:1], 4),
    "one was written twice": (lambda units: [*units, replace(units[0], sha256="0" * 64)], 4),
    "rows that nobody read": (lambda units: [units[0], replace(units[1], rows=2)], 4),
    "too many rejected": (
        lambda units: [replace(unit, rows=0, embedded=0, rejected=unit.rows) for unit in units],
        3,
    ),
}


@pytest.mark.parametrize("what", BAD_UNITS)
def test_units_that_do_not_pass_are_not_committed(nights: Nights, what: str) -> None:
    change, status = BAD_UNITS[what]
    run, units = nights.begin(FILES)
    (result,) = eager.run(Commit(run), [settled(run, change(units))], [])
    assert result.exit_code == status
    assert read_manifest(run.root) is None


def test_a_run_without_any_unit_is_committed(nights: Nights) -> None:
    run, _ = nights.begin({})
    (result,) = eager.run(Commit(run), eager.run(Settle(run), [], []), [])
    assert (result.status, result.ledger["read"]) == (COMMITTED, 0)
    assert units_of(nights.root) == []


def test_a_commit_that_is_tried_again_finds_its_own_snapshot(nights: Nights) -> None:
    run, units = nights.begin(FILES)
    (first,) = eager.run(Commit(run), [settled(run, units)], [])
    written = nights.root.joinpath("manifest.json").read_bytes()
    (again,) = eager.run(Commit(run), [settled(run, units)], [])
    assert (again.status, again.ledger) == (COMMITTED, first.ledger)
    assert nights.root.joinpath("manifest.json").read_bytes() == written


def test_another_runs_snapshot_is_not_replaced(nights: Nights) -> None:
    late, units = nights.begin(FILES)
    nights.commit_without_index(FILES)
    (result,) = eager.run(Commit(late), [settled(late, units)], [])
    assert result.exit_code == 1
    assert nights.manifest.run == "run2"


def failing(run: Run) -> None:
    eager.run(Commit(run, raises=True), [RunFact(problem=Problem("the reason", 3))], [])


def test_where_nobody_waits_a_failed_run_is_a_failed_job(nights: Nights) -> None:
    run, _ = nights.begin(FILES)
    with pytest.raises(Exception, match="the reason"):
        failing(run)
    result = read_result(run.root, run.id)
    assert result is not None
    assert (result.exit_code, result.message) == (3, "the reason")
