"""The forward pass of any architecture: texts padded to the longest of their batch."""

from typing import Any

import numpy as np
from torch import Tensor, nn

from transforms.encoder.batches import Batch
from transforms.encoder.layer_hooks import LayerHooks, LayerStates
from transforms.encoder.tokenize import TextTokenizer
from transforms.encoder.transfer import to_device


class PaddedRunner:
    """A pass through the model's own code: the states of layers and own attention of heads, padding taken out."""

    pads = True

    def __init__(self, model: nn.Module, hooks: LayerHooks, tokenizer: TextTokenizer) -> None:
        self._model, self._hooks, self._tokenizer = model, hooks, tokenizer
        self._device = next(model.parameters()).device

    def run(self, batch: Batch) -> LayerStates:
        """The states [N, H] of the needed layers and own attention [N] of the needed heads, text after text."""
        inputs, real = self._inputs(batch)
        found = self._hooks.run(self._model, inputs)
        layers = {layer: _real(state.flatten(0, 1), real) for layer, state in found.layers.items()}
        return LayerStates(layers, {head: _real(own.flatten(), real) for head, own in found.heads.items()})

    def _inputs(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor | None]:
        """The model's inputs, and the places of the real tokens among the padded ones (None: all are real)."""
        shape = (len(batch.rows), batch.width)
        real = _real_places(batch.lengths, self._tokenizer.pads_left)
        inputs = {"input_ids": _spread(batch.ids, real, shape, self._tokenizer.pad_id)}
        if self._tokenizer.gives_types:
            types = np.zeros_like(batch.ids) if batch.types is None else batch.types
            inputs["token_type_ids"] = _spread(types, real, shape, self._tokenizer.pad_type)
        if real is not None:
            inputs["attention_mask"] = _spread(np.ones_like(batch.ids), real, shape, 0)
        moved: dict[str, Any] = {name: to_device(values, self._device) for name, values in inputs.items()}
        return moved, None if real is None else to_device(real, self._device)


def _real(flat: Tensor, real: Tensor | None) -> Tensor:
    return flat if real is None else flat.index_select(0, real)


def _real_places(lengths: np.ndarray, left: bool) -> np.ndarray | None:
    width = int(lengths[0])
    if int(lengths[-1]) == width:
        return None
    columns = np.arange(width)
    mask = columns >= width - lengths[:, None] if left else columns < lengths[:, None]
    return np.flatnonzero(mask)


def _spread(values: np.ndarray, real: np.ndarray | None, shape: tuple[int, int], padding: int) -> np.ndarray:
    if real is None:
        return values.reshape(shape)
    padded = np.full(shape, padding, dtype=np.int64)
    padded.ravel()[real] = values
    return padded
