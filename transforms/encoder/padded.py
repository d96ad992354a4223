"""The forward pass of any architecture: texts padded on the right to the longest of their batch.

Padding on the right keeps every token at its own position, whatever side the tokenizer pads. On a
GPU a mask is passed only if there is padding, which is known before the texts are copied there:
transformers asks the device in every pass whether a mask hides anything, because attention without
one is faster, and waits for the answer.
"""

import copy
import inspect
import sys
from typing import Any

import numpy as np
from torch import Tensor, nn

from sentence_beam.transforms.encoder.batches import Batch
from sentence_beam.transforms.encoder.layer_hooks import LayerHooks, LayerStates
from sentence_beam.transforms.encoder.tokenize import TextTokenizer
from sentence_beam.transforms.pooling.pooler import Needs
from sentence_beam.transforms.pooling.transfer import to_device

# transformers' name for an attention whose masks all hide something
_HAS_PADDING = "sentence_beam_padded"
# without a mask these treat each token with the padding id as padding, even if it is a real one
_PADDING_BY_ID = frozenset(("xlm", "flaubert"))


class PaddedRunner:
    """A pass through the model's own code, `models` for texts of all lengths."""

    def __init__(
        self, models: "ByLength", needs: Needs, layers: int, tokenizer: TextTokenizer
    ) -> None:
        weight = next(models.shortest.parameters())
        self.models = models
        self._tokenizer = tokenizer
        self._device = weight.device
        self.dtype = weight.dtype
        if self._device.type == "cuda":
            for model in models.all:
                _expect_padding(model)
        self._takes = inspect.signature(models.shortest.forward).parameters
        config: Any = models.shortest.config
        self._needs_mask = config.model_type in _PADDING_BY_ID
        self.hooks = LayerHooks(models.all, needs, layers)

    @property
    def takes_padding(self) -> bool:
        """Whether the model takes a mask, and attends to texts of all lengths in the same way."""
        return "attention_mask" in self._takes and len(self.models.all) == 1

    def run(self, batch: Batch) -> LayerStates:
        """Run a batch; return states [N, H] of layers, own attention [N] of heads, packed."""
        inputs, real = self._make_inputs(batch)
        states = self.hooks.run(self.models(batch.width), inputs)
        flat = states.map(lambda state: state.flatten(0, 1))
        return flat if real is None else flat.map(lambda state: state.index_select(0, real))

    def _make_inputs(self, batch: Batch) -> tuple[dict[str, Any], Tensor | None]:
        """Return the model's inputs, and the places of real tokens (None: all are real)."""
        (ids, mask), real = pad_inputs(batch, self._tokenizer)
        inputs = {"input_ids": ids}
        if self._tokenizer.gives_types and "token_type_ids" in self._takes:
            types = np.zeros_like(batch.ids) if batch.types is None else batch.types
            inputs["token_type_ids"] = _spread(types, real, ids.shape, self._tokenizer.pad_type)
        if real is not None or self._needs_mask:
            inputs["attention_mask"] = mask
        moved = {name: to_device(values, self._device) for name, values in inputs.items()}
        places = None if real is None else to_device(real, self._device)
        return moved, places


def pad_inputs(
    batch: Batch, tokenizer: TextTokenizer
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray | None]:
    """Return ids and mask int64 [B, T], and the places of real tokens (None: all are real)."""
    shape = (len(batch.rows), batch.width)
    real = _find_real_places(batch.lengths)
    ids = _spread(batch.ids, real, shape, tokenizer.pad_id)
    return (ids, _spread(np.ones_like(batch.ids), real, shape, 0)), real


class ByLength:
    """The model for texts of a length; all lengths have the same one except in BigBird.

    BigBird attends fully to short texts and sparsely to long ones, and would switch for good at its
    first short text. It is kept in both forms, which share their weights.
    """

    def __init__(self, model: Any) -> None:
        self.all: tuple[nn.Module, ...] = (model,)
        self._longest_in_full = 0
        if getattr(model.config, "attention_type", "") == "block_sparse":
            full = copy.deepcopy(model, {id(weight): weight for weight in model.parameters()})
            _attend_fully(full)
            self.all = (model, full)
            blocks = 5 + 2 * model.config.num_random_blocks
            self._longest_in_full = blocks * model.config.block_size

    @property
    def shortest(self) -> nn.Module:
        """Model for the shortest texts."""
        return self.all[-1]

    def __call__(self, width: int) -> nn.Module:
        """Return the model for texts of so many tokens."""
        return self.shortest if width <= self._longest_in_full else self.all[0]


def _attend_fully(model: Any) -> None:
    for part in model.modules():
        if hasattr(part, "set_attention_type"):
            part.set_attention_type("original_full")


def _find_real_places(lengths: np.ndarray) -> np.ndarray | None:
    width = int(lengths[0])
    if int(lengths[-1]) == width:
        return None
    return np.flatnonzero(np.arange(width) < lengths[:, None])


def _spread(
    values: np.ndarray, real: np.ndarray | None, shape: tuple[int, ...], padding: int
) -> np.ndarray:
    if real is None:
        return values.reshape(shape)
    padded = np.full(shape, padding, dtype=np.int64)
    padded.ravel()[real] = values
    return padded


def _expect_padding(model: Any) -> None:
    """Make a model trust every mask, so that it does not wait for the GPU to inspect it.

    Models that do not use torch's own attention, or ask for it by name, are not changed.
    """
    code = sys.modules[type(model).__module__]
    if model.config._attn_implementation == "sdpa" and '"sdpa"' not in inspect.getsource(code):
        _register_attention()
        model.set_attn_implementation(_HAS_PADDING)


def _register_attention() -> None:
    """Register the attention and its masks with transformers."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if _HAS_PADDING not in ALL_ATTENTION_FUNCTIONS:
        ALL_ATTENTION_FUNCTIONS.register(_HAS_PADDING, ALL_ATTENTION_FUNCTIONS["sdpa"])
        ALL_MASK_ATTENTION_FUNCTIONS.register(_HAS_PADDING, _make_mask)


def _make_mask(*, attention_mask: Tensor | None = None, **options: Any) -> Tensor | None:
    from transformers.masking_utils import sdpa_mask

    if attention_mask is not None:
        options |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return sdpa_mask(attention_mask=attention_mask, **options)
