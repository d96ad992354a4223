"""A copy of the model on one device with its pooler: a batch in, pooled vectors out; its size of
batches.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from transforms.base.errors import OptionError
from transforms.encoder.batches import Batch, BatchStats
from transforms.encoder.forward import Forward
from transforms.encoder.late import PiecesJob, ReadyPieces, WindowRun, ready_pieces, text_states
from transforms.encoder.layer_hooks import TIME_FIRST
from transforms.encoder.load import load_cnn, load_mix, load_token_layers
from transforms.encoder.memory import MemoryLimit, free_memory, tokens_that_fit
from transforms.encoder.probe import BatchSharing
from transforms.encoder.tokenize import TextTokenizer
from transforms.pooling.build import Lexicon, build_pooler
from transforms.pooling.pooler import MixedLayers, OverTokenLayers, Pooler
from transforms.pooling.states import ModelShape, TokenStates
from transforms.pooling.token_statistics import TokenStatistics
from transforms.space.identity import Space
from transforms.space.model_files import ModelFiles
from transforms.space.spec import PoolerSpec

TOKENS_PER_BATCH = {"cpu": 1024, "cuda": 65536}
# without padding a larger batch costs nothing; of two cores one idles for half a batch at the end
# of a unit
TOKENS_PER_PACKED_BATCH = 2048
# a unit's batches are made smaller, down to this, until each core has several: the last ones end at
# about one time
LEAST_TOKENS_PER_BATCH, BATCHES_PER_CORE = 512, 4
# a unit ends with one batch that is not full for every length of text
TOKENS_PER_ALIKE_BATCH = {"cpu": 512, "cuda": 16384}

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


def load_pooler(
    files: ModelFiles,
    space: Space,
    tokenizer: TextTokenizer,
    tables: Mapping[str, TokenStatistics],
    device: torch.device,
) -> Pooler:
    """The pooler on a device; `tables` are token statistics by digest."""
    spec, modules, described = PoolerSpec.from_json(space.pooler), files.modules, space.pooler
    tokens = modules.tokens if "tokens" in described else ()
    shape = ModelShape(
        layers=files.layers,
        hidden=tokens[-1].parameters["dim"] if tokens else files.hidden,
        embedding=files.embedding,
        has_pooler_head=files.has_pooler_head,
        heads=files.heads,
        has_cnn_head=files.has_cnn_head,
    )
    lexicon = Lexicon(
        pieces=tokenizer.pieces if any(part.name == "remove-biases" for part in spec.parts) else (),
        around=tokenizer.around,
        tables=tables,
        cnn=load_cnn(modules.cnn, device)
        if "cnn" in described and modules.cnn is not None
        else None,
    )
    pooler = build_pooler(spec, shape, lexicon)
    if tokens:
        pooler = OverTokenLayers(pooler, files.layers, load_token_layers(tokens, device))
    if "mix" in described and modules.mix is not None:
        pooler = MixedLayers(
            pooler, modules.mix.parameters["start"], files.layers, load_mix(modules.mix)
        )
    return pooler


def tokens_per_batch(asked: int | None, replicas: Sequence[Replica]) -> int:
    """The most tokens of a batch, padding included: those `asked` for, else as suits the devices
    and their memory.
    """
    if asked is not None:
        if asked < 1:
            raise OptionError(f"tokens per batch {asked}: give 1 or more")
        return asked
    first = replicas[0]
    if first.device.type == "cpu":
        packed = first.forward.together is BatchSharing.PACKED
        return TOKENS_PER_PACKED_BATCH if packed else TOKENS_PER_BATCH["cpu"]
    most = TOKENS_PER_BATCH[first.device.type]
    return min(
        tokens_that_fit(free_memory(each.device), each.forward.token_bytes, most)
        for each in replicas
    )


def tokens_per_alike_batch(asked: int | None, replica: Replica, family: str) -> int:
    """The tokens of a batch that depends on nothing, whatever the machine and its memory."""
    if asked is not None:
        raise OptionError(
            f"tokens per batch {asked}: deterministic batches have a size of their own"
        )
    # where texts lie side by side in memory, a text's place among them decides how its sums are
    # rounded
    alone = replica.forward.together is BatchSharing.ALONE or family in TIME_FIRST
    return 1 if alone else TOKENS_PER_ALIKE_BATCH[replica.device.type]


def spread(budget: int, tokens: int) -> int:
    """The tokens of a batch, at most `budget`, such that there is work for every core."""
    return min(
        budget, max(LEAST_TOKENS_PER_BATCH, tokens // (BATCHES_PER_CORE * torch.get_num_threads()))
    )
