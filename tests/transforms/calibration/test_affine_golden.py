"""Affine calibrations against reference vectors, within the tolerances that come with them."""

from pathlib import Path

import numpy as np
import pytest

from sentence_beam.transforms.calibration import Calibration, parse_calibration
from sentence_beam.transforms.calibration.affine import Fitted
from sentence_beam.transforms.calibration.methods import fit_affine
from sentence_beam.transforms.calibration.moments import Moments

FIT = {"mean": "fit_mean_f64.npy", "firstlast": "fit_firstlast_f64.npy"}
INPUT = {"mean": "simcse_avg.npy", "firstlast": "simcse_avg_first_last.npy"}


@pytest.fixture(scope="module")
def golden(shared: Path) -> Path:
    """The folder of reference vectors."""
    return shared / "golden"


def fitted(golden: Path, source: str, method: str) -> Fitted:
    """A fit on the reference's sentences, their vectors narrowed to float32 as a store has them."""
    rows = np.load(golden / "fit" / FIT[source]).astype(np.float32)
    return fit_affine(parse_calibration(method), Moments.from_rows(rows))


def calibrated(golden: Path, source: str, method: str) -> np.ndarray:
    """The reference's 64 sentences, float32 in and out."""
    fit, rows = (
        fitted(golden, source, method),
        np.load(golden / "public" / INPUT[source]).astype(np.float32),
    )
    spec = parse_calibration(method)
    width = fit.tensors["kernel"].shape[1] if "kernel" in fit.tensors else rows.shape[1]
    return Calibration.make(spec, fit.tensors, (rows.shape[1], width), {}, {}).apply(rows)


def unit(x: np.ndarray) -> np.ndarray:
    """Rows of length 1."""
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("file", "method", "within"),
    [
        ("sn_ddof0", "standardize", 2e-5),
        ("sn_ddof1", "standardize:variance=sample", 2e-5),
        ("natsv_D1", "remove-top:1", 5e-6),
        ("natsv_D3", "remove-top:3", 5e-6),
        ("natsv_D1_uncentred", "remove-top:1,centred=no", 5e-6),
        ("natsv_D3_uncentred", "remove-top:3,centred=no", 5e-6),
    ],
)
def test_standardize_and_remove_top(golden, file, method, within):
    found, expected = calibrated(golden, "mean", method), np.load(golden / "public" / f"{file}.npy")
    assert np.abs(found - expected).max() <= within
    assert (1 - (unit(found.astype(np.float64)) * unit(expected)).sum(axis=1)).max() <= 1e-9


@pytest.mark.parametrize("top", [1, 3])
def test_the_recipe_as_printed_differs_by_a_constant(golden, top):
    """Mu and Viswanath's Algorithm 1 projects the rows before centring."""
    tensors = fitted(golden, "mean", f"remove-top:{top}").tensors
    literal = np.load(golden / "public" / f"natsv_D{top}_literal.npy")
    constant = (tensors["mean"] @ tensors["directions"].T) @ tensors["directions"]
    assert (
        np.abs(calibrated(golden, "mean", f"remove-top:{top}") - constant - literal).max() <= 5e-6
    )


@pytest.mark.parametrize("source", FIT)
@pytest.mark.parametrize("centred", ["yes", "no"])
def test_directions(golden, source, centred):
    found = fitted(golden, source, f"remove-top:3,centred={centred}").tensors["directions"]
    expected = np.load(
        golden / "fit" / f"natsv_{source}_U3{'' if centred == 'yes' else '_uncentred'}.npy"
    )
    expected = expected if expected.shape == found.shape else expected.T
    assert np.abs(np.abs((found * expected).sum(axis=1)) - 1).max() < 1e-10


@pytest.mark.parametrize("source", FIT)
@pytest.mark.parametrize(("variance", "ddof"), [("population", 0), ("sample", 1)])
def test_deviations(golden, source, variance, ddof):
    scale = fitted(golden, source, f"standardize:variance={variance}").tensors["scale"]
    expected = np.load(golden / "fit" / f"sn_{source}_std_ddof{ddof}.npy")
    alive = expected > 1e-6 * expected.max()
    assert ((scale > 0) == alive).all()
    assert np.abs(scale[alive] * expected[alive] - 1).max() < 1e-5


@pytest.mark.parametrize(
    ("file", "source", "method", "within", "within_l2"),
    [
        ("whiten_mean_k128", "mean", "whitening:128", 2e-4, 1e-5),
        ("whiten_mean_k381", "mean", "whitening", 5e-3, 5e-5),
        ("whiten_firstlast_k128", "firstlast", "whitening:128", 2e-4, 2e-5),
        ("whiten_firstlast_k384", "firstlast", "whitening:384", 1e-2, 1e-4),
    ],
)
def test_whitening(golden, file, source, method, within, within_l2):
    found, expected = calibrated(golden, source, method), np.load(golden / "public" / f"{file}.npy")
    assert found.shape == expected.shape
    signs = np.sign((found * expected).sum(axis=0))
    assert np.abs(found * signs - expected).max() <= within
    assert (
        np.abs(unit(found) * signs - np.load(golden / "public" / f"{file}_l2.npy")).max()
        <= within_l2
    )
    assert np.abs(unit(found) @ unit(found).T - unit(expected) @ unit(expected).T).max() <= 1e-5


@pytest.mark.parametrize("source", FIT)
def test_the_kernel_up_to_signs(golden, source):
    found = fitted(golden, source, "whitening:128").tensors
    expected = np.load(golden / "fit" / f"whiten_{source}_W.npy")[:, :128]
    mean = np.load(golden / "fit" / f"whiten_{source}_mu.npy").reshape(-1)
    signs = np.sign((found["kernel"] * expected).sum(axis=0))
    assert np.abs(found["kernel"] * signs - expected).max() <= 1e-4 * np.abs(expected).max()
    assert np.abs(np.abs(found["mean"]) - np.abs(mean)).max() <= 1e-6


def test_the_models_three_dead_components_are_found(golden):
    assert fitted(golden, "mean", "whitening").figures["k_eff"] == 381
    assert fitted(golden, "mean", "standardize").figures["k_eff"] == 381
    assert fitted(golden, "firstlast", "whitening").figures["k_eff"] == 384
