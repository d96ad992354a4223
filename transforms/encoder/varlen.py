"""A forward pass without padding for the BERT family on a GPU.

All layers run over the packed tokens of the whole batch, attention by torch's kernel for texts of
different lengths, which wants 16-bit states.
"""

import inspect
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transforms.encoder.batches import Batch
from transforms.encoder.bert import BertWeights, BlockWeights, HeadWeights
from transforms.encoder.layer_hooks import LayerStates
from transforms.encoder.texts_attention import Kernel, own_attention_of_texts
from transforms.pooling.pooler import Needs
from transforms.pooling.transfer import to_device

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # a torch without it: the padded pass serves
    varlen_attn = None  # type: ignore[assignment]

DTYPES = frozenset((torch.bfloat16, torch.float16))


def kernel_for(model: Any) -> Kernel | None:
    """torch's kernel where it may serve the model: on a GPU, in 16 bits. Whether it does is found
    out at loading.
    """
    weight = next(model.parameters())
    there = varlen_attn is not None and weight.device.type == "cuda" and weight.dtype in DTYPES
    return _said_in_its_words(varlen_attn) if there else None


def _said_in_its_words(kernel: Kernel) -> Kernel:
    """The kernel without the word for heads that share keys, where torch (2.11, 2.12) has none: it
    shares unasked.
    """
    if "enable_gqa" in inspect.signature(kernel).parameters:
        return kernel

    def unasked(*parts: Any, enable_gqa: bool = False, **said: Any) -> Any:
        return kernel(*parts, **said)

    return unasked


class VarlenRunner:
    """A pass over the BERT family's blocks on a GPU: the states of layers and own attention of
    heads, no padding.
    """

    def __init__(self, model: Any, needs: Needs, kernel: Kernel) -> None:
        self._weights, self._kernel = BertWeights(model, needs), kernel

    def run(self, batch: Batch) -> LayerStates:
        """The states [N, H] of the needed layers and own attention [N] of the needed heads, text
        after text.
        """
        offsets = batch.offsets.astype(np.int32)
        bounds, longest = to_device(offsets, self._weights.device), batch.width
        block = partial(self._run_block, bounds=bounds, longest=longest)
        own = partial(_own_attention, kernel=self._kernel, bounds=bounds, longest=longest)
        return self._weights.run(self._weights.embed(batch), len(batch.ids), block, own)

    def _run_block(
        self, block: BlockWeights, state: Tensor, bounds: Tensor, longest: int
    ) -> Tensor:
        query, key, value = block.qkv(state).view(len(state), 3, self._weights.heads, -1).unbind(1)
        mixed: Any = self._kernel(query, key, value, bounds, bounds, longest, longest)
        return self._weights.after_attention(block, mixed.flatten(1), state)


def _own_attention(
    head: HeadWeights, state: Tensor, kernel: Kernel, bounds: Tensor, longest: int
) -> Tensor:
    """The attention of each token to itself, [N] float32."""
    return own_attention_of_texts(kernel, head.query(state), head.key(state), bounds, longest)
