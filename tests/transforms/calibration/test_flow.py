"""The normalizing flow's map: invertible, with the log-determinant it says, and the reference's
figures.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.examples import examples
from helpers.flows import SHAPES, reference
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.calibration.flow import (
    VARIANTS,
    FlowParameters,
    apply_flow,
    compute_scales,
    coupling,
    forward,
    list_trained_shapes,
    log_scales,
)
from sentence_beam.transforms.calibration.flow_fit import Training, initialise


@st.composite
def flows(draw):
    """A flow with random tensors, float64, and the number of components it takes."""
    parameters = FlowParameters(
        levels=draw(st.integers(1, 3)),
        depth=draw(st.integers(1, 3)),
        width=draw(st.sampled_from([1, 4, 7])),
        variant=draw(st.sampled_from(VARIANTS)),
        seed=draw(st.integers(0, 99)),
    )
    dim = 8 * draw(st.integers(1, 3))
    random = np.random.default_rng(parameters.seed)
    tensors = initialise(parameters, torch.from_numpy(random.normal(0.3, 2, (20, dim))))
    for name, shape in list_trained_shapes(parameters, dim).items():
        tensors[name] = torch.from_numpy(random.normal(0, 0.1 if ".logs" in name else 0.3, shape))
    return parameters, tensors, dim


def inverse(
    ready: Mapping[str, torch.Tensor], parameters: FlowParameters, z: torch.Tensor
) -> torch.Tensor:
    """Return the vectors [n, C] of images [n, C]."""
    dim = z.shape[1]
    sizes = [dim >> level for level in range(1, parameters.levels)]
    sizes.append(dim >> parameters.levels - 1)
    halves = list(z.split(sizes, dim=1))
    x = halves.pop()
    level = parameters.levels - 1
    for at_level, at in reversed(list(parameters.steps())):
        if at_level != level:
            x = torch.cat([x, halves.pop()], dim=1)
            level = at_level
        first, second = x.chunk(2, dim=1)
        x = torch.cat([first, second - coupling(ready, at, parameters, first)], dim=1)
        order = ready.get(f"{at}order")
        x = x.flip(-1) if order is None else x[..., order.argsort()]
        x = x / ready[f"{at}scale"] - ready[f"{at}shift"]
    return x


def log_det(tensors: Mapping[str, torch.Tensor], parameters: FlowParameters) -> float:
    """Return the logarithm of the absolute determinant of the map's Jacobian, one for all rows."""
    logs = (log_scales(tensors[f"{at}logs"]) for _, at in parameters.steps())
    return float(sum(step.sum(dtype=torch.float64) for step in logs))


@settings(max_examples=examples(40), deadline=None)
@given(flow=flows(), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_what_is_mapped_comes_back(flow, dtype):
    parameters, tensors, dim = flow
    ready = {
        k: v.to(dtype) if v.is_floating_point() else v for k, v in compute_scales(tensors).items()
    }
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(9, dim))).to(dtype)
    z = forward(ready, parameters, x)
    assert z.shape == x.shape
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-10}[dtype]
    assert torch.allclose(inverse(ready, parameters, z), x, rtol=tolerance, atol=tolerance)


@settings(max_examples=examples(20), deadline=None)
@given(flow=flows())
def test_the_log_determinant_is_the_jacobians_everywhere(flow):
    parameters, tensors, dim = flow
    ready = compute_scales(tensors)
    for x in torch.from_numpy(np.random.default_rng(2).normal(size=(2, dim))):
        jacobian = torch.autograd.functional.jacobian(
            lambda v: forward(ready, parameters, v[None])[0], x
        )
        assert float(torch.linalg.slogdet(jacobian)[1]) == pytest.approx(
            log_det(tensors, parameters), abs=1e-9
        )


@settings(max_examples=examples(20), deadline=None)
@given(flow=flows(), cuts=st.lists(st.integers(0, 60), max_size=4))
def test_images_do_not_depend_on_the_batch(flow, cuts):
    parameters, tensors, dim = flow
    kept = {
        k: v.float().numpy() if v.is_floating_point() else v.numpy() for k, v in tensors.items()
    }
    x = np.random.default_rng(3).normal(size=(60, dim)).astype(np.float32)
    whole = apply_flow(kept, parameters, x)
    assert whole.dtype == np.float32
    parts = np.concatenate(
        [apply_flow(kept, parameters, part) for part in np.split(x, sorted(cuts))]
    )
    assert np.abs(whole - parts).max() <= 2e-6 * np.abs(whole).max()


@pytest.mark.parametrize("config", SHAPES)
def test_images_and_loss_are_the_references(shared: Path, config):
    parameters = FlowParameters(*SHAPES[config])
    tensors = reference(shared, f"random_{config}.params.npz")
    golden = np.load(shared / f"golden/flow/random_{config}.public.npz")
    kept = {name: value.float().numpy() for name, value in tensors.items()}
    assert np.abs(apply_flow(kept, parameters, golden["x"]) - golden["z"]).max() <= 2e-5
    assert log_det(tensors, parameters) == pytest.approx(golden["logdet"][0], abs=1e-9)
    live = {"live": torch.ones(golden["x"].shape[1], dtype=torch.uint8)}
    training = Training(parameters, tensors | live, torch.device("cpu"))
    with torch.no_grad():
        losses = [float(training.loss(row[None])) for row in torch.from_numpy(golden["x"])]
    assert np.abs(losses - golden["loss_bits_per_dim"]).max() <= 5e-6


def test_shapes_that_do_not_work_are_refused_saying_which_do():
    with pytest.raises(OptionError, match="36 components cannot be halved 3 times; say levels=2"):
        FlowParameters(levels=3).check_dim(36)
    with pytest.raises(
        OptionError, match="35 components cannot be halved 2 times; truncate to an even number"
    ):
        FlowParameters().check_dim(35)
    for wrong in (
        {"levels": 0},
        {"depth": 0},
        {"width": -1},
        {"lr": 0.0},
        {"epochs": -1.0},
        {"variant": "glow"},
    ):
        with pytest.raises(OptionError, match=f"flow: .*{next(iter(wrong))}"):
            FlowParameters(**wrong)
