"""Runs over a store as it is: every unit is carried over, and what the store says of itself
stays.
"""

from pathlib import Path

import pytest
from helpers.settled import finish
from helpers.snapshots import files_of, night, numbered, parts_of, planned_files, run_name, units_of

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.steps.options.from_snapshot import (
    make_run_like,
    read_units_of_part,
    record_plan,
)
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs.recorded_plan import read_plan
from sentence_beam.transforms.store.verification import faults


def test_a_run_that_carries_everything_over_commits_the_same_rows(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    night(root, 0, numbered(0, 5), numbered(5, 9))
    before = open_store(root).manifest
    run = make_run_like(before, run_name(1), "index")
    record_plan(before, run.id)
    lease.acquire(root, lease.Lease.from_this_process(run.id, "FnApiRunner", run.id, True))
    assert finish(run, []).message == "committed"
    after = open_store(root).manifest
    assert (after.run, after.data["previous"]) == (run.id, before.run)
    assert after.data["work"] == {"embedded": 0, "reused": 0, "duplicates": 0, "carried": 9}
    for name in ("space", "options", "partition", "unit_tokens", "input", "rows"):
        assert after.data[name] == before.data[name]
    assert parts_of(root) == before.data["units"]["parts"]
    assert not list(faults(after))


def test_the_plan_carries_every_file_over(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    night(root, 0, numbered(0, 5), numbered(5, 9))
    manifest = open_store(root).manifest
    record_plan(manifest, run_name(1))
    plan = read_plan(root, run_name(1))
    assert planned_files(plan.files) == files_of(root)
    assert set(plan.files.column("carried").to_pylist()) == {True}
    assert plan.notes.snapshot == manifest.run
    assert not plan.span_count


def test_the_units_of_the_parts_are_those_of_the_snapshot(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    night(root, 0, numbered(0, 5), numbered(5, 9))
    parts = open_store(root).manifest.units.parts
    units = [unit for part in parts for unit in read_units_of_part(part, root)]
    assert [unit.unit for unit in units] == [unit["unit"] for unit in units_of(root)]


def test_the_units_of_a_part_that_is_not_there_are_not_none(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    night(root, 0, numbered(0, 5))
    (part,) = open_store(root).manifest.units.parts
    (tmp_path / "store" / part.path).unlink()
    with pytest.raises(SentenceBeamError, match=f"{part.path}.* is missing"):
        list(read_units_of_part(part, root))
