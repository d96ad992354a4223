"""The forward pass of any architecture: texts padded on the right to the longest of their batch.

Padding on the right leaves every token at the position that it has alone, whatever side the
tokenizer pads. On a GPU a mask is given only if there is padding, which is known before the texts
are copied there: transformers asks the device in every pass whether a mask hides anything, since
attention without one is faster, and waits for the answer.
"""

import copy
import inspect
import sys
from typing import Any

import numpy as np
from torch import Tensor, nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from transforms.encoder.batches import Batch
from transforms.encoder.layer_hooks import LayerHooks, LayerStates
from transforms.encoder.tokenize import TextTokenizer
from transforms.pooling.pooler import Needs
from transforms.pooling.transfer import to_device

# The name by which transformers knows an attention whose masks all hide something.
_HAS_PADDING = "sentence_beam_padded"
# Without a mask these take each token with the id of padding for padding, also where it is another
# token's.
_PADDING_BY_ID = frozenset(("xlm", "flaubert"))


class PaddedRunner:
    """A pass through the model's own code: the states of layers and own attention of heads, padding
    taken out.
    """

    def __init__(
        self, models: "ByLength", needs: Needs, layers: int, tokenizer: TextTokenizer
    ) -> None:
        weight = next(models.shortest.parameters())
        self._models, self._tokenizer, self._device, self.dtype = (
            models,
            tokenizer,
            weight.device,
            weight.dtype,
        )
        if self._device.type == "cuda":
            for model in models.all:
                _expect_padding(model)
        self._takes = inspect.signature(models.shortest.forward).parameters
        config: Any = models.shortest.config
        self._needs_mask = config.model_type in _PADDING_BY_ID
        self._hooks = LayerHooks(models.all, needs, layers)

    @property
    def takes_padding(self) -> bool:
        """Whether the model can be told which tokens are padding, and attends alike to texts of all
        lengths.
        """
        return "attention_mask" in self._takes and len(self._models.all) == 1

    def run(self, batch: Batch) -> LayerStates:
        """The states [N, H] of the needed layers and own attention [N] of the needed heads, text
        after text.
        """
        inputs, real = self._inputs(batch)
        found = self._hooks.run(self._models(batch.width), inputs)
        layers = {layer: _real(state.flatten(0, 1), real) for layer, state in found.layers.items()}
        return LayerStates(
            layers, {head: _real(own.flatten(), real) for head, own in found.heads.items()}
        )

    def _inputs(self, batch: Batch) -> tuple[dict[str, Any], Tensor | None]:
        """The model's inputs, and the places of the real tokens among the padded ones (None: all
        are real).
        """
        shape = (len(batch.rows), batch.width)
        real = _real_places(batch.lengths)
        inputs = {"input_ids": _spread(batch.ids, real, shape, self._tokenizer.pad_id)}
        if self._tokenizer.gives_types and "token_type_ids" in self._takes:
            types = np.zeros_like(batch.ids) if batch.types is None else batch.types
            inputs["token_type_ids"] = _spread(types, real, shape, self._tokenizer.pad_type)
        if real is not None or self._needs_mask:
            inputs["attention_mask"] = _spread(np.ones_like(batch.ids), real, shape, 0)
        moved: dict[str, Any] = {
            name: to_device(values, self._device) for name, values in inputs.items()
        }
        return moved, None if real is None else to_device(real, self._device)


class ByLength:
    """The model for texts of a length, one for all lengths but in one family.

    BigBird attends fully to short texts and sparsely to long ones, and at its first short text it
    would change over for good: it is kept in both forms, which share their weights.
    """

    def __init__(self, model: Any) -> None:
        self.all: tuple[nn.Module, ...] = (model,)
        self._longest_in_full = 0
        if getattr(model.config, "attention_type", "") == "block_sparse":
            full = copy.deepcopy(model, {id(weight): weight for weight in model.parameters()})
            _attend_fully(full)
            self.all = (model, full)
            self._longest_in_full = (
                5 + 2 * model.config.num_random_blocks
            ) * model.config.block_size

    @property
    def shortest(self) -> nn.Module:
        """The model for the shortest texts."""
        return self.all[-1]

    def __call__(self, width: int) -> nn.Module:
        """The model for texts of so many tokens."""
        return self.shortest if width <= self._longest_in_full else self.all[0]


def _attend_fully(model: Any) -> None:
    for part in model.modules():
        if hasattr(part, "set_attention_type"):
            part.set_attention_type("original_full")


def _real(flat: Tensor, real: Tensor | None) -> Tensor:
    return flat if real is None else flat.index_select(0, real)


def _real_places(lengths: np.ndarray) -> np.ndarray | None:
    width = int(lengths[0])
    if int(lengths[-1]) == width:
        return None
    return np.flatnonzero(np.arange(width) < lengths[:, None])


def _spread(
    values: np.ndarray, real: np.ndarray | None, shape: tuple[int, int], padding: int
) -> np.ndarray:
    if real is None:
        return values.reshape(shape)
    padded = np.full(shape, padding, dtype=np.int64)
    padded.ravel()[real] = values
    return padded


def _expect_padding(model: Any) -> None:
    """Make a model trust that every mask hides something, so that it does not wait for the GPU to
    inspect it.

    For models with torch's own attention, whose code does not ask for it by name; others stay as
    they are.
    """
    code = sys.modules[type(model).__module__]
    if model.config._attn_implementation == "sdpa" and '"sdpa"' not in inspect.getsource(code):
        _register_attention()
        model.set_attn_implementation(_HAS_PADDING)


def _register_attention() -> None:
    """Have transformers know the attention and its masks by name."""
    if _HAS_PADDING not in ALL_ATTENTION_FUNCTIONS:
        ALL_ATTENTION_FUNCTIONS.register(_HAS_PADDING, ALL_ATTENTION_FUNCTIONS["sdpa"])
        ALL_MASK_ATTENTION_FUNCTIONS.register(_HAS_PADDING, _mask)


def _mask(*, attention_mask: Tensor | None = None, **said: Any) -> Tensor | None:
    if attention_mask is not None:
        said |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return sdpa_mask(attention_mask=attention_mask, **said)
