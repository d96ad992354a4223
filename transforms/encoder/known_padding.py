"""Attention masks made without a look at them: whether texts are padded is known before they are
copied to a GPU.

transformers asks the device whether a mask hides anything, since attention without one is faster,
and waits for the answer in every pass. Here a mask is given only where there is padding.
"""

import inspect
import sys
from typing import Any

from torch import Tensor
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME = "sentence_beam_padded"


def expect_padding(model: Any) -> None:
    """Let a model take every mask that it is given for one that hides something.

    For models with torch's own attention, whose code does not ask for it by name; others stay as
    they are.
    """
    code = sys.modules[type(model).__module__]
    if model.config._attn_implementation == "sdpa" and '"sdpa"' not in inspect.getsource(code):
        _register()
        model.set_attn_implementation(NAME)


def _register() -> None:
    """Have transformers know the attention and its masks by name."""
    if NAME not in ALL_ATTENTION_FUNCTIONS:
        ALL_ATTENTION_FUNCTIONS.register(NAME, ALL_ATTENTION_FUNCTIONS["sdpa"])
        ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, _mask)


def _mask(*, attention_mask: Tensor | None = None, **said: Any) -> Tensor | None:
    if attention_mask is not None:
        said |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return sdpa_mask(attention_mask=attention_mask, **said)
