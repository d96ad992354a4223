"""A forward pass without padding for the BERT family on a GPU.

All layers run over the packed tokens of the whole batch, attention by torch's kernel for texts of
different lengths, which needs 16-bit states.
"""

import inspect
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sentence_beam.transforms.encoder.batches import Batch
from sentence_beam.transforms.encoder.bert import BertWeights, BlockWeights, HeadWeights
from sentence_beam.transforms.encoder.layer_hooks import LayerStates
from sentence_beam.transforms.encoder.texts_attention import Kernel, compute_own_attention_of_texts
from sentence_beam.transforms.pooling.pooler import Needs
from sentence_beam.transforms.pooling.transfer import to_device

DTYPES = frozenset((torch.bfloat16, torch.float16))


def choose_kernel(model: Any) -> Kernel | None:
    """Return torch's kernel for a model on a GPU in 16 bits, else None.

    The probe at loading tests whether it works for the model.
    """
    if not _is_on_gpu_in_16_bits(model):
        return None
    kernel = find_kernel()
    return None if kernel is None else _allow_shared_keys(kernel)


def find_kernel() -> Kernel | None:
    """Return torch's kernel, None for a torch without it."""
    try:
        from torch.nn.attention.varlen import varlen_attn  # it imports torch's compiler
    except ImportError:
        return None
    return varlen_attn


def describe_missing_kernel(model: Any) -> str:
    """Return why a model on a GPU in 16 bits has no kernel, "" for another model."""
    if _is_on_gpu_in_16_bits(model) and find_kernel() is None:
        return (
            f"torch {torch.__version__} has no kernel for texts of different lengths; torch 2.11"
            " has"
        )
    return ""


def _is_on_gpu_in_16_bits(model: Any) -> bool:
    weight = next(model.parameters())
    return weight.device.type == "cuda" and weight.dtype in DTYPES


def _allow_shared_keys(kernel: Kernel) -> Kernel:
    """Let a kernel take `enable_gqa`; those of torch 2.11 and 2.12 let heads share keys anyway."""
    if "enable_gqa" in inspect.signature(kernel).parameters:
        return kernel

    def sharing(*parts: Any, enable_gqa: bool = False, **options: Any) -> Any:
        return kernel(*parts, **options)

    return sharing


class VarlenRunner:
    """A pass over the BERT family's blocks on a GPU, without padding."""

    def __init__(self, model: Any, needs: Needs, kernel: Kernel) -> None:
        self._weights = BertWeights(model, needs)
        self._kernel = kernel

    def run(self, batch: Batch) -> LayerStates:
        """Run a batch; return states [N, H] of layers, own attention [N] of heads, packed."""
        offsets = batch.offsets.astype(np.int32)
        bounds = to_device(offsets, self._weights.device)
        longest = batch.width
        block = partial(self._run_block, bounds=bounds, longest=longest)
        own = partial(_compute_own_attention, kernel=self._kernel, bounds=bounds, longest=longest)
        return self._weights.run(self._weights.embed(batch), len(batch.ids), block, own)

    def _run_block(
        self, block: BlockWeights, state: Tensor, bounds: Tensor, longest: int
    ) -> Tensor:
        query, key, value = block.qkv(state).view(len(state), 3, self._weights.heads, -1).unbind(1)
        mixed: Any = self._kernel(query, key, value, bounds, bounds, longest, longest)
        return self._weights.run_after_attention(block, mixed.flatten(1), state)


def _compute_own_attention(
    head: HeadWeights, state: Tensor, kernel: Kernel, bounds: Tensor, longest: int
) -> Tensor:
    """Return the attention of each token to itself, [N] float32."""
    return compute_own_attention_of_texts(
        kernel, head.query(state), head.key(state), bounds, longest
    )
