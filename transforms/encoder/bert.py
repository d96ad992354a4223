"""The BERT family's weights and blocks, for the passes without padding.

On a CPU the weights of linear layers are laid out once for the processor's matrix kernels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sentence_beam.transforms.encoder.batches import Batch
from sentence_beam.transforms.encoder.layer_hooks import LayerStates
from sentence_beam.transforms.pooling.pooler import Needs
from sentence_beam.transforms.pooling.transfer import to_device

FAMILIES = frozenset(("bert", "roberta", "xlm-roberta", "camembert", "electra"))
ROWS_HINT = 512
_EXACT_GELU = ("GELU", "GELUActivation")


@dataclass(frozen=True)
class PackedLinear:
    """A linear layer, x -> x weight' + bias.

    `packed`: whether the weight is in oneDNN's layout, and only there, because torch can make it.
    Laying the weight out for every product would cost a tenth of the product; the activation is
    part of the same pass over the output. Kernels are compiled for each shape and kept: use few
    numbers of rows.
    """

    weight: Tensor
    bias: Tensor
    packed: bool

    @classmethod
    def from_layers(cls, *layers: nn.Linear) -> "PackedLinear":
        """Join layers that read the same input; the outputs are side by side."""
        return cls.pack(
            torch.cat([layer.weight for layer in layers]),
            torch.cat([layer.bias for layer in layers]),
        )

    @classmethod
    def pack(cls, weight: Tensor, bias: Tensor) -> "PackedLinear":
        """Lay out a weight [out, in] and bias [out]."""
        weight = weight.contiguous()
        packed = _has_kernels(weight)
        if packed:
            # the operator that torch's compiler emits for a CPU
            weight = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS_HINT)
        return cls(weight, bias.contiguous(), packed)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the layer's output [n, out] for `x` [n, in], in its dtype."""
        return self._run(x, "none")

    def gelu(self, x: Tensor) -> Tensor:
        """Return the exact GELU of the layer's output, [n, out]."""
        if not self.packed:
            return F.gelu(F.linear(x, self.weight, self.bias))
        return self._run(x, "gelu")

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return the layer's output plus `residual`, both [n, out]."""
        # adding inside the kernel takes longer
        return self._run(x, "none").add_(residual)

    def _run(self, x: Tensor, activation: str) -> Tensor:
        if not self.packed:
            return F.linear(x, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, activation, [], "none")


def _has_kernels(weight: Tensor) -> bool:
    """Whether torch and the processor have oneDNN's kernels for products with `weight`."""
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16):
        return False
    if not torch.backends.mkldnn.is_available():
        return False
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    return weight.dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()


@dataclass(frozen=True)
class BlockWeights:
    """The weights of one transformer block; `qkv` are query, key and value side by side."""

    qkv: PackedLinear
    out: PackedLinear
    out_norm: nn.LayerNorm
    up: PackedLinear
    down: PackedLinear
    down_norm: nn.LayerNorm


@dataclass(frozen=True)
class HeadWeights:
    """The query and key weights of one attention head, H -> H / heads, which read layer `below`."""

    below: int
    query: PackedLinear
    key: PackedLinear


class BertWeights:
    """The weights that `needs` names: embeddings, heads, and the blocks up to the deepest one."""

    def __init__(self, model: Any, needs: Needs) -> None:
        self.heads: int = model.config.num_attention_heads
        self.device = next(model.parameters()).device
        self._wanted = needs.layers
        self._embeddings = model.embeddings
        self._project = getattr(model, "embeddings_project", nn.Identity())
        self._activate = model.encoder.layer[0].intermediate.intermediate_act_fn
        self._gelu = type(self._activate).__name__ in _EXACT_GELU
        self._blocks = [_read_block(layer) for layer in model.encoder.layer[: needs.deepest]]
        self._probes = {
            (block, head): _read_head(model, block, head) for block, head in needs.heads
        }
        self._padding_id = None
        if model.config.model_type not in ("bert", "electra"):
            self._padding_id = self._embeddings.padding_idx

    def embed(self, batch: Batch) -> Tensor:
        """Return the states [N, H] that enter the first block."""
        types = np.zeros_like(batch.ids) if batch.types is None else batch.types
        inputs = {
            "input_ids": batch.ids,
            "token_type_ids": types,
            "position_ids": compute_text_positions(batch, self._padding_id),
        }
        moved = {name: to_device(values, self.device)[None] for name, values in inputs.items()}
        return self._project(self._embeddings(**moved)).squeeze(0)

    def run(
        self,
        state: Tensor,
        tokens: int,
        run_block: Callable[[BlockWeights, Tensor], Tensor],
        own_attention: Callable[[HeadWeights, Tensor], Tensor],
    ) -> LayerStates:
        """Run the blocks over `state` [N, H]; return the needed layers and heads.

        Only the first `tokens` rows are returned, the others are padding.
        """
        needed = LayerStates()
        for layer in range(len(self._blocks) + 1):
            if layer:
                state = run_block(self._blocks[layer - 1], state)
            if layer in self._wanted:
                needed.layers[layer] = state[:tokens]
            for name, head in self._probes.items():
                if head.below == layer:
                    needed.heads[name] = own_attention(head, state)[:tokens]
        return needed

    def run_after_attention(self, block: BlockWeights, mixed: Tensor, state: Tensor) -> Tensor:
        """Return the block's output from its attention's `mixed` and its input `state`, [N, H]."""
        middle = _normalise(block.out_norm, block.out.add(mixed, state))
        raised = block.up.gelu(middle) if self._gelu else self._activate(block.up(middle))
        return _normalise(block.down_norm, block.down.add(raised, middle))


def _normalise(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """Return the layer norm of `x` [N, H]."""
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def _read_head(model: Any, block: int, head: int) -> HeadWeights:
    attention = model.encoder.layer[block - 1].attention.self
    size = attention.query.weight.shape[0] // model.config.num_attention_heads
    rows = slice((head - 1) * size, head * size)
    query = PackedLinear.pack(attention.query.weight[rows], attention.query.bias[rows])
    key = PackedLinear.pack(attention.key.weight[rows], attention.key.bias[rows])
    return HeadWeights(block - 1, query, key)


def _read_block(layer: Any) -> BlockWeights:
    attention = layer.attention.self
    return BlockWeights(
        qkv=PackedLinear.from_layers(attention.query, attention.key, attention.value),
        out=PackedLinear.from_layers(layer.attention.output.dense),
        out_norm=layer.attention.output.LayerNorm,
        up=PackedLinear.from_layers(layer.intermediate.dense),
        down=PackedLinear.from_layers(layer.output.dense),
        down_norm=layer.output.LayerNorm,
    )


def compute_text_positions(batch: Batch, padding_id: int | None) -> np.ndarray:
    """Return the position ids of all tokens [N].

    RoBERTa counts from its padding id, and does not count padding tokens in a text.
    """
    starts = np.repeat(batch.offsets[:-1], batch.lengths)
    if padding_id is None:
        return np.arange(len(batch.ids)) - starts
    real = batch.ids != padding_id
    before = np.concatenate([[0], np.cumsum(real)])
    return (before[1:] - before[starts]) * real + padding_id
