"""Normalizing flow: an invertible map whose images are standard normal (BERT-flow,
arXiv:2011.05864).

Glow over plain vectors. A step is an actnorm, a permutation and an additive coupling; after each
level but the last one the second half of the components is done. Couplings and permutations keep
volumes, so that the log-determinant is the same for every vector.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from transforms.base.errors import OptionError

VARIANTS = ("reference", "paper")
MAX_LOG_SCALE = 12.0
# a trained tensor holds a third of the logarithm of its scale, as the authors' code has it
LOG_SCALE_FACTOR = 3.0
_BLOCK_ROWS = 1024


@dataclass(frozen=True)
class FlowParameters:
    """The flow's shape and how it is fitted.

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
                f"flow: lr={self.lr}, epochs={self.epochs} are not allowed; say lr above 0, epochs"
                " from 0"
            )
        if self.variant not in VARIANTS:
            raise OptionError(
                f"flow: variant={self.variant!r} is not known; allowed: {', '.join(VARIANTS)}"
            )

    def steps(self) -> Iterator[tuple[int, str]]:
        """Level and name prefix of every step, in order."""
        for level in range(self.levels):
            for step in range(self.depth):
                yield level, f"{level}.{step}."

    def check_dim(self, dim: int) -> None:
        """`OptionError` where vectors of `dim` components cannot be halved `levels` times."""
        if dim % 2**self.levels:
            fitting = max(level for level in range(self.levels) if dim % 2**level == 0)
            mend = (
                f"say levels={fitting}" if fitting else "truncate to an even number of components"
            )
            raise OptionError(
                f"flow: {dim} components cannot be halved {self.levels} times; {mend}"
            )


def trained_shapes(parameters: FlowParameters, dim: int) -> dict[str, tuple[int, ...]]:
    """Shapes of all trained tensors: the log-scales of the steps first, then those of the
    couplings, then the rest.
    """
    shapes: list[dict[str, tuple[int, ...]]] = [{}, {}, {}]
    width = parameters.width
    for level, at in parameters.steps():
        c = dim >> level
        shapes[0][f"{at}logs"] = (c,)
        shapes[1] |= {f"{at}logs1": (width,), f"{at}logs2": (width,), f"{at}logs3": (c // 2,)}
        shapes[2] |= {f"{at}shift": (c,)}
        shapes[2] |= {
            f"{at}w1": (c // 2, width),
            f"{at}w2": (width, width),
            f"{at}w3": (width, c // 2),
        }
        shapes[2] |= {f"{at}shift1": (width,), f"{at}shift2": (width,), f"{at}shift3": (c // 2,)}
    return shapes[0] | shapes[1] | shapes[2]


def log_scales(logs: Tensor) -> Tensor:
    """The logarithms of the scales, which the trained tensors hold divided by
    `LOG_SCALE_FACTOR`.
    """
    return (LOG_SCALE_FACTOR * logs).clamp(-MAX_LOG_SCALE, MAX_LOG_SCALE)


def with_scales(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with every `logs` turned into a `scale`, as `forward` and `inverse` want them."""
    ready = dict(tensors)
    for name in tensors:
        if ".logs" in name:
            ready[name.replace(".logs", ".scale")] = log_scales(ready.pop(name)).exp()
    return ready


def forward(ready: Mapping[str, Tensor], parameters: FlowParameters, x: Tensor) -> Tensor:
    """Images [n, C] of vectors [n, C]: the halves in the order in which they are done, then what is
    left.
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


def inverse(ready: Mapping[str, Tensor], parameters: FlowParameters, z: Tensor) -> Tensor:
    """Vectors [n, C] of images [n, C]."""
    dim = z.shape[1]
    halves = list(
        z.split(
            [dim >> level for level in range(1, parameters.levels)]
            + [dim >> parameters.levels - 1],
            1,
        )
    )
    x, level = halves.pop(), parameters.levels - 1
    for at_level, at in reversed(list(parameters.steps())):
        if at_level != level:
            x, level = torch.cat([x, halves.pop()], dim=1), at_level
        first, second = x.chunk(2, dim=1)
        x = torch.cat([first, second - coupling(ready, at, parameters, first)], dim=1)
        x = permute(ready, at, x, back=True) / ready[f"{at}scale"] - ready[f"{at}shift"]
    return x


def permute(ready: Mapping[str, Tensor], at: str, x: Tensor, back: bool = False) -> Tensor:
    """A step's permutation of the last axis: the stored one, or reversal."""
    order = ready.get(f"{at}order")
    if order is None:
        return x.flip(-1)
    return x[..., order.argsort() if back else order]


def coupling(
    ready: Mapping[str, Tensor], at: str, parameters: FlowParameters, first: Tensor
) -> Tensor:
    """What is added to a step's second half [n, c/2], given its first."""
    hidden = (first @ ready[f"{at}w1"] + ready[f"{at}shift1"]).mul(ready[f"{at}scale1"]).relu()
    deeper = (hidden @ ready[f"{at}w2"] + ready[f"{at}shift2"]).mul(ready[f"{at}scale2"]).relu()
    if parameters.variant == "paper":
        deeper = deeper + hidden
    return (deeper @ ready[f"{at}w3"] + ready[f"{at}shift3"]) * ready[f"{at}scale3"]


def log_det(tensors: Mapping[str, Tensor], parameters: FlowParameters) -> float:
    """Logarithm of the absolute determinant of the map's Jacobian: one for all vectors."""
    return float(
        sum(
            log_scales(tensors[f"{at}logs"]).sum(dtype=torch.float64)
            for _, at in parameters.steps()
        )
    )


def apply_flow(
    tensors: Mapping[str, np.ndarray], parameters: FlowParameters, x: np.ndarray
) -> np.ndarray:
    """Images of vectors, float32 [n, C] both; a row's image does not depend on the rows
    beside it.
    """
    ready = with_scales(
        {name: torch.from_numpy(np.asarray(value)) for name, value in tensors.items()}
    )
    with torch.inference_mode():
        blocks = torch.from_numpy(np.ascontiguousarray(x, np.float32)).split(_BLOCK_ROWS)
        return torch.cat([forward(ready, parameters, block) for block in blocks]).numpy()
