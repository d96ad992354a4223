"""Units written again without the model, by list in and list out: here without erased rows.

Covers transforms/steps/forget/unit_eraser.py.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers import eager
from helpers.snapshots import night, numbered, records_of, run_name

from sentence_beam.transforms.beam.rewrite import RewriteUnits
from sentence_beam.transforms.steps.forget.unit_eraser import UnitEraser
from sentence_beam.transforms.steps.options.from_snapshot import make_run_like
from sentence_beam.transforms.store.forgetting.hashes import (
    ForgottenRow,
    ForgottenRows,
    hash_id,
    make_entry,
    write_rows,
)
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.shards.reject_files import read_rejects

pytestmark = pytest.mark.usefixtures("plain_beam")


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A store of two units whose ids are the rows' own."""
    root = str(tmp_path / "store")
    night(root, 0, numbered(0, 5), numbered(5, 8), id_column="id")
    return root


def run_without(root: str, *ids: str) -> Run:
    """A run that erases some rows."""
    rows = ForgottenRows.none()
    rows = rows.add_rows(ForgottenRow(hash_id(rows.key_bytes, name), True) for name in ids)
    write_rows(root, rows)
    manifest = read_manifest(root)
    assert manifest is not None
    run = make_run_like(manifest, run_name(1), "forget")
    return replace(run, forgotten=make_entry(rows, run.id))


def rewritten(run: Run) -> dict[str, list[object]]:
    """What comes of all units of the store."""
    step = RewriteUnits(run, partial(UnitEraser, run, 2))
    return eager.outputs(step, records_of(run.root), names=("units", "problems"))


def test_the_rows_are_rejected_as_keyed_hashes_and_all_others_stay_bit_for_bit(root: str) -> None:
    before = {unit.unit: pq.read_table(f"{root}/{unit.path}") for unit in records_of(root)}
    run = run_without(root, "r1", "r3")
    made = rewritten(run)
    assert made["problems"] == []
    first, second = sorted(made["units"], key=lambda unit: unit.unit)
    assert isinstance(first, UnitRecord)
    assert (first.rows, first.read, first.rejected, first.forgotten) == (3, 5, 2, 2)
    assert (first.reused, first.embedded) == (3, 0)
    table = pq.read_table(f"{root}/{first.path}")
    assert table.equals(before[first.unit].take([0, 2, 4]))
    rejects = read_rejects(f"{root}/{first.rejects}", first.rejects_sha256)
    assert {reject.reason for reject in rejects} == {"forgotten"}
    assert "r1" not in str(rejects)
    assert isinstance(second, UnitRecord)
    other = records_of(root)[1]
    assert (second.path, second.sha256, second.reused) == (other.path, other.sha256, 3)


def test_done_again_it_finds_its_units_finished(root: str) -> None:
    run = run_without(root, "r1")
    first = rewritten(run)["units"]
    written = {path: path.stat().st_ino for path in Path(root, "embeddings").iterdir()}
    assert rewritten(run)["units"] == [replace(unit, run="") for unit in first]
    assert {path: path.stat().st_ino for path in Path(root, "embeddings").iterdir()} == written


def test_a_unit_of_which_no_row_is_left_has_no_shard(root: str) -> None:
    run = run_without(root, "r5", "r6", "r7")
    made = sorted(rewritten(run)["units"], key=lambda unit: unit.unit)
    assert (made[1].rows, made[1].path, made[1].rejected) == (0, None, 3)


def test_a_damaged_shard_is_a_problem_that_names_it(root: str) -> None:
    run = run_without(root, "r1")
    path = Path(root, records_of(root)[0].path or "")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    made = rewritten(run)
    assert len(made["units"]) == 1
    [problem] = made["problems"]
    assert path.name in problem.message
