"""A forward pass without padding for the BERT family on a CPU.

Linear layers run over the packed tokens of the whole batch, attention over runs of equally long texts, so that no mask
and no padded token is ever computed. Scratch memory is reused: fresh pages for every intermediate cost a tenth of the
time on a CPU.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transforms.encoder.batches import Batch
from transforms.encoder.linear import ROWS_HINT, PackedLinear
from transforms.encoder.own_attention import own_attention
from transforms.encoder.taps import Tapped
from transforms.pooling.needs import Needs

FAMILIES = frozenset(("bert", "roberta", "xlm-roberta", "camembert", "electra"))
# Up to this many tokens plain matrix products beat the fused kernel, whose blocks are larger than the texts.
_SHORT = 48
_REGISTER = 16  # float32 in 512 bits
# Rows are filled up to a multiple, so that few shapes occur: kernels are compiled, and kept, for every one.
ROWS_STEP = 64


@dataclass(frozen=True)
class Block:
    """One block's weights; `qkv` are query, key and value side by side."""

    qkv: PackedLinear
    out: PackedLinear
    out_norm: nn.LayerNorm
    up: PackedLinear
    down: PackedLinear
    down_norm: nn.LayerNorm


@dataclass(frozen=True)
class Head:
    """One head's query and key, each H -> H / heads; `below`: the layer that they see."""

    below: int
    query: PackedLinear
    key: PackedLinear


