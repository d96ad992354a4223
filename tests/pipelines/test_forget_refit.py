"""forget --refit: what was fitted with erased rows is fitted again, and a receipt says so.

Covers pipelines/common/refit.py.
Covers transforms/steps/forget/fits.py.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import Run
from helpers.erasing import KeptTexts, forget, planted, read, rows, three_nights
from helpers.nights import vector_of
from helpers.snapshots import run_name
from helpers.store_scan import scan
from helpers.watching import BY_ID

from sentence_beam.pipelines.common import refit
from sentence_beam.transforms.base.errors import DataGateError
from sentence_beam.transforms.beam import IndexRequest
from sentence_beam.transforms.store.calibrations import kept_calibration
from sentence_beam.transforms.store.manifest import snapshots

pytest.importorskip("faiss")
pytestmark = pytest.mark.usefixtures("plain_beam")
GONE = ["person-00003", "person-00017"]
LEFT = [text for name, text in rows("person", 60) if name not in GONE]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with an index that was trained on all rows, to copy."""
    folder = tmp_path_factory.mktemp("made")
    nights = KeptTexts(folder / "store", options=BY_ID)
    nights.commit({"f": rows("person", 60)}, IndexRequest("IVF4,SQ8"))
    return nights.root


@pytest.fixture
def trained(made: Path, tmp_path: Path) -> Path:
    """A store with an index that was trained on all rows."""
    return Path(shutil.copytree(made, tmp_path / "store"))


@pytest.fixture
def calibrated(run: Run, trained: Path, tmp_path: Path) -> Path:
    """A store whose calibration was fitted on all rows, with an index."""
    fitted = tmp_path / "fitted"
    run("fit", "--store", trained, "--method", "standardize", "--output", fitted).ok()
    run("recalibrate", "--store", trained, "--calibration", fitted).ok()
    return trained


def mean_of(store: Path) -> np.ndarray:
    """Return the mean that the store's calibration subtracts."""
    calibration = kept_calibration(str(store), read(store).space)
    assert calibration is not None
    assert calibration.info["fitted_on"]["n"] == len(LEFT)
    found: np.ndarray = calibration.tensors["mean"]
    return found


def erased(run: Run, store: Path, *options: object) -> dict[str, Any]:
    """Erase the rows with --refit, and return what --json prints."""
    out = forget(run, store, *GONE, options=("--refit", "--json", *options)).ok().out
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_quantizer_is_trained_again(run: Run, trained: Path) -> None:
    before = read(trained).data["index"]["trained"]["sha256"]
    said = erased(run, trained)
    index = read(trained).index
    assert index is not None
    assert index.trained.sha256 != before
    assert index.rows == len(LEFT)
    assert said["fitted"] == [before]
    assert said["refit"]["replaced"] == [before]
    assert len(said["refit"]["fitted_again"]) == 1
    assert [line for line in said["refit"]["statistics"] if before[:12] in line]  # of earlier ones
    again = erased(run, trained)
    assert "refit" not in again
    assert read(trained).index == index
    run("verify", "--store", trained).ok()
    run("verify", "--store", trained, "--forgotten").ok()


def test_a_calibration_is_fitted_again(run: Run, calibrated: Path) -> None:
    traces = planted(calibrated, GONE)
    digest = read(calibrated).space.calibration
    said = erased(run, calibrated, "--drop-history")
    np.testing.assert_allclose(
        mean_of(calibrated), np.mean([vector_of(text) for text in LEFT], axis=0), atol=1e-6
    )
    assert read(calibrated).space.calibration != digest
    assert said["refit"]["statistics"] == []
    assert len(said["refit"]["fitted_again"]) == 2  # the index too
    assert snapshots(str(calibrated)) == [read(calibrated).run]
    assert not list(calibrated.glob(f"calibrations/{digest}/*"))
    assert scan(calibrated, traces) == []
    run("verify", "--store", calibrated).ok()
    run("verify", "--store", calibrated, "--forgotten").ok()


def test_the_centroid_of_a_list_with_one_row(run: Run, tmp_path: Path) -> None:
    """Its bytes are the row's vector, which leaves with the quantizer."""
    nights = KeptTexts(tmp_path / "store", options=BY_ID, run_name=run_name)
    store = nights.root
    nights.commit(
        {"f": rows("person", 60), "odd": [("odd-z", "z is odd")]}, IndexRequest("IVF5,SQ8")
    )
    traces = planted(store, ["odd-z"])
    forget(run, store, "odd-z").ok()
    assert {line.partition(": ")[2] for line in scan(store, traces)} == {
        "float32 of odd-z",
        "unit float32 of odd-z",
    }
    forget(run, store, "odd-z", options=("--refit", "--drop-history")).ok()
    assert scan(store, traces) == []


def test_a_refit_that_stops_is_taken_up(
    run: Run, calibrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object) -> None:
        raise DataGateError("no room")

    with monkeypatch.context() as patch:  # before anything was fitted
        patch.setattr(refit, "fit_store", stop)
        failed = forget(run, calibrated, *GONE, options=("--refit",))
        assert failed.status == 3
        assert "the rows are erased, but fitting again failed: no room" in failed.err
    run("verify", "--store", calibrated, "--forgotten").ok()
    with monkeypatch.context() as patch:  # after the new snapshot, before its receipt
        patch.setattr(refit, "refit_receipt", stop)
        assert forget(run, calibrated, *GONE, options=("--refit",)).status == 3
    fitted = read(calibrated)
    assert len(mean_of(calibrated))
    said = erased(run, calibrated)
    assert read(calibrated).run == fitted.run  # nothing is fitted twice
    assert said["refit"]["snapshot"] == fitted.run
    assert "refit" not in erased(run, calibrated)


def test_nothing_to_fit(run: Run, tmp_path: Path) -> None:
    nights = KeptTexts(tmp_path / "store", options=BY_ID)
    nights.commit_without_index({"f": rows("person", 20)})
    out = forget(run, nights.root, *GONE, options=("--refit", "--dry-run")).ok().out
    assert "nothing: the store has no fit" in out
    out = forget(run, nights.root, *GONE, options=("--refit",)).ok().out
    assert "no erased row took part in a fit" in out


def test_a_dry_run_names_the_fits(run: Run, tmp_path: Path) -> None:
    store = three_nights(tmp_path, "IVF8,SQ8", 40).root
    out = forget(run, store, "late-00005", options=("--refit", "--dry-run")).ok().out
    assert "refit       quantizer" in out
    assert len(list(store.glob("forgotten/*"))) == 0
