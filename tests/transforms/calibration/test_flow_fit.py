"""Fitting the normalizing flow: its start is standardisation, training makes held-out vectors
likelier.
"""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.calibrations import standard_moments
from helpers.flows import SHAPES, reference

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.calibration import Calibration, parse_calibration
from sentence_beam.transforms.calibration.flow import FlowParameters, apply_flow
from sentence_beam.transforms.calibration.flow_fit import (
    Training,
    actnorm,
    fit_flow,
    initialise,
    varies,
)

START = FlowParameters(levels=2, depth=2, width=8, epochs=0)
GAUSSIAN_BITS = 0.5 * math.log2(2 * math.pi * math.e)


def _mixed(n: int, dim: int, seed: int = 0) -> np.ndarray:
    """Correlated, skewed vectors with scales far apart."""
    random = np.random.default_rng(seed)
    hidden = random.normal(size=(n, dim))
    mixed = hidden @ random.normal(size=(dim, dim)) + 0.5 * hidden**2
    return (mixed * np.geomspace(0.01, 100, dim) + 3).astype(np.float32)


def _float32(tensors: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {
        name: v.float().numpy() if v.is_floating_point() else v.numpy()
        for name, v in tensors.items()
    }


@pytest.mark.parametrize("variant", ["reference", "paper"])
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_the_start_is_standardisation_in_another_order(levels, variant):
    rows = _mixed(200, 16)
    parameters = FlowParameters(levels=levels, depth=2, width=8, variant=variant)
    z = apply_flow(_float32(initialise(parameters, torch.from_numpy(rows))), parameters, rows)
    standard = (rows - rows.mean(0, dtype=np.float64)) / rows.std(0, dtype=np.float64)
    order = np.abs(z[:, :, None] - standard[:, None, :]).max(axis=0).argmin(axis=1)
    assert sorted(order) == list(range(16))
    assert np.abs(z - standard[:, order]).max() <= 2e-4
    assert np.abs(z.mean(0)).max() <= 1e-4
    assert np.abs(z.var(0) - 1).max() <= 1e-3


def test_the_start_reaches_the_entropy_of_independent_gaussians():
    deviations = np.geomspace(0.05, 20, 16)
    sample = (np.random.default_rng(0).normal(size=(20_000, 16)) * deviations).astype(np.float32)
    _, history = fit_flow(sample, START)
    assert history["after"] == pytest.approx(GAUSSIAN_BITS + np.log2(deviations).mean(), abs=0.03)


def test_training_makes_held_out_vectors_likelier():
    sample = _mixed(4000, 16)
    seen: list[tuple[int, int, float]] = []
    parameters = FlowParameters(depth=2, width=16, lr=3e-3, epochs=4)
    tensors, history = fit_flow(sample, parameters, progress=lambda *point: seen.append(point))
    assert history["steps"] == 4 * (3920 // 64)
    assert (history["rows"], history["held_out_rows"], history["components"]) == (3920, 80, 16)
    assert history["after"] < history["before"] - 0.2
    curve = history["curve"]
    assert [point["step"] for point in curve] == sorted({point["step"] for point in curve})
    assert (curve[0]["held_out"], curve[-1]["held_out"]) == (history["before"], history["after"])
    assert curve[-1]["train"] == pytest.approx(curve[-1]["held_out"], abs=0.3)
    assert seen[-1] == (history["steps"], history["steps"], history["after"])
    assert {str(v.dtype) for name, v in tensors.items() if name != "live"} == {"float32"}


@pytest.mark.parametrize("variant", ["reference", "paper"])
def test_the_same_sample_and_seed_give_the_same_flow(variant):
    sample, parameters = _mixed(500, 8), FlowParameters(width=4, epochs=2, variant=variant)
    (first, history), (again, same) = fit_flow(sample, parameters), fit_flow(sample, parameters)
    other, _ = fit_flow(sample, FlowParameters(width=4, epochs=2, variant=variant, seed=7))
    assert history == same
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["0.0.w1"], other["0.0.w1"])


def test_fitting_leaves_the_number_of_threads_alone():
    threads = torch.get_num_threads()
    fit_flow(_mixed(100, 8), START)
    assert torch.get_num_threads() == threads


def test_components_that_do_not_vary_stay_near_zero():
    random = np.random.default_rng(0)
    sample = random.normal(size=(3000, 16)).astype(np.float32)
    sample[:, 3] = 0.1
    sample[:, 7] = 2 + 1e-7 * random.normal(size=3000)
    sample[:, 15] = 0
    tensors, history = fit_flow(sample, FlowParameters(depth=3, width=8, lr=1e-2, epochs=20))
    assert np.flatnonzero(tensors["live"] == 0).tolist() == [3, 7, 15]
    assert history["components"] == 13
    assert history["after"] == pytest.approx(GAUSSIAN_BITS, abs=0.1)
    z = apply_flow(tensors, FlowParameters(depth=3, width=8), sample)
    assert np.isfinite(z).all()
    assert np.sort(z.std(0))[:3].max() < 0.05
    sample[:, [3, 7, 15]] += 0.01  # vectors that were not seen
    assert np.abs(apply_flow(tensors, FlowParameters(depth=3, width=8), sample) - z).max() < 1


def test_a_deviation_counts_as_a_thousandth_of_the_median_one():
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 5)) * [1, 1, 1, 1e-5, 1e-9])
    live = varies(x)
    assert live.tolist() == [True, True, True, True, False]
    scale = (3 * actnorm(x, live)[1]).exp()
    assert 1 / float(scale[3]) == pytest.approx(
        1e-3 * float(x[:, :3].std(0, correction=0).median()), rel=0.5
    )
    assert 1 / float(scale[4]) == pytest.approx(1, rel=0.5)


