"""A forward pass without padding through a model's own code: all texts of a batch in one row.

It works for every family that takes positions and whose attention function can be exchanged. Only
attention keeps the texts apart: a model with anything else that reaches from token to token fails
the check at loading.
"""

import copy
import inspect
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sentence_beam.transforms.base.errors import UnfitModelError
from sentence_beam.transforms.encoder.batches import Batch
from sentence_beam.transforms.encoder.bert import compute_text_positions
from sentence_beam.transforms.encoder.layer_hooks import LayerHooks, LayerStates
from sentence_beam.transforms.encoder.load import quiet_transformers
from sentence_beam.transforms.encoder.texts_attention import (
    NAME,
    Kernel,
    check_kernel,
    note_attention,
    row_of_texts,
)
from sentence_beam.transforms.pooling.pooler import Needs
from sentence_beam.transforms.pooling.transfer import to_device
from sentence_beam.transforms.space.model_files import ModelFiles

# models' names for the number that keeps a norm from dividing by zero
_EPSILONS = ("variance_epsilon", "eps")
_FURTHEST = 65536  # most tokens up to which masks are compared


class OneRowRunner:
    """A pass over the packed tokens of a batch by transformers' code, without padding.

    Raises `UnfitModelError` if the model's code does not allow it.
    """

    def __init__(
        self, files: ModelFiles, model: Any, needs: Needs, gives_types: bool, kernel: Kernel
    ) -> None:
        takes = inspect.signature(model.forward).parameters
        if "position_ids" not in takes:
            raise UnfitModelError("it takes no positions")
        self._kernel = kernel
        self._device = next(model.parameters()).device
        self._types = gives_types and "token_type_ids" in takes
        self._padding_id = _find_padding_id(model)
        # a copy with its config; it shares weights and tables
        shared = {id(part): part for part in chain(model.parameters(), model.buffers())}
        self.model: Any = copy.deepcopy(model, shared)
        self._prepare(files)
        with row_of_texts(kernel, None, 0), quiet_transformers():
            self.hooks = LayerHooks([self.model], needs, files.layers)

    def run(self, batch: Batch) -> LayerStates:
        """Run a batch; return states [N, H] of layers, own attention [N] of heads, packed."""
        bounds = to_device(batch.offsets.astype(np.int32), self._device)
        with row_of_texts(self._kernel, bounds, batch.width):
            states = self.hooks.run(self.model, self._make_inputs(batch))
        return states.map(lambda state: state.squeeze(0))

    @torch.inference_mode()
    def fuse_norms(self) -> None:
        """Replace each RMS norm by one kernel; the models' code reads and writes states repeatedly.

        Call it after the pass was compared with the model's own: in 16 bits the two round
        differently.
        """
        for norm in self.model.modules():
            if not type(norm).__name__.endswith("RMSNorm"):
                continue
            fused = fuse_norm(norm)
            if fused is not None:
                norm.forward = fused

    @torch.inference_mode()
    def _prepare(self, files: ModelFiles) -> None:
        """Exchange the attention function; raise UnfitModelError if it cannot do its work."""
        batch = Batch(np.arange(1), np.arange(3, 8), np.array([5]))
        furthest = min(files.position_limit or _FURTHEST, _FURTHEST)
        with quiet_transformers():
            requested = note_attention(self.model, self._kernel, self._make_inputs(batch), furthest)
        if not requested or self.model.config._attn_implementation != NAME:
            raise UnfitModelError("its attention cannot be exchanged")
        for each in requested:
            check_kernel(self._kernel, each, next(self.model.parameters()))

    def _make_inputs(self, batch: Batch) -> dict[str, Tensor]:
        values = {
            "input_ids": batch.ids,
            "position_ids": compute_text_positions(batch, self._padding_id),
        }
        if self._types:
            types = np.zeros_like(batch.ids) if batch.types is None else batch.types
            values["token_type_ids"] = types
        return {name: to_device(array, self._device)[None] for name, array in values.items()}


def fuse_norm(norm: Any) -> Callable[[Tensor], Tensor] | None:
    """Return torch's function for a norm; None if it differs (Gemma's adds 1 to its weights)."""
    epsilon = next((getattr(norm, name) for name in _EPSILONS if hasattr(norm, name)), None)
    weight = getattr(norm, "weight", None)
    if not isinstance(epsilon, float) or not isinstance(weight, Tensor) or weight.dim() != 1:
        return None
    if len(inspect.signature(norm.forward).parameters) != 1:
        return None
    fused = partial(F.rms_norm, normalized_shape=weight.shape, weight=weight, eps=epsilon)
    states = torch.linspace(-2, 3, 2 * len(weight), device=weight.device)
    states = states.to(weight.dtype).view(2, -1)
    rounding = 1e-5 if weight.dtype == torch.float32 else 0.03
    try:
        is_same = torch.allclose(fused(states), norm(states), rtol=rounding, atol=rounding)
    except Exception:  # a norm may need states of another shape; it is then not replaced
        return None
    return fused if is_same else None


def _find_padding_id(model: nn.Module) -> int | None:
    """Return the id from which RoBERTa and its kin count positions, None for other models.

    It is the padding id of their table of positions.
    """
    for name, part in model.named_modules():
        if "position" in name and isinstance(part, nn.Embedding) and part.padding_idx is not None:
            return part.padding_idx
    return None
