"""The last stage: pooled vectors -> final vectors, without the model: calibrate, truncate, normalise, in this order."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from transforms.calibration import Calibration
from transforms.pooling.states import Status
from transforms.space.identity import SHORTEST, Space


@dataclass(frozen=True)
class Finished:
    """The final `vectors` [B, dim] and the lengths `norms` [B] of the pooled ones, float32; `status` [B] uint8.

    `pooled` [B, P] float32 is None where it is `vectors` (not normalised) or `vectors * norms`.
    """

    vectors: Tensor
    norms: Tensor
    pooled: Tensor | None
    status: Tensor


def finish(pooled: Tensor, space: Space, calibration: Calibration | None = None) -> Finished:
    """The final vectors of `pooled` [B, P] float32: calibrated, truncated and normalised as the space says.

    `calibration` is the one that the space names. A zero vector stays zero.
    """
    norms = torch.linalg.vector_norm(pooled, dim=1)
    vectors = pooled if calibration is None else torch.from_numpy(calibration.apply(pooled.numpy()))
    vectors = vectors if space.truncate_dim is None else vectors[:, : space.truncate_dim]
    status = _status(vectors)
    vectors = F.normalize(vectors, dim=1, eps=SHORTEST) if space.normalize else vectors
    recoverable = calibration is None and space.truncate_dim is None
    return Finished(vectors, norms, None if recoverable else pooled, status)


def _status(vectors: Tensor) -> Tensor:
    lengths = torch.linalg.vector_norm(vectors, dim=1)
    status = torch.full((len(vectors),), int(Status.OK), dtype=torch.uint8)
    status[lengths < SHORTEST] = int(Status.ZERO)
    status[~torch.isfinite(lengths)] = int(Status.NONFINITE)
    return status