class PackedRunner:
    """States [N, H] of layers and own attention [N] of heads, for one batch at a time."""

    pads = False

    def __init__(self, model: Any, needs: Needs) -> None:
        self._wanted = needs.layers
        self._embeddings = model.embeddings
        self._project = getattr(model, "embeddings_project", nn.Identity())
        self._heads = model.config.num_attention_heads
        self._activate = model.encoder.layer[0].intermediate.intermediate_act_fn
        self._gelu = isinstance(self._activate, nn.Module) and type(self._activate).__name__ == "GELUActivation"
        self._blocks = [read_block(layer) for layer in model.encoder.layer[: needs.deepest]]
        self._probes = {(block, head): read_head(model, block, head) for block, head in needs.heads}
        self._padding_id = None if model.config.model_type in ("bert", "electra") else self._embeddings.padding_idx
        self._scratch = threading.local()  # batches may run side by side

    def run(self, batch: Batch) -> Tapped:
        """What was asked for of the batch's tokens, text after text."""
        runs = list(_equal_lengths(batch.lengths))
        tokens, found = len(batch.ids), Tapped()
        state = F.pad(self._embed(batch), (0, 0, 0, -tokens % ROWS_STEP))
        self._keep(found, 0, state, tokens, runs)
        for layer, block in enumerate(self._blocks, start=1):
            state = self._run_block(block, state, runs)
            self._keep(found, layer, state, tokens, runs)
        return found

    def _keep(self, found: Tapped, layer: int, state: Tensor, tokens: int, runs: list[tuple[int, int, int]]) -> None:
        if layer in self._wanted:
            found.layers[layer] = state[:tokens]
        for name, head in self._probes.items():
            if head.below == layer:
                found.heads[name] = _own_attention(head, state, runs)[:tokens]

    def _embed(self, batch: Batch) -> Tensor:
        ids = torch.from_numpy(batch.ids)
        types = torch.zeros_like(ids) if batch.types is None else torch.from_numpy(batch.types)
        places = torch.from_numpy(positions(batch, self._padding_id))
        state = self._embeddings(input_ids=ids[None], token_type_ids=types[None], position_ids=places[None])
        return self._project(state).squeeze(0)

    def _run_block(self, block: Block, state: Tensor, runs: list[tuple[int, int, int]]) -> Tensor:
        qkv = self._memory("qkv", state.shape[0], 3 * state.shape[1], state.dtype)
        for part in _parts(state.shape[0]):
            qkv[part] = block.qkv(state[part])
        mixed, after = self._attend(qkv, runs), torch.empty_like(state)
        for part in _parts(state.shape[0]):
            middle = normed(block.out_norm, block.out.add(mixed[part], state[part]))
            after[part] = normed(block.down_norm, block.down.add(self._rise(block, middle), middle))
        return after

    def _rise(self, block: Block, x: Tensor) -> Tensor:
        return block.up.gelu(x) if self._gelu else self._activate(block.up(x))

    def _attend(self, qkv: Tensor, runs: list[tuple[int, int, int]]) -> Tensor:
        width = qkv.shape[1] // 3
        mixed = self._memory("mixed", qkv.shape[0], width, qkv.dtype)
        for start, texts, length in runs:
            stop = start + texts * length
            short = length <= _SHORT
            part = qkv[start:stop].float() if short else qkv[start:stop]
            query, key, value = part.view(texts, length, 3, self._heads, -1).permute(2, 0, 3, 1, 4)
            attended = _attend_short(query, key, value) if short else F.scaled_dot_product_attention(query, key, value)
            mixed[start:stop].view(texts, length, self._heads, -1).copy_(attended.transpose(1, 2))
        return mixed

    def _memory(self, name: str, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        memory = getattr(self._scratch, name, None)
        if memory is None or memory.shape[0] < rows:
            memory = torch.zeros(rows, columns, dtype=dtype)
            setattr(self._scratch, name, memory)
        return memory[:rows]


def _attend_short(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """softmax(q k' / sqrt(d)) v; each [n, heads, T, d] float32."""
    shape = query.shape
    flat = (shape[0] * shape[1], shape[2], shape[3])
    query, key, value = (part.reshape(flat) for part in (query, key, value))
    scores = torch.empty(flat[0], flat[1], flat[1])
    torch.baddbmm(scores, query, key.transpose(1, 2), beta=0, alpha=shape[3] ** -0.5, out=scores)
    return torch.bmm(_softmax(scores), value).view(shape)


def _softmax(scores: Tensor) -> Tensor:
    """Over the last axis, in place; the library's own is not vectorised below the width of a register."""
    if scores.shape[-1] >= _REGISTER:
        return scores.softmax(-1)
    scores.sub_(scores.amax(-1, keepdim=True)).exp_()
    return scores.div_(scores.sum(-1, keepdim=True))


def _parts(rows: int) -> Iterator[slice]:
    """Blocks of rows whose intermediates stay in the processor's cache."""
    return (slice(start, min(rows, start + ROWS_HINT)) for start in range(0, rows, ROWS_HINT))


def _own_attention(head: Head, state: Tensor, runs: list[tuple[int, int, int]]) -> Tensor:
    """How much each token attends to itself, [N] float32."""
    query, key = head.query(state), head.key(state)
    found = torch.zeros(len(state), dtype=torch.float32)
    for start, texts, length in runs:
        part, shape = slice(start, start + texts * length), (texts, length, query.shape[1])
        own = own_attention(query[part].view(shape), key[part].view(shape), query.shape[1] ** -0.5)
        found[part] = own.flatten()
    return found


def read_head(model: Any, block: int, head: int) -> Head:
    """One head of a block, both counted from 1."""
    attention = model.encoder.layer[block - 1].attention.self
    size = attention.query.weight.shape[0] // model.config.num_attention_heads
    rows = slice((head - 1) * size, head * size)
    query, key = (PackedLinear.pack(part.weight[rows], part.bias[rows]) for part in (attention.query, attention.key))
    return Head(block - 1, query, key)


def read_block(layer: Any) -> Block:
    """A block of a model of one of the families."""
    attention = layer.attention.self
    return Block(
        qkv=PackedLinear.of(attention.query, attention.key, attention.value),
        out=PackedLinear.of(layer.attention.output.dense),
        out_norm=layer.attention.output.LayerNorm,
        up=PackedLinear.of(layer.intermediate.dense),
        down=PackedLinear.of(layer.output.dense),
        down_norm=layer.output.LayerNorm,
    )


def normed(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """The layer norm of x."""
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def _equal_lengths(lengths: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Runs of equally long texts, small enough for the cache: first token, texts, tokens of each."""
    starts = np.flatnonzero(np.diff(lengths, prepend=-1))
    tokens = np.cumsum(lengths) - lengths
    for start, stop in zip(starts, [*starts[1:], len(lengths)], strict=True):
        length = int(lengths[start])
        step = max(1, ROWS_HINT // length)
        for first in range(start, stop, step):
            yield int(tokens[first]), min(step, int(stop) - first), length


def positions(batch: Batch, padding_id: int | None) -> np.ndarray:
    """Position ids of every token; RoBERTa counts from its padding id, and past padding tokens in a text."""
    starts = np.repeat(np.cumsum(batch.lengths) - batch.lengths, batch.lengths)
    if padding_id is None:
        return np.arange(len(batch.ids)) - starts
    real = batch.ids != padding_id
    before = np.concatenate([[0], np.cumsum(real)])
    return (before[1:] - before[starts]) * real + padding_id
