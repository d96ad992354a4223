"""Runs over a store as it is: every unit is carried over, and what the store says of itself
stays.
"""

from pathlib import Path

import pytest
from helpers.settled import finish
from helpers.snapshots import night, numbered, run_name

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.steps.options.from_snapshot import (
    carried_units,
    record_plan,
    run_like,
    units_of,
)
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs.recorded_plan import read_plan
from sentence_beam.transforms.store.verify import faults


def test_a_run_that_carries_everything_over_commits_the_same_rows(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    night(root, 0, numbered(0, 5), numbered(5, 9))
    before = open_store(root).manifest
    run = run_like(before, run_name(1), "index")
    record_plan(before, run.id)
    units = list(carried_units(before.run, root))
    assert [unit.path for unit in units] == [unit.path for unit in units_of(before.run, root)]
    lease.acquire(root, lease.Lease.of_this_process(run.id, "FnApiRunner", run.id, True))
    assert finish(run, units, []).message == "committed"
    after = open_store(root).manifest
    assert (after.run, after.data["previous"]) == (run.id, before.run)
    assert after.data["work"] == {"embedded": 0, "reused": 0, "duplicates": 0, "carried": 9}
    for name in ("space", "options", "partition", "unit_tokens", "input", "rows"):
        assert after.data[name] == before.data[name]
    assert not list(faults(after))


def test_the_plan_lists_every_file_with_its_units(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    night(root, 0, numbered(0, 5), numbered(5, 9))
    manifest = open_store(root).manifest
    record_plan(manifest, run_name(1))
    plan = read_plan(root, run_name(1))
    assert plan.files == manifest.files
    assert [(span.name, span.carried) for span in plan.spans] == [
        (unit.unit, True) for unit in manifest.units
    ]


def test_the_units_of_a_snapshot_that_is_not_there_are_not_none(tmp_path: Path) -> None:
    assert read_manifest(str(tmp_path), run_name(0)) is None
    with pytest.raises(SentenceBeamError, match=f"snapshot {run_name(0)}, .* is missing"):
        list(units_of(run_name(0), str(tmp_path)))
