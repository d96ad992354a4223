"""A forward pass without padding through a model's own code: all texts of a batch in one row, each
with its positions.

For every family that takes positions and whose attention function can be exchanged. What keeps the
texts apart is attention alone, so that a model with anything else that reaches from token to token
does not pass the check at loading.
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

from transforms.base.errors import UnfitModelError
from transforms.encoder.batches import Batch
from transforms.encoder.bert import text_positions
from transforms.encoder.layer_hooks import LayerHooks, LayerStates
from transforms.encoder.load import quiet_transformers
from transforms.encoder.texts_attention import (
    NAME,
    Kernel,
    check_kernel,
    note_attention,
    row_of_texts,
)
from transforms.pooling.pooler import Needs
from transforms.pooling.transfer import to_device
from transforms.space.model_files import ModelFiles

# what models call the number that keeps a norm from dividing by zero
_EPSILONS = ("variance_epsilon", "eps")
_FURTHEST = 65536  # tokens up to which masks are compared, where a model takes as many


class OneRowRunner:
    """A pass over the packed tokens of a batch by the library's code: states and own attention of
    heads, no padding.

    Raises `UnfitModelError` where the model's code does not allow it.
    """

    def __init__(
        self, files: ModelFiles, model: Any, needs: Needs, gives_types: bool, kernel: Kernel
    ) -> None:
        takes = inspect.signature(model.forward).parameters
        if "position_ids" not in takes:
            raise UnfitModelError("it takes no positions")
        self._kernel, self._device = kernel, next(model.parameters()).device
        self._types = gives_types and "token_type_ids" in takes
        self._padding_id = _padding_id(model)
        self._model = _twin(model)
        self._prepare(files)
        with row_of_texts(kernel, None, 0), quiet_transformers():
            self._hooks = LayerHooks([self._model], needs, files.layers)

    def run(self, batch: Batch) -> LayerStates:
        """The states [N, H] of the needed layers and own attention [N] of the needed heads, text
        after text.
        """
        bounds = to_device(batch.offsets.astype(np.int32), self._device)
        with row_of_texts(self._kernel, bounds, batch.width):
            found = self._hooks.run(self._model, self._inputs(batch))
        layers = {layer: state.squeeze(0) for layer, state in found.layers.items()}
        return LayerStates(layers, {head: own.squeeze(0) for head, own in found.heads.items()})

    @torch.inference_mode()
    def fuse_norms(self) -> None:
        """Let norms by the mean square be one kernel each; spelt out, they read and write states
        many times.

        Once the pass has been compared with the model's own: in 16 bits the two round differently.
        """
        for norm in self._model.modules():
            fused = _fused(norm) if type(norm).__name__.endswith("RMSNorm") else None
            if fused is not None:
                norm.forward = fused

    @torch.inference_mode()
    def _prepare(self, files: ModelFiles) -> None:
        """Exchange the attention function, and see that it can do what the model asks of it."""
        one = Batch(np.arange(1), np.arange(3, 8), np.array([5]))
        furthest = min(files.position_limit or _FURTHEST, _FURTHEST)
        with quiet_transformers():
            asked = note_attention(self._model, self._kernel, self._inputs(one), furthest)
        if not asked or self._model.config._attn_implementation != NAME:
            raise UnfitModelError("its attention cannot be exchanged")
        for each in asked:
            check_kernel(self._kernel, each, next(self._model.parameters()))

    def _inputs(self, batch: Batch) -> dict[str, Tensor]:
        values = {"input_ids": batch.ids, "position_ids": text_positions(batch, self._padding_id)}
        if self._types:
            values["token_type_ids"] = (
                np.zeros_like(batch.ids) if batch.types is None else batch.types
            )
        return {name: to_device(array, self._device)[None] for name, array in values.items()}


def _twin(model: nn.Module) -> Any:
    """The same model with a config of its own; they share their weights and tables."""
    shared: dict[int, Any] = {id(part): part for part in chain(model.parameters(), model.buffers())}
    return copy.deepcopy(model, shared)


def _fused(norm: Any) -> Callable[[Tensor], Tensor] | None:
    """torch's own function for a norm; None where it gives something else (Gemma's adds 1 to its
    weights).
    """
    epsilon = next((getattr(norm, name) for name in _EPSILONS if hasattr(norm, name)), None)
    weight = getattr(norm, "weight", None)
    takes_states_alone = len(inspect.signature(norm.forward).parameters) == 1
    if (
        not isinstance(epsilon, float)
        or not isinstance(weight, Tensor)
        or weight.dim() != 1
        or not takes_states_alone
    ):
        return None
    fused = partial(F.rms_norm, normalized_shape=weight.shape, weight=weight, eps=epsilon)
    tried = (
        torch.linspace(-2, 3, 2 * len(weight), device=weight.device).to(weight.dtype).view(2, -1)
    )
    rounding = 1e-5 if weight.dtype == torch.float32 else 0.03
    try:
        return (
            fused
            if torch.allclose(fused(tried), norm(tried), rtol=rounding, atol=rounding)
            else None
        )
    except Exception:  # a norm may want states of another shape; then it stays as it is
        return None


def _padding_id(model: nn.Module) -> int | None:
    """The id from which RoBERTa's kin count positions: the one that their table of positions leaves
    out.
    """
    tables = (
        part
        for name, part in model.named_modules()
        if "position" in name and isinstance(part, nn.Embedding)
    )
    return next((table.padding_idx for table in tables if table.padding_idx is not None), None)
