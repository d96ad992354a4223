"""A copy of the model on one device with its pooler, from batch to pooled vectors; batch sizes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder.batch_memory import (
    MemoryLimit,
    count_fitting_tokens,
    find_capability,
    measure_free_memory,
    total_memory,
)
from sentence_beam.transforms.encoder.batches import Batch, BatchStats
from sentence_beam.transforms.encoder.forward import ForwardPass
from sentence_beam.transforms.encoder.late import (
    PiecesJob,
    ReadyPieces,
    WindowRun,
    iterate_ready_pieces,
    select_text_states,
)
from sentence_beam.transforms.encoder.layer_hooks import TIME_FIRST
from sentence_beam.transforms.encoder.probe import BatchSharing
from sentence_beam.transforms.pooling.pooler import Pooler
from sentence_beam.transforms.pooling.states import TokenStates

TOKENS_PER_BATCH = {"cpu": 1024, "cuda": 65536}
# without padding a larger batch costs nothing, but one of two cores idles for half a batch at the
# end of a unit
TOKENS_PER_PACKED_BATCH = 2048
# a unit's batches are made smaller, down to this, until each core has several, so that the last
# ones end at about the same time
LEAST_TOKENS_PER_BATCH = 512
BATCHES_PER_CORE = 4
# a unit has one batch that is not full for every length of text
TOKENS_PER_ALIKE_BATCH = {"cpu": 512, "cuda": 16384}
# GPUs from this compute capability on, Hopper's, finish the batch above before the next is launched
_FASTER = (9, 0)

States = list[tuple[Batch, TokenStates, BatchStats]]
MapBatches = Callable[[Callable[[Batch], States], list[Batch]], Iterable[States]]


@dataclass(frozen=True)
class PooledBatch:
    """Pooled vectors [n, P] float32 and status [n] uint8 of a batch or a part; its `rows` [n]."""

    rows: np.ndarray
    vectors: Tensor
    status: Tensor
    stats: BatchStats


@dataclass(frozen=True)
class Replica:
    """A copy of the model on `device`, with its pooler and the layers after that.

    `limit` is the limit of memory in passes of the model, `pooling` the one in pooling pieces.
    """

    device: torch.device
    forward: ForwardPass
    pooler: Pooler
    layers: Callable[[Tensor], Tensor]
    limit: MemoryLimit = field(default_factory=MemoryLimit)
    pooling: MemoryLimit = field(default_factory=MemoryLimit)

    def __call__(self, batch: Batch) -> list[PooledBatch]:
        """Pool a batch on the device, in several parts if memory ran out."""
        return _add_splits(self.limit.run(batch, self._count_tokens, self._pool), BatchStats())

    def states(self, batch: Batch) -> States:
        """Return a batch's token states, in several parts if memory ran out."""
        return self.limit.run(batch, self._count_tokens, self._run)

    def pieces(self, job: PiecesJob, map_batches: MapBatches = map) -> list[PooledBatch]:
        """Pool pieces on the device; `map_batches` runs batches of windows, maybe in parallel."""
        counted: list[BatchStats] = []

        def states_of(run: WindowRun) -> Iterator[tuple[int, TokenStates]]:
            for parts in map_batches(self.states, run.batches):
                for batch, states, stats in parts:
                    counted.append(stats)
                    for row in range(len(batch.rows) - batch.fill):
                        yield int(batch.rows[row]), select_text_states(states, row)

        pooled: list[PooledBatch] = []
        for ready in iterate_ready_pieces(job, states_of):
            parts = self.pooling.run(ready, lambda pieces: pieces.tokens, self._pool_pieces)
            stats = sum(counted, BatchStats())
            counted.clear()
            pooled += _add_splits(parts, stats)
        return pooled

    def _run(self, batch: Batch) -> tuple[Batch, TokenStates, BatchStats]:
        return batch, self.forward(batch), self._count_stats(batch)

    def _pool_pieces(self, ready: ReadyPieces) -> PooledBatch:
        result = self.pooler(ready.states())
        return PooledBatch(ready.rows, self.layers(result.vectors), result.status, BatchStats())

    def _pool(self, batch: Batch) -> PooledBatch:
        result = self.pooler(self.forward(batch))
        vectors = self.layers(result.vectors)
        return PooledBatch(batch.rows, vectors, result.status, self._count_stats(batch))

    def _count_stats(self, batch: Batch) -> BatchStats:
        return batch.stats(self.forward.together is BatchSharing.PADDED)

    def _count_tokens(self, batch: Batch) -> int:
        return self._count_stats(batch).padded


def _add_splits(parts: list[PooledBatch], stats: BatchStats) -> list[PooledBatch]:
    """Add counts, and how often the work was halved, to the first part."""
    first = replace(parts[0], stats=parts[0].stats + stats + BatchStats(oom_splits=len(parts) - 1))
    return [first, *parts[1:]]


def tokens_per_batch(requested: int | None, replicas: Sequence[Replica]) -> int:
    """Return the most tokens of a batch, padding included.

    They are the requested ones, else those that suit the devices and their memory.
    """
    if requested is not None:
        if requested < 1:
            raise OptionError(f"tokens per batch {requested}: give 1 or more")
        return requested
    first = replicas[0]
    if first.device.type == "cpu":
        is_packed = first.forward.together is BatchSharing.PACKED
        return TOKENS_PER_PACKED_BATCH if is_packed else TOKENS_PER_BATCH["cpu"]
    most = TOKENS_PER_BATCH[first.device.type]
    return min(
        count_fitting_tokens(measure_free_memory(each.device), each.forward.token_bytes, most)
        for each in replicas
    )


def tokens_per_alike_batch(requested: int | None, replica: Replica, family: str) -> int:
    """Return the tokens of a deterministic batch, the same on every machine with such a device.

    The free memory has no part in it. Raises OptionError if a number is requested.
    """
    if requested is not None:
        raise OptionError(
            f"tokens per batch {requested}: deterministic batches have a size of their own"
        )
    # if the texts of a batch are interleaved in memory, rounding depends on a text's place in it
    if replica.forward.together is BatchSharing.ALONE or family in TIME_FIRST:
        return 1
    most = TOKENS_PER_BATCH[replica.device.type]
    capability = find_capability(replica.device)
    if capability is not None and capability >= _FASTER:
        whole = total_memory(replica.device)
        if count_fitting_tokens(whole, replica.forward.token_bytes, most) == most:
            return most
    return TOKENS_PER_ALIKE_BATCH[replica.device.type]


def spread(budget: int, tokens: int) -> int:
    """Return the tokens of a batch, at most `budget`, that leave work for every core."""
    batches = BATCHES_PER_CORE * torch.get_num_threads()
    return min(budget, max(LEAST_TOKENS_PER_BATCH, tokens // batches))
