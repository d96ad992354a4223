"""A calibration fitted on shards, by list in and list out.

Covers transforms/steps/fit/store_fit.py.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import eager
from helpers.nights import space_of
from helpers.vector_shards import write_shards

from sentence_beam.transforms.beam.fit import FitCalibration
from sentence_beam.transforms.calibration import load_calibration, parse_calibration
from sentence_beam.transforms.steps.fit.fit_result import read_result
from sentence_beam.transforms.steps.fit.gathered_vectors import GatherJob
from sentence_beam.transforms.steps.fit.store_fit import FitJob, divide_shards

pytestmark = pytest.mark.usefixtures("plain_beam")

DIM = 6
ROWS = (
    np.random.default_rng(0).normal(size=(300, DIM)) @ np.diag(1.0 + np.arange(DIM)) + 5
).astype(np.float32)


def job_of(folder: Path, method: str, **changes: Any) -> FitJob:
    """A fit on all rows of `ROWS`; the sample is left beside the calibration."""
    gather = GatherJob(f"{folder}/sample", want=100, rows=len(ROWS), normalized=True, whole=True)
    fitted_on = {"space": space_of(DIM).to_json()}
    spec = parse_calibration(method)
    return FitJob("run1", spec, str(folder / "fit"), gather, narrow=False, fitted_on=fitted_on)


def test_whitening_makes_the_covariance_the_identity(tmp_path: Path) -> None:
    shards = write_shards(tmp_path, ROWS, 5)
    (result,) = eager.run(FitCalibration(job_of(tmp_path, "whitening")), divide_shards(shards))
    calibration = load_calibration(str(tmp_path / "fit"))
    assert np.abs(np.cov(calibration.apply(ROWS).T) - np.eye(DIM)).max() < 1e-4
    assert (result.run, result.exit_code, result.message) == ("run1", 0, "")
    assert result.figures["n"] == len(ROWS)
    on_record = read_result(str(tmp_path / "fit"))
    assert on_record is not None
    assert result.figures["digest"] == on_record.figures["digest"] == calibration.digest


def test_it_is_the_same_from_any_number_of_shards(tmp_path: Path) -> None:
    found = []
    for count in (1, 7):
        folder = tmp_path / str(count)
        folder.mkdir()
        eager.run(
            FitCalibration(job_of(folder, "standardize")),
            divide_shards(write_shards(folder, ROWS, count)),
        )
        found.append(load_calibration(str(folder / "fit")).apply(ROWS))
    np.testing.assert_allclose(*found, rtol=0, atol=1e-6)


def test_a_sample_is_drawn_by_hash_and_is_the_same_each_time(tmp_path: Path) -> None:
    found = []
    for name, want, shards in (("a", 120, 5), ("b", 120, 2), ("all", 300, 5)):
        folder = tmp_path / name
        folder.mkdir()
        job = job_of(folder, "whitening:4")
        job = replace(job, gather=replace(job.gather, want=want, whole=False))
        (result,) = eager.run(
            FitCalibration(job), divide_shards(write_shards(folder, ROWS, shards))
        )
        assert result.figures["n"] == want
        found.append(result.figures["digest"])
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("method", ["whitening", "flow"])
def test_a_vector_that_is_not_finite_is_refused_by_shard_and_row(
    tmp_path: Path, method: str
) -> None:
    rows = ROWS.copy()
    rows[103, 1] = np.nan
    shards = write_shards(tmp_path, rows, 3)
    (result,) = eager.run(FitCalibration(job_of(tmp_path, method)), divide_shards(shards))
    assert result.exit_code == 1
    assert f"{shards[1]}: the vector of row 3 is not finite" in result.message


@pytest.mark.parametrize(("method", "damage"), [("whitening", True), ("whitening:7", False)])
def test_a_failed_fit_is_a_result_and_no_calibration(
    tmp_path: Path, method: str, damage: bool
) -> None:
    shards = write_shards(tmp_path, ROWS, 3)
    if damage:
        Path(shards[1]).write_bytes(b"PAR1")
    (result,) = eager.run(FitCalibration(job_of(tmp_path, method)), divide_shards(shards))
    assert result.exit_code == (1 if damage else 2)
    assert (shards[1] if damage else "whitening:7") in result.message
    assert read_result(str(tmp_path / "fit")) == result
    assert [
        path.name for path in (tmp_path / "fit").iterdir() if not path.name.startswith(".")
    ] == ["fit.json"]
