"""The last stage, from pooled to final vectors: calibrate, truncate, normalise, in this order."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sentence_beam.transforms.calibration import Calibration
from sentence_beam.transforms.encoder.batches import BatchStats
from sentence_beam.transforms.pooling.states import Status
from sentence_beam.transforms.space.identity import SHORTEST, Space


@dataclass(frozen=True)
class Finished:
    """The final `vectors` [B, dim] and the lengths `norms` [B] of the pooled ones, float32.

    `pooled` [B, P] float32 is None if it is `vectors` (not normalised) or `vectors * norms`.
    `status` [B] uint8.
    """

    vectors: Tensor
    norms: Tensor
    pooled: Tensor | None
    status: Tensor


@dataclass(frozen=True)
class Embedded:
    """The result for `B` texts, in input order.

    `vectors` [B, dim] float32, final; `norms` [B] float32, lengths of the pooled vectors; `pooled`
    [B, P] float32, None if it is `vectors` (not normalised) or `vectors * norms`; `status` [B]
    uint8 (see `pooling.Status`); `stats`; `seconds` that the devices computed, `idle` seconds for
    which they had nothing to do before these texts.
    """

    vectors: np.ndarray
    norms: np.ndarray
    pooled: np.ndarray | None
    status: np.ndarray
    stats: BatchStats
    seconds: float = 0.0
    idle: float = 0.0


def finish(pooled: Tensor, space: Space, calibration: Calibration | None = None) -> Finished:
    """Calibrate, truncate and normalise `pooled` [B, P] float32 as the space has it.

    `calibration` is the one that the space names. A zero vector stays zero.
    """
    norms = torch.linalg.vector_norm(pooled, dim=1)
    vectors = pooled
    if calibration is not None:
        vectors = torch.from_numpy(calibration.apply(pooled.numpy()))
    if space.truncate_dim is not None:
        vectors = vectors[:, : space.truncate_dim]
    lengths = torch.linalg.vector_norm(vectors, dim=1) if vectors is not pooled else norms
    status = _find_status(lengths)
    if space.normalize:
        vectors = vectors / lengths.clamp_min(SHORTEST).unsqueeze(1)
    is_recovered = calibration is None and space.truncate_dim is None
    return Finished(vectors, norms, None if is_recovered else pooled, status)


def average_pieces(
    pooled: Tensor, status: Tensor, tokens: np.ndarray, bounds: np.ndarray
) -> tuple[Tensor, Tensor]:
    """Average the pooled vectors [n, P] of each document's pieces, weighted by `tokens` [n].

    Returns means [D, P] and status [D]. `bounds` [D + 1]: the first piece of each document, and the
    number of pieces. A piece without tokens has weight 1.
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


def _find_status(lengths: Tensor) -> Tensor:
    status = torch.full((len(lengths),), int(Status.OK), dtype=torch.uint8)
    status[lengths < SHORTEST] = int(Status.ZERO)
    status[~torch.isfinite(lengths)] = int(Status.NONFINITE)
    return status
