"""A forward pass without padding for the BERT family on a CPU.

Linear layers run over the packed tokens of the whole batch, attention over runs of equally long
texts, so that there are no masks and no padded tokens. The inputs and outputs of attention are in
memory that is reused: new memory for every block costs 2 to 4 % of the time.
"""

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sentence_beam.transforms.encoder.batches import Batch
from sentence_beam.transforms.encoder.bert import BertWeights, BlockWeights, HeadWeights
from sentence_beam.transforms.encoder.layer_hooks import LayerStates
from sentence_beam.transforms.encoder.own_attention import own_attention
from sentence_beam.transforms.pooling.pooler import Needs

# up to so many tokens plain matrix products are faster than the fused kernel with its large blocks
_SHORT = 48
_REGISTER = 16  # float32 in 512 bits
_AT_ONCE = 512  # tokens whose attention fits the processor's cache
# Rows are padded to a multiple: kernels are compiled and kept for every shape, so use few of them.
ROWS_STEP = 64


class PackedRunner:
    """A pass over the BERT family's blocks on a CPU, without padding."""

    def __init__(self, model: Any, needs: Needs) -> None:
        self._weights = BertWeights(model, needs)
        self._scratch = threading.local()  # batches may run in parallel

    def run(self, batch: Batch) -> LayerStates:
        """Run a batch; return states [N, H] of layers, own attention [N] of heads, packed."""
        runs = list(find_equal_lengths(batch.lengths))
        tokens = len(batch.ids)
        state = F.pad(self._weights.embed(batch), (0, 0, 0, -tokens % ROWS_STEP))
        block = partial(self._run_block, runs=runs)
        own = partial(_compute_own_attention, runs=runs)
        return self._weights.run(state, tokens, block, own)

    def _run_block(
        self, block: BlockWeights, state: Tensor, runs: list[tuple[int, int, int]]
    ) -> Tensor:
        return self._weights.run_after_attention(block, self._attend(block.qkv(state), runs), state)

    def _attend(self, qkv: Tensor, runs: list[tuple[int, int, int]]) -> Tensor:
        width = qkv.shape[1] // 3
        mixed = self._reserve_memory("mixed", qkv.shape[0], width, qkv.dtype)
        most = max(texts * length for _, texts, length in runs)
        wide = self._reserve_memory("wide", 3 * most, width, torch.float32)
        heads = self._weights.heads
        for start, texts, length in runs:
            stop = start + texts * length
            part = qkv[start:stop].view(texts, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
            if length <= _SHORT:  # one copy converts to float32 and to the products' layout
                attended = attend_short(*wide[: 3 * (stop - start)].view(part.shape).copy_(part))
            else:
                attended = attend_long(*part)
            out = mixed[start:stop].view(texts, length, heads, -1)
            out.copy_(attended.transpose(1, 2))
        return mixed

    def _reserve_memory(self, name: str, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        memory = getattr(self._scratch, name, None)
        if memory is None or memory.shape[0] < rows:
            memory = torch.zeros(rows, columns, dtype=dtype)
            setattr(self._scratch, name, memory)
        return memory[:rows]


def attend_long(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Compute softmax(q k' / sqrt(d)) v by the fused kernel; each [n, heads, T, d]."""
    return F.scaled_dot_product_attention(query, key, value)


def attend_short(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Compute softmax(q k' / sqrt(d)) v; each [n, heads, T, d] float32, contiguous."""
    shape = query.shape
    flat = (shape[0] * shape[1], shape[2], shape[3])
    query = query.view(flat)
    key = key.view(flat)
    value = value.view(flat)
    scores = torch.empty(flat[0], flat[1], flat[1])
    torch.baddbmm(scores, query, key.transpose(1, 2), beta=0, alpha=shape[3] ** -0.5, out=scores)
    return torch.bmm(softmax(scores), value).view(shape)


def softmax(scores: Tensor) -> Tensor:
    """Return the softmax over the last axis, in place if it is narrower than a register.

    For those torch's softmax is not vectorised.
    """
    if scores.shape[-1] >= _REGISTER:
        return scores.softmax(-1)
    scores.sub_(scores.amax(-1, keepdim=True)).exp_()
    return scores.div_(scores.sum(-1, keepdim=True))


def _compute_own_attention(
    head: HeadWeights, state: Tensor, runs: list[tuple[int, int, int]]
) -> Tensor:
    """Return the attention of each token to itself, [N] float32."""
    query = head.query(state)
    key = head.key(state)
    own = torch.zeros(len(state), dtype=torch.float32)
    scaling = query.shape[1] ** -0.5
    for start, texts, length in runs:
        part = slice(start, start + texts * length)
        shape = (texts, length, query.shape[1])
        own[part] = own_attention(query[part].view(shape), key[part].view(shape), scaling).flatten()
    return own


def find_equal_lengths(lengths: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield runs of equally long texts that fit the cache: first token, texts, tokens of each."""
    starts = np.flatnonzero(np.diff(lengths, prepend=-1))
    tokens = np.cumsum(lengths) - lengths
    for start, stop in zip(starts, [*starts[1:], len(lengths)], strict=True):
        length = int(lengths[start])
        step = max(1, _AT_ONCE // length)
        for first in range(start, stop, step):
            yield int(tokens[first]), min(step, int(stop) - first), length
