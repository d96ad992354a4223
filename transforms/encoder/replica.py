"""A model on one device, from batches to pooled vectors."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from transforms.encoder.batches import Batch, BatchStats
from transforms.encoder.forward import Forward
from transforms.encoder.memory import is_out_of_memory, release_memory
from transforms.pooling.pooler import Pooler


@dataclass(frozen=True)
class Part:
    """A batch's pooled vectors [n, P] float32 and status [n] uint8 in main memory, and the texts' places [n].

    From a GPU both are on their way until its stream has got so far.
    """

    rows: np.ndarray
    vectors: Tensor
    status: Tensor
    stats: BatchStats


@dataclass(frozen=True)
class Replica:
    """A model on `device` with its pooler, and the layers after it."""

    device: torch.device
    forward: Forward
    pooler: Pooler
    layers: Callable[[Tensor], Tensor]

    def __call__(self, batch: Batch) -> Part:
        """The batch's vectors; the batch is halved for as long as memory does not suffice."""
        try:
            result = self.pooler(self.forward(batch))
            vectors = self.layers(result.vectors)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or len(batch.rows) == 1:
                raise
        else:
            vectors, status = (part.to("cpu", non_blocking=True) for part in (vectors, result.status))
            return Part(batch.rows, vectors, status, batch.stats(self.forward.pads))
        # outside of the handler, so that the failed pass's tensors are free
        release_memory(self.device)
        return _joined(*(self(half) for half in batch.halves()))


def _joined(one: Part, other: Part) -> Part:
    if one.vectors.is_pinned():
        torch.cuda.current_stream().synchronize()  # joining reads what is still on its way
    return Part(
        np.concatenate([one.rows, other.rows]),
        torch.cat([one.vectors, other.vectors]),
        torch.cat([one.status, other.status]),
        one.stats + other.stats + BatchStats(oom_splits=1),
    )
