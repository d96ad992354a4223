"""A unit's way through the model: cut into batches, handed to the devices, put together in input
order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from transforms.encoder.batches import BatchStats
from transforms.encoder.devices import PassedBatch
from transforms.pooling.states import Status


@dataclass(frozen=True)
class Passing:
    """Batches that the devices have, or will take; `passed` gives them in order, each once it is
    through.

    `lanes` work side by side; `started` is when (perf_counter) the batches were handed over.
    """

    rows: int
    passed: Iterator[PassedBatch]
    lanes: int
    started: float


@dataclass(frozen=True)
class PooledUnit:
    """The pooled vectors [B, P] float32 of a unit's texts in input order, their status [B] uint8
    and counts.

    `seconds` is how long the devices computed, `ended` when (perf_counter) the last of them was
    through.
    """

    vectors: Tensor
    status: Tensor
    stats: BatchStats
    seconds: float
    ended: float


def pooled_unit(passing: Passing, dim: int) -> PooledUnit:
    """The vectors [B, `dim`] of a unit, when all of its batches are through; a text without a token
    is zero.
    """
    vectors = torch.zeros((passing.rows, dim), dtype=torch.float32)
    status = torch.full((passing.rows,), int(Status.ZERO), dtype=torch.uint8)
    stats, seconds = BatchStats(), 0.0
    for passed in passing.passed:
        seconds += passed.wait()
        for part in passed.parts:
            places = torch.from_numpy(part.rows)
            vectors[places], status[places] = part.vectors, part.status
            stats += part.stats
    return PooledUnit(vectors, status, stats, seconds / passing.lanes, perf_counter())
