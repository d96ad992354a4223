"""Compute how much a token attends to itself in one head, without the attention of all tokens."""

import copy
import inspect
import sys
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sentence_beam.transforms.base.errors import UnfitModelError
from sentence_beam.transforms.encoder import texts_attention

NAME = "sentence_beam_own_attention"
# called whenever a block attends, with a function from a head (from 1) to own attention [B, T]
Listener = Callable[[Callable[[int], Tensor]], None]


def own_attention(
    query: Tensor, key: Tensor, scaling: float, added: Tensor | None = None
) -> Tensor:
    """Return each token's attention to itself, [B, T] float32.

    It is exp(s_ii - log sum_j exp s_ij) with s = `scaling` q k' + `added`; `query` and `key` are
    [B, T, d], `added` broadcasts to [B, T, T].
    """
    # the rounding of products narrower than a register depends on their place in memory
    query = _pad_to_register(query)
    key = _pad_to_register(key)
    scores = torch.bmm(query, key.transpose(1, 2)).mul_(scaling)
    if added is not None:
        scores = scores + added
    return (scores.diagonal(dim1=1, dim2=2) - scores.logsumexp(dim=2)).exp()


def _pad_to_register(part: Tensor) -> Tensor:
    return F.pad(part.float(), (0, -part.shape[2] % 16))


def listen(block: nn.Module, listener: Listener, time_first: bool = False) -> None:
    """Make a block call `listener` whenever it attends; other blocks are unchanged.

    If transformers lets the attention function be chosen, ours reads queries, keys and all that is
    added to the scores, then calls the usual one. Else the block's own probabilities are read,
    [B, heads, T, T], or [T, T, B, heads] if `time_first`. Raises `OptionError` if neither is
    possible.
    """
    # importing transformers takes three seconds, and BERT does without it
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    attention: Any = _find_attention(block)
    takes = inspect.signature(attention.forward).parameters
    if not _is_exchangeable(attention) and "output_attentions" in takes:
        _listen_to_probabilities(attention, listener, time_first)
        return
    if not hasattr(attention, "config"):
        raise UnfitModelError(
            f"{type(block).__name__}: its attention cannot be read; use a pooler without heads"
        )
    usual = attention.config._attn_implementation
    attention.config = copy.copy(attention.config)
    attention.config._attn_implementation = NAME
    attention.own_attention_of = (listener, usual)
    if NAME not in ALL_ATTENTION_FUNCTIONS:
        ALL_ATTENTION_FUNCTIONS.register(NAME, _listen_and_attend)


def _is_exchangeable(attention: nn.Module) -> bool:
    """Return whether the module looks its attention function up in transformers' table."""
    names = inspect.unwrap(type(attention).forward).__code__.co_names
    return "ALL_ATTENTION_FUNCTIONS" in names and hasattr(attention, "config")


def _find_attention(block: nn.Module) -> nn.Module:
    """Return the innermost attention module of a block.

    Raises `UnfitModelError` unless there is exactly one.
    """
    named = [module for module in block.modules() if "Attention" in type(module).__name__]
    innermost = []
    for module in named:
        parts = list(module.modules())[1:]
        if not any(part in named for part in parts):
            innermost.append(module)
    if len(innermost) != 1:
        raise UnfitModelError(
            f"{type(block).__name__}: its attention was not found; use a pooler without heads"
        )
    return innermost[0]


def _listen_to_probabilities(attention: nn.Module, listener: Listener, time_first: bool) -> None:
    order = (2, 3, 0, 1) if time_first else (0, 1, 2, 3)

    def read(_: nn.Module, __: Any, output: Any) -> None:
        probabilities = output[-1].permute(order)
        listener(lambda head: probabilities[:, head - 1].diagonal(dim1=1, dim2=2).float())

    attention.register_forward_pre_hook(_request_probabilities, with_kwargs=True)
    attention.register_forward_hook(read)


def _request_probabilities(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Any]:
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    bound.arguments["output_attentions"] = True
    return bound.args, bound.kwargs


def _listen_and_attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any = None,
    **kwargs: Any,
) -> Any:
    """Call the listener, then the usual attention; query and key are [B, heads, T, d].

    Some models pass the mask by name.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    listener, usual = module.own_attention_of
    if usual == texts_attention.NAME:
        listener(texts_attention.read_heads_of_texts(module, query, key, kwargs))
    else:
        own = partial(_compute_own_attention, module, query, key, attention_mask, kwargs)
        listener(own)
    eager: Any = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    return ALL_ATTENTION_FUNCTIONS.get_interface(usual, eager)(
        module, query, key, value, attention_mask, **kwargs
    )


def _compute_own_attention(
    module: Any, query: Tensor, key: Tensor, mask: Any, options: dict[str, Any], head: int
) -> Tensor:
    """Compute the own attention [B, T] of a head, from 1, by all of its scores."""
    scaling = options.get("scaling") or query.shape[-1] ** -0.5
    bias = options.get("position_bias")
    parts = [_make_addend(part, head - 1) for part in (mask, bias) if part is not None]
    if mask is None and _is_causal(module, options):
        tokens = query.shape[2]
        parts.append(torch.full((tokens, tokens), -torch.inf, device=query.device).triu(1))
    added = reduce(torch.add, parts) if parts else None
    return own_attention(*texts_attention.select_head(query, key, head), scaling, added)


def _is_causal(module: Any, options: dict[str, Any]) -> bool:
    """Return whether tokens do not see later ones; some functions get a flag in place of a mask."""
    flag = options.get("is_causal")
    if flag is None:
        flag = getattr(module, "is_causal", False)
    return bool(flag)


def _make_addend(part: Tensor, head: int) -> Tensor:
    """Return the addend [B, T, T] to a head's scores of a mask or bias [B, 1 or heads, T, T].

    A boolean mask is True for tokens that are seen.
    """
    if part.shape[1] == 1:  # shared by all heads
        head = 0
    part = part[:, head]
    if part.dtype != torch.bool:
        return part.float()
    return torch.zeros(part.shape, device=part.device).masked_fill(~part, -torch.inf)
