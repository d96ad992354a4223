"""A calibration as files and back, its identity, and how it is refused."""

import json

import numpy as np
import pytest

from sentence_beam.transforms.base.errors import OptionError, SpaceMismatchError
from sentence_beam.transforms.calibration import (
    Calibration,
    check_space,
    load_calibration,
    parse_calibration,
)
from sentence_beam.transforms.calibration.methods import fit_affine
from sentence_beam.transforms.calibration.moments import Moments
from sentence_beam.transforms.calibration.moved import FittedMoments
from sentence_beam.transforms.space import Space

SPACE = Space("w", "t", "a", 10, "", {"parts": []}, None, True, None, "float32", "float32", 6)
ROWS = np.random.default_rng(0).normal(2, 3, size=(50, 6)).astype(np.float32)


def made(rows: np.ndarray = ROWS, method: str = "standardize", **fitted_on: object) -> Calibration:
    """A calibration fitted on these rows."""
    spec = parse_calibration(method)
    moments = Moments.from_rows(rows)
    fitted = fit_affine(spec, moments)
    said = {
        "store": "/s",
        "run": "r",
        "manifest": "m",
        "space": SPACE.to_json(),
        "n": len(rows),
        "moments": FittedMoments.from_moments(moments).to_json(),
        "date": "2026-01-01",
    }
    return Calibration.make(
        spec, fitted.tensors, (rows.shape[1], rows.shape[1]), {**said, **fitted_on}, {}
    )


@pytest.fixture
def folder(tmp_path):
    """A folder with a calibration."""
    for name, data in made().to_files().items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def test_a_calibration_survives_its_files(folder):
    loaded = load_calibration(str(folder))
    assert loaded.info == made().info
    assert (loaded.apply(ROWS) == made().apply(ROWS)).all()
    assert loaded.pooled_id == SPACE.pooled_id
    assert loaded.dim == 6


def test_the_digest_is_of_what_decides_vectors_alone():
    assert made().digest == made(date="2030-01-01", store="/elsewhere").digest
    assert made().digest != made(ROWS + 1).digest
    assert made().digest != made(method="standardize:variance=sample").digest


@pytest.mark.parametrize("rows", [0, 1, 3, 49, 50])
def test_a_row_does_not_depend_on_its_company(rows):
    whole = made().apply(ROWS)
    assert whole.dtype == np.float32
    assert (made().apply(ROWS[:rows]) == whole[:rows]).all()
    assert (made().apply(ROWS[::-1])[::-1] == whole).all()


def test_damage_is_named(folder):
    tensors, info = folder / "calibration.safetensors", folder / "calibration.json"
    whole = tensors.read_bytes()
    for bad in (whole[:-1] + b"x", whole[:40], b""):
        tensors.write_bytes(bad)
        with pytest.raises(OptionError, match=r"calibration.safetensors is not the file"):
            load_calibration(str(folder))
    tensors.unlink()
    with pytest.raises(OptionError, match=r"calibration.safetensors is missing"):
        load_calibration(str(folder))
    tensors.write_bytes(whole)
    info.write_text(json.dumps({**json.loads(info.read_text()), "dim": 5}))
    with pytest.raises(OptionError, match=r"calibration.json was changed by hand"):
        load_calibration(str(folder))
    info.write_text("{}")
    with pytest.raises(OptionError, match=r"calibration.json is of another format"):
        load_calibration(str(folder))
    info.unlink()
    with pytest.raises(OptionError, match=r"calibration.json is missing"):
        load_calibration(str(folder))


@pytest.mark.parametrize("name", ["fitted_on", "summary"])
def test_what_decides_no_vector_is_checked_too(folder, name):
    path = folder / "calibration.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, name: {**said[name], "more": 1}}))
    with pytest.raises(
        OptionError, match=r"calibration.json was changed by hand \(its digest is another\)"
    ):
        load_calibration(str(folder))


@pytest.mark.parametrize(
    "moments",
    [
        [],
        {},
        {"mean": "AAAA", "deviation": "AA="},
        {"mean": "AAAAAA==", "deviation": "AAAAAA=="},
    ],
)
def test_moments_of_another_form_are_refused(tmp_path, moments):
    for name, data in made(moments=moments).to_files().items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(OptionError, match=r"calibration.json was changed by hand"):
        load_calibration(str(tmp_path))


def test_another_space_is_refused_by_field():
    other = Space.from_json(
        {**{k: v for k, v in SPACE.to_json().items() if "id" not in k}, "prompt": "q: ", "dim": 3}
    )
    with pytest.raises(
        SpaceMismatchError, match=r"/c was fitted on another space \(prompt differ\)"
    ):
        check_space(made().info, other, "/c")
    check_space(made().info, SPACE, "/c")


def test_another_width_is_refused():
    with pytest.raises(SpaceMismatchError, match="takes vectors of width 6, not 2x5"):
        made().apply(np.ones((2, 5), np.float32))