def test_few_and_duplicated_rows_give_finite_flows():
    few = _mixed(10, 8)
    for sample in (
        np.repeat(few, 5, axis=0),
        np.repeat(few, 30, axis=0),
        np.repeat(few[:2], 30, axis=0),
    ):
        tensors, history = fit_flow(sample, FlowParameters(width=4, epochs=3))
        assert math.isfinite(history["after"])
        assert np.isfinite(apply_flow(tensors, FlowParameters(width=4), few)).all()


def test_mistakes_end_in_one_line_that_says_what_mends_them():
    with pytest.raises(
        SentenceBeamError, match="the loss is not finite after .* say a lower lr than 1e\\+06"
    ):
        fit_flow(_mixed(2000, 8), FlowParameters(lr=1e6, epochs=5))
    with pytest.raises(SentenceBeamError, match="the vectors are not finite"):
        fit_flow(np.full((100, 8), np.nan, np.float32) * _mixed(100, 8), START)
    with pytest.raises(OptionError, match="no component of the 98 vectors varies"):
        fit_flow(np.ones((100, 8), np.float32), START)
    with pytest.raises(OptionError, match="49 vectors are too few to fit on; it needs 50 or more"):
        fit_flow(_mixed(49, 8), START)
    with pytest.raises(OptionError, match="10 components cannot be halved 2 times; say levels=1"):
        fit_flow(_mixed(100, 10), START)


@pytest.mark.parametrize("config", ["l3_d3_w32", "l2_d2_w32"])
def test_start_and_thirty_steps_are_the_references(shared: Path, config, monkeypatch):
    parameters, flow = FlowParameters(*SHAPES[config]), shared / "golden/flow"
    drawn = reference(shared, f"ddi_{config}.init_params.npz")
    weights = iter([drawn[f"{at}w{layer}"] for _, at in parameters.steps() for layer in (1, 2)])
    monkeypatch.setattr(
        "sentence_beam.transforms.calibration.flow_fit.draw_normal", lambda *_: next(weights)
    )
    golden = np.load(flow / f"ddi_{config}.out.npz")
    tensors = initialise(parameters, torch.from_numpy(golden["x"]))
    for name, value in reference(shared, f"ddi_{config}.params_f64.npz").items():
        assert torch.allclose(tensors[name], value, rtol=0, atol=1e-12), name
    assert (
        np.abs(apply_flow(_float32(tensors), parameters, golden["x"]) - golden["z"]).max() <= 2e-5
    )

    training = Training(parameters, tensors, torch.device("cpu"))
    first, second = (
        np.load(flow / f"train_x{side}_first960.npy").reshape(30, 32, -1) for side in "ab"
    )
    losses, norms = [], []
    for pair in np.concatenate([first, second], axis=1):
        losses.append(2 * float(training.step(torch.from_numpy(pair))))
        norms.append(float(training.norm))
    golden = np.load(flow / f"train30_{config}.public.npz")
    assert np.abs(losses - golden["losses"]).max() <= 1e-5
    assert np.abs(norms - golden["grad_norms"]).max() <= 1e-4
    assert (
        np.abs(apply_flow(training.tensors(), parameters, golden["x"]) - golden["z"]).max() <= 5e-5
    )


def test_a_fitted_flow_is_a_calibration_that_goes_through_files():
    sample = _mixed(300, 8)
    spec = parse_calibration("flow:width=4,epochs=2,variant=paper")
    parameters = FlowParameters(**spec.parameters)
    tensors, history = fit_flow(sample, parameters)
    on = {"moments": standard_moments(8)}
    calibration = Calibration.make(spec, tensors, (8, 8), on, {"flow": history})
    back = Calibration.from_files(calibration.to_files())
    assert np.array_equal(back.apply(sample), calibration.apply(sample))
    assert np.abs(back.apply(sample) - apply_flow(tensors, parameters, sample)).max() <= 1e-5
    assert back.info["summary"]["flow"] == history
