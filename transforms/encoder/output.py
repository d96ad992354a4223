"""The last stage: pooled vectors -> what is stored. Nothing here runs the model."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from transforms.space.identity import Space


@dataclass(frozen=True)
class Finished:
    """`vectors` [B, dim] final, `norms` [B] length of the pooled vector, all float32.

    `pooled` [B, P] only where it is neither `vectors` nor `vectors * norms`.
    """

    vectors: Tensor
    norms: Tensor
    pooled: Tensor | None


def finish(pooled: Tensor, space: Space) -> Finished:
    """Truncate, then normalise (a zero vector stays zero), as the space says; `pooled` [B, P] float32."""
    norms = torch.linalg.vector_norm(pooled, dim=1)
    vectors = pooled if space.truncate_dim is None else pooled[:, : space.truncate_dim]
    vectors = F.normalize(vectors, dim=1, eps=1e-12) if space.normalize else vectors
    return Finished(vectors, norms, None if space.truncate_dim is None else pooled)
