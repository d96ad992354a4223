"""A forward pass without padding for the BERT family on a GPU.

All layers run over the packed tokens of the whole batch, attention by torch's kernel for texts of different lengths,
which wants 16-bit states.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from transforms.encoder.batches import Batch
from transforms.encoder.packed import Block, Head, normed, positions, read_block, read_head
from transforms.encoder.taps import Tapped
from transforms.encoder.transfer import to_device
from transforms.pooling.needs import Needs

try:
    from torch.nn.attention.varlen import AuxRequest, varlen_attn
except ImportError:  # a torch without it: the padded pass serves
    varlen_attn = None  # type: ignore[assignment]

DTYPES = frozenset((torch.bfloat16, torch.float16))


def available(model: Any) -> bool:
    """Whether torch can attend so where the model is, with heads of its width."""
    weight, width = next(model.parameters()), model.config.hidden_size // model.config.num_attention_heads
    return varlen_attn is not None and weight.device.type == "cuda" and weight.dtype in DTYPES and width % 8 == 0


class VarlenRunner:
    """States [N, H] of layers and own attention [N] of heads, for one batch at a time."""

    pads = False

    def __init__(self, model: Any, needs: Needs) -> None:
        self._wanted = needs.layers
        self._embeddings = model.embeddings
        self._device = next(model.parameters()).device
        self._project = getattr(model, "embeddings_project", nn.Identity())
        self._heads = model.config.num_attention_heads
        self._activate = model.encoder.layer[0].intermediate.intermediate_act_fn
        self._blocks = [read_block(layer) for layer in model.encoder.layer[: needs.deepest]]
        self._probes = {(block, head): read_head(model, block, head) for block, head in needs.heads}
        self._padding_id = None if model.config.model_type in ("bert", "electra") else self._embeddings.padding_idx

    def run(self, batch: Batch) -> Tapped:
        """What was asked for of the batch's tokens, text after text."""
        offsets = np.concatenate([[0], np.cumsum(batch.lengths)]).astype(np.int32)
        bounds, longest, found = to_device(offsets, self._device), batch.width, Tapped()
        state = self._embed(batch)
        self._keep(found, 0, state, bounds, longest)
        for layer, block in enumerate(self._blocks, start=1):
            state = self._run_block(block, state, bounds, longest)
            self._keep(found, layer, state, bounds, longest)
        return found

    def _keep(self, found: Tapped, layer: int, state: Tensor, bounds: Tensor, longest: int) -> None:
        if layer in self._wanted:
            found.layers[layer] = state
        for name, head in self._probes.items():
            if head.below == layer:
                found.heads[name] = _own_attention(head, state, bounds, longest)

    def _embed(self, batch: Batch) -> Tensor:
        types = np.zeros_like(batch.ids) if batch.types is None else batch.types
        arrays = (batch.ids, types, positions(batch, self._padding_id))
        names = ("input_ids", "token_type_ids", "position_ids")
        inputs = {name: to_device(values, self._device)[None] for name, values in zip(names, arrays, strict=True)}
        return self._project(self._embeddings(**inputs)).squeeze(0)

    def _run_block(self, block: Block, state: Tensor, bounds: Tensor, longest: int) -> Tensor:
        query, key, value = block.qkv(state).view(len(state), 3, self._heads, -1).unbind(1)
        mixed: Any = varlen_attn(query, key, value, bounds, bounds, longest, longest)
        middle = normed(block.out_norm, block.out.add(mixed.flatten(1), state))
        return normed(block.down_norm, block.down.add(self._activate(block.up(middle)), middle))


def _own_attention(head: Head, state: Tensor, bounds: Tensor, longest: int) -> Tensor:
    """How much each token attends to itself, [N] float32: the kernel gives the logarithm of the scores' sum."""
    query, key = head.query(state)[:, None], head.key(state)[:, None]
    _, total = varlen_attn(query, key, key, bounds, bounds, longest, longest, return_aux=AuxRequest(lse=True))
    own = (query.float() * key.float()).sum(dim=2).mul_(query.shape[2] ** -0.5)
    return (own[:, 0] - total.view(-1)).exp()
