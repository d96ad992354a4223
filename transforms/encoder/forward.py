"""The forward pass: a batch of token ids -> packed token states of what a pooler needs -> pooled vectors."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from transforms.encoder import bert
from transforms.encoder.batches import Batch, BatchStats
from transforms.encoder.layer_hooks import LayerStates
from transforms.encoder.one_row import OneRowRunner
from transforms.encoder.packed import PackedRunner
from transforms.encoder.padded import ByLength, PaddedRunner
from transforms.encoder.probe import BatchSharing, Probe, Runner
from transforms.encoder.template import BareTemplateStates
from transforms.encoder.tokenize import TextTokenizer
from transforms.encoder.transfer import to_device
from transforms.encoder.varlen import VarlenRunner, kernel_for
from transforms.errors import OptionError, first_line
from transforms.pooling.pooler import Needs, Pooler
from transforms.pooling.states import BareMask, TokenStates
from transforms.space.model_files import ModelFiles

_LOGGER = logging.getLogger(__name__)
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory")


class Forward:
    """A model's forward pass as far as a pooler needs it; its results are packed token states.

    `together`: which texts may share a batch; `objection`: what spoke against a pass without padding, where one was
    tried. Raises `UnfitModelError` where the model cannot run, or not twice alike.
    """

    def __init__(self, files: ModelFiles, model: Any, tokenizer: TextTokenizer, needs: Needs) -> None:
        _check_vocabulary(files, model, tokenizer)
        models = ByLength(model)
        self._device = next(model.parameters()).device
        self._embedding: nn.Module = model.get_input_embeddings()
        self._raw = needs.raw
        self._prompt_tokens = tokenizer.prompt_tokens
        self._special = _lookup_table(tokenizer.special_ids, embedding_rows(model))
        self._head = pooler_head(model) if needs.pooler_head else None
        self._plain = tokenizer.plain_ids(embedding_rows(model))
        self._needed = max(needs.layers, default=0)
        self._runner: Runner | None = None
        self.together, self.objection = BatchSharing.PACKED, ""
        if needs.layers or needs.heads:
            self._runner, self.together, self.objection = _make_runner(files, models, tokenizer, needs)
        self._bare = None
        if needs.bare_mask and tokenizer.template is not None:
            self._bare_length = len(tokenizer.template.bare.ids)
            self._bare = BareTemplateStates(models.shortest, tokenizer.template.bare)

    def __call__(self, batch: Batch) -> TokenStates:
        """The token states of the batch's texts, in its order."""
        ids = to_device(batch.ids, self._device)
        found = self._runner.run(batch) if self._runner is not None else LayerStates()
        return TokenStates(
            hidden=found.layers,
            token_ids=ids,
            offsets=to_device(batch.offsets, self._device),
            keep=torch.ones(len(batch.ids), dtype=torch.bool, device=self._device),
            raw=self._embedding(ids) if self._raw else None,
            special=to_device(self._special[batch.ids], self._device),
            prompt_tokens=self._prompt_tokens,
            head=self._head,
            own_attention=found.heads,
            mask=None if batch.masks is None else to_device(batch.offsets[:-1] + batch.masks, self._device),
            bare_mask=self._bare_mask(batch),
        )

    @cached_property
    def is_causal(self) -> bool:
        """Whether a token's state knows nothing of the tokens after it."""
        if self._runner is None or not self._needed:
            return False
        one = np.resize(self._plain, 8)
        other = one.copy()
        other[-1] = next((number for number in self._plain if number != one[-1]), one[-1])
        batches = [Batch(np.arange(1), ids, np.array([len(ids)])) for ids in (one, other)]
        with torch.inference_mode():
            states = [self._runner.run(batch).layers[self._needed][:-1] for batch in batches]
        return bool(torch.equal(*states))

    def _bare_mask(self, batch: Batch) -> BareMask | None:
        return None if self._bare is None else self._bare(batch.lengths - self._bare_length)


def _make_runner(
    files: ModelFiles, models: ByLength, tokenizer: TextTokenizer, needs: Needs
) -> tuple[Runner, BatchSharing, str]:
    """A pass over the blocks, which texts may share a batch, and what spoke against a pass without padding.

    A pass without padding where there is one and it agrees with the model's own, else that one.
    """
    model: Any = models.shortest
    unpadded, objection = _unpadded(files, model, tokenizer, needs)
    padded = PaddedRunner(models, needs, files.layers, tokenizer)
    probe = Probe(padded, _sound_ids(model, tokenizer.plain_ids(embedding_rows(model))), files)
    if unpadded is not None:
        objection = probe.objection(unpadded, many=isinstance(unpadded, OneRowRunner))
        if not objection:
            return unpadded, BatchSharing.PACKED, ""
    if objection:
        _LOGGER.warning("%s: %s: texts of a batch are padded: %s", files.folder, files.family, objection)
    return padded, probe.together(), objection


