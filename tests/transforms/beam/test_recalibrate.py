"""Units under another calibration, by list in and list out.

Covers transforms/steps/fit/recalibration.py.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers import eager
from helpers.calibrations import fit_on, standard_moments
from helpers.nights import DIM, Nights, vector_of
from helpers.snapshots import records_of

from sentence_beam.transforms import storage
from sentence_beam.transforms.beam.recalibrate import Recalibrate
from sentence_beam.transforms.calibration import Calibration, load_calibration, parse_calibration
from sentence_beam.transforms.steps.fit.recalibration import RecalibrateJob
from sentence_beam.transforms.store.calibrations import keep_calibration

pytestmark = pytest.mark.usefixtures("plain_beam")

FILES = {"a": [(str(i), f"{'xyz'[i % 3]} {i}") for i in range(40)], "b": [("last", "u")], "c": []}
OUTPUTS = ("units", "problems", "ranges")


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    """A store with one snapshot."""
    nights = Nights(tmp_path / "store")
    nights.commit_without_index(FILES)
    return nights


def job_of(nights: Nights, calibration: Calibration) -> RecalibrateJob:
    """A run that gives the store's vectors this calibration."""
    keep_calibration(str(nights.root), calibration)
    run, _ = nights.begin(FILES)
    space = nights.space.calibrated(calibration.digest, calibration.dim)
    return RecalibrateJob(replace(run, space=space), nights.space, units=1)


def fitted(nights: Nights, method: str) -> Calibration:
    return load_calibration(str(fit_on(nights.root, method, nights.root.parent / "calibration")))


def test_each_unit_has_calibrated_vectors_and_keeps_its_pooled_ones(nights: Nights) -> None:
    calibration = fitted(nights, "whitening:5")
    job = job_of(nights, calibration)
    found = eager.outputs(Recalibrate(job), records_of(nights.root), names=OUTPUTS)
    assert found["problems"] == []
    made = {unit.file: unit for unit in found["units"]}
    assert {name: (unit.rows, unit.reused) for name, unit in made.items()} == {
        "a": (40, 40),
        "b": (1, 1),
        "c": (0, 0),
    }
    for name in "ab":
        table = pq.read_table(storage.join(str(nights.root), made[name].path or ""))
        pooled = np.array([vector_of(text) for _, text in FILES[name]])
        expected = calibration.apply(pooled)
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        assert table.column("id").to_pylist() == [row_id for row_id, _ in FILES[name]]
        np.testing.assert_allclose(table.column("embedding").to_pylist(), expected, atol=1e-5)
        np.testing.assert_allclose(table.column("pooled").to_pylist(), pooled, atol=1e-6)


def test_done_again_it_finds_its_units_finished(nights: Nights) -> None:
    job = job_of(nights, fitted(nights, "standardize"))
    first = eager.outputs(Recalibrate(job), records_of(nights.root), names=OUTPUTS)["units"]
    written = {path: path.stat().st_ino for path in (nights.root / "embeddings").iterdir()}
    again = eager.outputs(Recalibrate(job), records_of(nights.root), names=OUTPUTS)["units"]
    assert {unit.unit: (unit.path, unit.reused) for unit in again} == {
        u.unit: (u.path, u.reused) for u in first
    }
    assert {path: path.stat().st_ino for path in (nights.root / "embeddings").iterdir()} == written


def test_a_row_that_loses_its_vector_is_a_problem_that_names_it(nights: Nights) -> None:
    tensors = {"mean": vector_of(dict(FILES["a"])["7"]).astype(np.float64), "scale": np.ones(DIM)}
    space = {"space": nights.space.to_json(), "moments": standard_moments(DIM)}
    job = job_of(
        nights, Calibration.make(parse_calibration("standardize"), tensors, (DIM, DIM), space, {})
    )
    found = eager.outputs(Recalibrate(job), records_of(nights.root), names=OUTPUTS)
    assert [
        (problem.exit_code, "of row 7;" in problem.message) for problem in found["problems"]
    ] == [(3, True)]
    assert {unit.file for unit in found["units"]} == {"b", "c"}


def test_a_damaged_shard_is_a_problem_that_names_it(nights: Nights) -> None:
    job = job_of(nights, fitted(nights, "standardize"))
    shard = next(unit.path for unit in records_of(nights.root) if unit.file == "a")
    path = Path(storage.join(str(nights.root), shard or ""))
    path.write_bytes(path.read_bytes()[:-20])
    found = eager.outputs(Recalibrate(job), records_of(nights.root), names=OUTPUTS)
    (problem,) = found["problems"]
    assert problem.exit_code == 1
    assert str(path) in problem.message
