"""The reference flows: their shapes, and their tensors under our names."""

import re
from pathlib import Path

import numpy as np
import torch

REFERENCE_NAMES = {
    "actnorm/actnorm_center/b": "shift",
    "actnorm/actnorm_scale/logs": "logs",
    "additive/nn/conv_block/1_1/W": "w1",
    "additive/nn/conv_block/1_1/actnorm/actnorm_center/b": "shift1",
    "additive/nn/conv_block/1_1/actnorm/actnorm_scale/logs": "logs1",
    "additive/nn/conv_block/1_2/W": "w2",
    "additive/nn/conv_block/1_2/actnorm/actnorm_center/b": "shift2",
    "additive/nn/conv_block/1_2/actnorm/actnorm_scale/logs": "logs2",
    "additive/nn/zeros/W": "w3",
    "additive/nn/zeros/b": "shift3",
    "additive/nn/zeros/logs": "logs3",
}
SHAPES = {"l3_d3_w32": (3, 3, 32), "l2_d2_w32": (2, 2, 32), "l3_d3_w16": (3, 3, 16)}


def reference(shared: Path, file: str) -> dict[str, torch.Tensor]:
    """The reference's tensors under our names, float64."""
    found = {}
    for name, value in np.load(shared / "golden/flow" / file).items():
        level, step, rest = re.fullmatch(r"revnet_(\d+)/revnet_step_(\d+)/(.*)", name).groups()
        found[f"{level}.{step}.{REFERENCE_NAMES[rest]}"] = torch.from_numpy(value).double()
    return found
