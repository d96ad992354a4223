"""A copy of the model on one device: a batch in, pooled vectors out."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from transforms.encoder.batches import Batch, BatchStats
from transforms.encoder.forward import Forward
from transforms.encoder.late import PiecesJob, ReadyPieces, WindowRun, ready_pieces, text_states
from transforms.encoder.memory import MemoryLimit
from transforms.encoder.probe import BatchSharing
from transforms.pooling.pooler import Pooler
from transforms.pooling.states import TokenStates

States = list[tuple[Batch, TokenStates, BatchStats]]
Each = Callable[[Callable[[Batch], States], list[Batch]], Iterable[States]]


@dataclass(frozen=True)
class PooledBatch:
    """The pooled vectors [n, P] float32 and status [n] uint8 of a batch, or a part of one; the
    texts' places [n].
    """

    rows: np.ndarray
    vectors: Tensor
    status: Tensor
    stats: BatchStats


@dataclass(frozen=True)
class Replica:
    """A copy of the model on `device`, with its pooler and the layers after that.

    `limit` is what there is memory for in passes of the model, `pooling` in what follows the passes
    over windows.
    """

    device: torch.device
    forward: Forward
    pooler: Pooler
    layers: Callable[[Tensor], Tensor]
    limit: MemoryLimit = field(default_factory=MemoryLimit)
    pooling: MemoryLimit = field(default_factory=MemoryLimit)

    def __call__(self, batch: Batch) -> list[PooledBatch]:
        """The batch's pooled vectors, on the device; in parts, each a batch of its own, where
        memory ran out.
        """
        return _with_splits(self.limit.run(batch, self._tokens, self._pooled), BatchStats())

    def states(self, batch: Batch) -> States:
        """The batch's token states; those of its parts where memory ran out."""
        return self.limit.run(
            batch, self._tokens, lambda part: (part, self.forward(part), self._stats(part))
        )

    def pieces(self, job: PiecesJob, each: Each = map) -> list[PooledBatch]:
        """The pooled vectors of pieces, on the device; `each` runs batches of windows, one by one
        or side by side.
        """
        counted: list[BatchStats] = []

        def states_of(run: WindowRun) -> Iterator[tuple[int, TokenStates]]:
            for parts in each(self.states, run.batches):
                for batch, states, stats in parts:
                    counted.append(stats)
                    for row in range(len(batch.rows) - batch.fill):
                        yield int(batch.rows[row]), text_states(states, row)

        found: list[PooledBatch] = []
        for ready in ready_pieces(job, states_of):
            parts = self.pooling.run(ready, lambda pieces: pieces.tokens, self._pooled_pieces)
            stats, counted[:] = sum(counted, BatchStats()), []
            found += _with_splits(parts, stats)
        return found

    def _pooled_pieces(self, ready: ReadyPieces) -> PooledBatch:
        result = self.pooler(ready.states())
        return PooledBatch(ready.rows, self.layers(result.vectors), result.status, BatchStats())

    def _pooled(self, batch: Batch) -> PooledBatch:
        result = self.pooler(self.forward(batch))
        return PooledBatch(
            batch.rows, self.layers(result.vectors), result.status, self._stats(batch)
        )

    def _stats(self, batch: Batch) -> BatchStats:
        return batch.stats(self.forward.together is BatchSharing.PADDED)

    def _tokens(self, batch: Batch) -> int:
        return self._stats(batch).padded


def _with_splits(parts: list[PooledBatch], stats: BatchStats) -> list[PooledBatch]:
    """The parts, the first of which has also these counts, and how often the work was halved."""
    first = replace(parts[0], stats=parts[0].stats + stats + BatchStats(oom_splits=len(parts) - 1))
    return [first, *parts[1:]]
