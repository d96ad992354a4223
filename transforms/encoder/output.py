"""The last stage: pooled vectors -> final vectors, without the model: calibrate, truncate,
normalise, in this order.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from transforms.calibration import Calibration
from transforms.pooling.states import Status
from transforms.space.identity import SHORTEST, Space


@dataclass(frozen=True)
class Finished:
    """The final `vectors` [B, dim] and the lengths `norms` [B] of the pooled ones, float32;
    `status` [B] uint8.

    `pooled` [B, P] float32 is None where it is `vectors` (not normalised) or `vectors * norms`.
    """

    vectors: Tensor
    norms: Tensor
    pooled: Tensor | None
    status: Tensor


def finish(pooled: Tensor, space: Space, calibration: Calibration | None = None) -> Finished:
    """The final vectors of `pooled` [B, P] float32: calibrated, truncated and normalised as the
    space says.

    `calibration` is the one that the space names. A zero vector stays zero.
    """
    norms = torch.linalg.vector_norm(pooled, dim=1)
    vectors = pooled if calibration is None else torch.from_numpy(calibration.apply(pooled.numpy()))
    vectors = vectors if space.truncate_dim is None else vectors[:, : space.truncate_dim]
    status = _status(vectors)
    vectors = F.normalize(vectors, dim=1, eps=SHORTEST) if space.normalize else vectors
    recoverable = calibration is None and space.truncate_dim is None
    return Finished(vectors, norms, None if recoverable else pooled, status)


def weighted_means(
    pooled: Tensor, status: Tensor, tokens: np.ndarray, bounds: np.ndarray
) -> tuple[Tensor, Tensor]:
    """The means [D, P] of the pooled vectors [n, P] of each document's pieces, by their `tokens`
    [n]; and status [D].

    `bounds` [D + 1]: the first piece of each document, and the number of pieces. A piece without
    tokens counts as one.
    """
    weights = torch.from_numpy(np.maximum(tokens, 1).astype(np.float64))
    documents = torch.arange(len(bounds) - 1).repeat_interleave(torch.from_numpy(np.diff(bounds)))
    totals = torch.zeros(len(bounds) - 1, dtype=torch.float64).index_add_(0, documents, weights)
    shares = (weights / totals[documents]).unsqueeze(1)
    means = torch.zeros((len(bounds) - 1, pooled.shape[1]), dtype=torch.float64)
    means.index_add_(0, documents, pooled.double() * shares)
    fallback = torch.zeros(len(bounds) - 1, dtype=torch.uint8)
    fallback[documents[status == int(Status.FALLBACK)]] = int(Status.FALLBACK)
    return means.float(), fallback


def _status(vectors: Tensor) -> Tensor:
    lengths = torch.linalg.vector_norm(vectors, dim=1)
    status = torch.full((len(vectors),), int(Status.OK), dtype=torch.uint8)
    status[lengths < SHORTEST] = int(Status.ZERO)
    status[~torch.isfinite(lengths)] = int(Status.NONFINITE)
    return status
