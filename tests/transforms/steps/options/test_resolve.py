"""A run from its options: its id, and the copy of its calibration in the store."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from helpers.calibrations import standard_moments
from helpers.tiny_models import HIDDEN, save_tiny_model

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.calibration import Calibration, parse_calibration
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.steps.options.resolve import resolve_run
from sentence_beam.transforms.store.calibrations import read_kept_calibration
from sentence_beam.transforms.store.counts import (
    NONE_PENDING,
    PendingCounts,
    RowCounts,
    TokenCounts,
    WorkCounts,
)
from sentence_beam.transforms.store.entries import Input, TableEntry
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.run_ids import make_following_id


@pytest.fixture
def options(tmp_path: Path) -> EmbedOptions:
    """A text file, a model and a store that does not exist."""
    (tmp_path / "a.txt").write_text("a dog\n")
    model = save_tiny_model("bert", tmp_path / "model")
    return EmbedOptions(
        input=str(tmp_path / "a.txt"), store=str(tmp_path / "store"), model=str(model)
    )


def test_without_an_id_a_run_follows_all_runs_of_its_store(options: EmbedOptions) -> None:
    failed = make_following_id(None, datetime.now(UTC) + timedelta(days=1))
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
    kept = read_kept_calibration(options.store, resolved.space)
    assert kept is not None
    assert kept.digest == fit.digest


def test_a_change_of_every_row_waits_for_pending_files(options: EmbedOptions) -> None:
    first = resolve_run(replace(options, budget="5k"), None, local=True).job
    assert (first.budget, first.run.options.budget) == (5000, 5000)
    root = first.run.root
    previous = made_up_manifest(first.run, PendingCounts(files=38))
    assert resolve_run(options, previous, local=True).job.budget == 5000
    assert resolve_run(replace(options, budget="none"), previous, local=True).job.budget is None
    others = {"keep_text": False, "truncate_dim": 4, "precision": "float16", "id_column": "n"}
    for name, value in others.items():
        changed = replace(options, **{name: value})
        with pytest.raises(OptionError) as raised:
            resolve_run(changed, previous, local=True)
        assert name in str(raised.value).partition(" would change in every row, and ")[0]
        assert "38 files are pending: say budget none with it, or wait" in str(raised.value)
        assert resolve_run(replace(changed, budget="none"), previous, local=True)
        none_waits = made_up_manifest(first.run, NONE_PENDING)
        assert resolve_run(changed, none_waits, local=True)
    assert not Path(root).exists()


def made_up_manifest(run: Run, pending: PendingCounts) -> Manifest:
    """A snapshot of a run without rows."""
    return Manifest(
        root=run.root, run="before", previous=None, space=run.space, partition=run.partition,
        unit_tokens=run.unit_tokens, rows=RowCounts(0, 0, 0), work=WorkCounts(0, 0, 0, 0),
        tokens=TokenCounts(0, 0, 0, 0, 0), files=TableEntry(), units=TableEntry(), index=None,
        input=Input(run.globs), options=run.options, started=run.started, finished=run.started,
        pending=pending,
    )  # fmt: skip