def _unpadded(files: ModelFiles, model: Any, tokenizer: TextTokenizer, needs: Needs) -> tuple[Runner | None, str]:
    """A pass without padding, None where there is none; and why not, where it might have been."""
    kernel = kernel_for(model)
    if files.family in bert.FAMILIES and kernel is not None:
        return VarlenRunner(model, needs, kernel), ""
    if files.family in bert.FAMILIES and next(model.parameters()).device.type == "cpu":
        return PackedRunner(model, needs), ""
    if kernel is None:
        return None, ""
    try:
        return OneRowRunner(files, model, needs, tokenizer.gives_types, kernel), ""
    except Exception as error:  # a model's code may raise every kind for what it is not made for
        return None, first_line(error)


def _check_vocabulary(files: ModelFiles, model: Any, tokenizer: TextTokenizer) -> None:
    known, rows = tokenizer.vocabulary, embedding_rows(model)
    if known > rows:
        raise OptionError(
            f"{files.folder}: the tokenizer has ids up to {known - 1}, the model {rows} token embeddings; "
            "save the model again after resize_token_embeddings"
        )


def _sound_ids(model: Any, ids: np.ndarray) -> np.ndarray:
    """Those of the token ids whose embeddings are finite: one row of NaN spoils a few texts, not the model."""
    rows = model.get_input_embeddings().weight[torch.from_numpy(ids)]
    finite = torch.isfinite(rows).all(dim=1).cpu().numpy()
    return ids[finite] if finite.any() else ids


def embedding_rows(model: Any) -> int:
    """How many token ids the model knows."""
    return model.get_input_embeddings().weight.shape[0]


def pooler_head(model: Any) -> Callable[[Tensor], Tensor]:
    """The tanh pooler, a function [B, H] -> [B, H]; BERT keeps its tanh inside, ALBERT and BigBird beside it."""
    pooler = model.pooler
    if isinstance(pooler, nn.Linear):
        activation = model.pooler_activation if hasattr(model, "pooler_activation") else model.activation
        return lambda first: activation(pooler(first.to(pooler.weight.dtype)))
    return lambda first: pooler(first.to(pooler.dense.weight.dtype).unsqueeze(1))


def _lookup_table(ids: np.ndarray, size: int) -> np.ndarray:
    table = np.zeros(max(size, int(ids.max(initial=0)) + 1), dtype=bool)
    table[ids] = True
    return table


@dataclass(frozen=True)
class PooledBatch:
    """A batch's pooled vectors [n, P] float32 and status [n] uint8 in main memory, and the texts' places [n].

    After a pass on a GPU the vectors and status are valid once its stream has finished the copy.
    """

    rows: np.ndarray
    vectors: Tensor
    status: Tensor
    stats: BatchStats


@dataclass(frozen=True)
class Replica:
    """A copy of the model on `device`, with its pooler and the layers after that."""

    device: torch.device
    forward: Forward
    pooler: Pooler
    layers: Callable[[Tensor], Tensor]

    def __call__(self, batch: Batch) -> PooledBatch:
        """The batch's pooled vectors; when memory runs out the batch is halved, down to a single text."""
        try:
            result = self.pooler(self.forward(batch))
            vectors = self.layers(result.vectors)
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error) or len(batch.rows) == 1:
                raise
        else:
            vectors, status = (part.to("cpu", non_blocking=True) for part in (vectors, result.status))
            return PooledBatch(batch.rows, vectors, status, batch.stats(self.forward.together is BatchSharing.PADDED))
        # outside of the handler, so that the failed pass's tensors are free
        _release_memory(self.device)
        return _joined(*(self(half) for half in batch.halves()))

    def states(self, batch: Batch) -> list[tuple[Batch, TokenStates, BatchStats]]:
        """The batch's token states on the device; when memory runs out, those of its halves, down to a single text."""
        try:
            return [(batch, self.forward(batch), batch.stats(self.forward.together is BatchSharing.PADDED))]
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error) or len(batch.rows) == 1:
                raise
        _release_memory(self.device)
        return [part for half in batch.halves() for part in self.states(half)]


def _joined(one: PooledBatch, other: PooledBatch) -> PooledBatch:
    if one.vectors.is_pinned():
        torch.cuda.current_stream().synchronize()  # the copies to main memory must be finished before they are joined
    return PooledBatch(
        np.concatenate([one.rows, other.rows]),
        torch.cat([one.vectors, other.vectors]),
        torch.cat([one.status, other.status]),
        one.stats + other.stats + BatchStats(oom_splits=1),
    )


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether a failed forward pass may succeed with a smaller batch."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _OUT_OF_MEMORY)


def _release_memory(device: torch.device) -> None:
    """Return memory that torch has cached on a GPU to its driver."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
