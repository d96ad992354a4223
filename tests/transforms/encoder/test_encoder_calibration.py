"""An encoder with a calibration: whichever way it is given, and one of another model."""

from pathlib import Path

import numpy as np
import pytest
from helpers.corpora import sentences
from helpers.tiny_models import save_tiny_model

from sentence_beam.transforms.base.errors import SpaceMismatchError
from sentence_beam.transforms.calibration import Calibration, load_calibration, parse_calibration
from sentence_beam.transforms.calibration.methods import fit_affine
from sentence_beam.transforms.calibration.moments import Moments
from sentence_beam.transforms.calibration.moved import FittedMoments
from sentence_beam.transforms.encoder import Encoder

TEXTS = sentences(60)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model."""
    return save_tiny_model("bert", tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def pooled(model: Path) -> np.ndarray:
    """The pooled vectors of the texts."""
    return Encoder.load(model, dtype="float32", normalize=False).encode(TEXTS)


@pytest.fixture(scope="module")
def folder(model: Path, pooled: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whitening that keeps eight components, fitted on the texts."""
    moments, spec = Moments.from_rows(pooled), parse_calibration("whitening:8")
    space = Encoder.load(model, dtype="float32", normalize=False).space.to_json()
    fitted_on = {"store": "", "run": "", "space": space, "n": len(pooled)}
    fitted_on |= {"moments": FittedMoments.from_moments(moments).to_json()}
    widths = (pooled.shape[1], 8)
    made = Calibration.make(spec, fit_affine(spec, moments).tensors, widths, fitted_on, {})
    folder = tmp_path_factory.mktemp("fitted")
    for name, data in made.to_files().items():
        (folder / name).write_bytes(data)
    return folder


def test_vectors_are_calibrated_then_truncated_then_normalised(
    model: Path, folder: Path, pooled: np.ndarray
) -> None:
    calibration = load_calibration(str(folder))
    for given in (folder, str(folder), calibration):
        encoder = Encoder.load(str(model), dtype="float32", normalize=True, calibration=given)
        assert encoder.dim == encoder.space.dim == 8
        assert encoder.space.calibration == calibration.digest
        wanted = (pooled - calibration.tensors["mean"]) @ calibration.tensors["kernel"]
        wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
        assert np.allclose(encoder.encode(TEXTS), wanted, atol=1e-4)
    raw = Encoder.load(model, dtype="float32", normalize=False, calibration=folder, truncate_dim=3)
    wanted = ((pooled - calibration.tensors["mean"]) @ calibration.tensors["kernel"])[:, :3]
    assert np.allclose(raw.encode(TEXTS), wanted, atol=1e-4 * np.abs(wanted).max())


def test_a_calibration_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    other = save_tiny_model("bert", tmp_path / "model", num_hidden_layers=2)
    with pytest.raises(SpaceMismatchError, match="weights"):
        Encoder.load(str(other), dtype="float32", calibration=folder)
