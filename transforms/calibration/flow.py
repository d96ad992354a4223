"""Normalizing flow: an invertible map whose images are standard normal.

BERT-flow, arXiv:2011.05864: Glow over plain vectors. A step is an actnorm, a permutation and an
additive coupling. After each level but the last the second half of the components is done.
Couplings and permutations keep volumes, so that all vectors have the same log-determinant.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sentence_beam.transforms.base.errors import OptionError

VARIANTS = ("reference", "paper")
MAX_LOG_SCALE = 12.0
# a trained tensor holds a third of the logarithm of its scale, as in the authors' code
LOG_SCALE_FACTOR = 3.0
_BLOCK_ROWS = 1024


@dataclass(frozen=True)
class FlowParameters:
    """The flow's shape and the settings of its fit.

    `variant` `reference`: coordinates reversed, AdamW as in the authors' code. `paper`: a random
    permutation fixed by `seed`, a residual connection around the coupling's middle layer, Adam.
    """

    levels: int = 2
    depth: int = 3
    width: int = 32
    lr: float = 1e-3
    epochs: float = 1.0
    variant: str = "reference"
    seed: int = 1234

    def __post_init__(self) -> None:
        for name in ("levels", "depth", "width"):
            if getattr(self, name) < 1:
                raise OptionError(
                    f"flow: {name}={getattr(self, name)} is not allowed; say 1 or more"
                )
        if not (self.lr > 0 and self.epochs >= 0):
            raise OptionError(
                f"flow: lr={self.lr}, epochs={self.epochs} are not allowed; say lr above 0, "
                "epochs from 0"
            )
        if self.variant not in VARIANTS:
            raise OptionError(
                f"flow: variant={self.variant!r} is not known; allowed: {', '.join(VARIANTS)}"
            )

    def steps(self) -> Iterator[tuple[int, str]]:
        """Yield the level and the name prefix of every step, in order."""
        for level in range(self.levels):
            for step in range(self.depth):
                yield level, f"{level}.{step}."

    def check_dim(self, dim: int) -> None:
        """Raise `OptionError` if vectors of `dim` components cannot be halved `levels` times."""
        if dim % 2**self.levels == 0:
            return
        possible = max(level for level in range(self.levels) if dim % 2**level == 0)
        mend = f"say levels={possible}" if possible else "truncate to an even number of components"
        raise OptionError(f"flow: {dim} components cannot be halved {self.levels} times; {mend}")


def list_trained_shapes(parameters: FlowParameters, dim: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all trained tensors.

    The log-scales of the steps come first, then those of the couplings, then the others.
    """
    step_logs: dict[str, tuple[int, ...]] = {}
    coupling_logs: dict[str, tuple[int, ...]] = {}
    others: dict[str, tuple[int, ...]] = {}
    width = parameters.width
    for level, at in parameters.steps():
        whole = dim >> level
        half = whole // 2
        step_logs[f"{at}logs"] = (whole,)
        coupling_logs |= {f"{at}logs1": (width,), f"{at}logs2": (width,), f"{at}logs3": (half,)}
        others[f"{at}shift"] = (whole,)
        others |= {f"{at}w1": (half, width), f"{at}w2": (width, width), f"{at}w3": (width, half)}
        others |= {f"{at}shift1": (width,), f"{at}shift2": (width,), f"{at}shift3": (half,)}
    return step_logs | coupling_logs | others


def log_scales(logs: Tensor) -> Tensor:
    """Return the logarithms of the scales, of which trained tensors hold a third."""
    return (LOG_SCALE_FACTOR * logs).clamp(-MAX_LOG_SCALE, MAX_LOG_SCALE)


def compute_scales(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Turn every `logs` into a `scale`, as `forward` needs them."""
    ready = dict(tensors)
    for name in tensors:
        if ".logs" in name:
            ready[name.replace(".logs", ".scale")] = log_scales(ready.pop(name)).exp()
    return ready


def forward(ready: Mapping[str, Tensor], parameters: FlowParameters, x: Tensor) -> Tensor:
    """Return the images [n, C] of vectors [n, C].

    The halves are in the order in which they are done, then the remaining components.
    """
    done: list[Tensor] = []
    level = 0
    for at_level, at in parameters.steps():
        if at_level != level:
            x, half = x.chunk(2, dim=1)
            done.append(half)
            level = at_level
        x = (x + ready[f"{at}shift"]) * ready[f"{at}scale"]
        first, second = permute(ready, at, x).chunk(2, dim=1)
        x = torch.cat([first, second + coupling(ready, at, parameters, first)], dim=1)
    return torch.cat([*done, x], dim=1)


def permute(ready: Mapping[str, Tensor], at: str, x: Tensor) -> Tensor:
    """Permute the last axis as a step does: by the stored order, else reversed."""
    order = ready.get(f"{at}order")
    return x.flip(-1) if order is None else x[..., order]


def coupling(
    ready: Mapping[str, Tensor], at: str, parameters: FlowParameters, first: Tensor
) -> Tensor:
    """Return the summand of a step's second half [n, c/2], given its first."""
    hidden = (first @ ready[f"{at}w1"] + ready[f"{at}shift1"]).mul(ready[f"{at}scale1"]).relu()
    deeper = (hidden @ ready[f"{at}w2"] + ready[f"{at}shift2"]).mul(ready[f"{at}scale2"]).relu()
    if parameters.variant == "paper":
        deeper = deeper + hidden
    return (deeper @ ready[f"{at}w3"] + ready[f"{at}shift3"]) * ready[f"{at}scale3"]


def apply_flow(
    tensors: Mapping[str, np.ndarray], parameters: FlowParameters, x: np.ndarray
) -> np.ndarray:
    """Return the images of vectors, both float32 [n, C]; a row's does not depend on others."""
    ready = compute_scales({name: torch.from_numpy(np.asarray(t)) for name, t in tensors.items()})
    with torch.inference_mode():
        blocks = torch.from_numpy(np.ascontiguousarray(x, np.float32)).split(_BLOCK_ROWS)
        return torch.cat([forward(ready, parameters, block) for block in blocks]).numpy()
