"""A run from its options: its id, and the copy of its calibration in the store."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from helpers.calibrations import standard_moments
from helpers.tiny_models import HIDDEN, save_tiny_model

from sentence_beam.transforms.calibration import Calibration, parse_calibration
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.steps.options.resolve import resolve_run
from sentence_beam.transforms.store.calibrations import kept_calibration
from sentence_beam.transforms.store.runs.run_ids import following


@pytest.fixture
def options(tmp_path: Path) -> EmbedOptions:
    """A text file, a model and a store that does not exist."""
    (tmp_path / "a.txt").write_text("a dog\n")
    model = save_tiny_model("bert", tmp_path / "model")
    return EmbedOptions(
        input=str(tmp_path / "a.txt"), store=str(tmp_path / "store"), model=str(model)
    )


def test_without_an_id_a_run_follows_all_runs_of_its_store(options: EmbedOptions) -> None:
    failed = following(None, datetime.now(UTC) + timedelta(days=1))
    folder = Path(options.store, "runs", failed)
    folder.mkdir(parents=True)
    (folder / "result.json").write_text("{}")
    assert resolve_run(options, None, local=True).job.run.id > failed
    assert resolve_run(options, None, "mine", local=True).job.run.id == "mine"


def test_the_store_gets_a_copy_of_the_calibration(options: EmbedOptions, tmp_path: Path) -> None:
    plain = resolve_run(options, None, local=True)
    plain.keep_calibration()
    assert not Path(options.store).exists()
    tensors = {"mean": np.zeros(HIDDEN), "scale": np.ones(HIDDEN)}
    info = {"space": plain.space.to_json(), "moments": standard_moments(HIDDEN)}
    method = parse_calibration("standardize")
    fit = Calibration.make(method, tensors, (HIDDEN, HIDDEN), info, {})
    (tmp_path / "fit").mkdir()
    for name, data in fit.to_files().items():
        (tmp_path / "fit" / name).write_bytes(data)
    calibrated = replace(options, calibration=str(tmp_path / "fit"))
    resolved = resolve_run(calibrated, None, local=True)
    resolved.keep_calibration()
    kept = kept_calibration(options.store, resolved.space)
    assert kept is not None
    assert kept.digest == fit.digest
