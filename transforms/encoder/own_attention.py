"""How much a token attends to itself in one head, without keeping the attention of a whole
model.
"""

import copy
import inspect
import sys
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from transforms.base.errors import UnfitModelError
from transforms.encoder import texts_attention

NAME = "sentence_beam_own_attention"
# A function that is called whenever a block attends, with a function head (from 1) -> own attention
# [B, T].
Listener = Callable[[Callable[[int], Tensor]], None]


def own_attention(
    query: Tensor, key: Tensor, scaling: float, added: Tensor | None = None
) -> Tensor:
    """Each token's attention to itself, exp(s_ii - log sum_j exp s_ij) with s = `scaling` q k' +
    `added`.

    The result is [B, T] float32; `query` and `key` are [B, T, d], `added` broadcasts to [B, T, T].
    """
    # narrower than a register, a product is rounded by its place in memory
    query, key = (F.pad(part.float(), (0, -part.shape[2] % 16)) for part in (query, key))
    scores = torch.bmm(query, key.transpose(1, 2)).mul_(scaling)
    scores = scores if added is None else scores + added
    return (scores.diagonal(dim1=1, dim2=2) - scores.logsumexp(dim=2)).exp()


def listen(block: nn.Module, listener: Listener, time_first: bool = False) -> None:
    """Make a block call `listener` whenever it attends; other blocks are unchanged.

    Where the library lets the attention function be chosen, ours reads queries, keys and all that
    is added to the scores, then calls the usual one; elsewhere the block's own probabilities are
    read, [B, heads, T, T] or, where `time_first`, [T, T, B, heads]. Raises `OptionError` where
    neither is possible.
    """
    attention: Any = _attention_of(block)
    if (
        not _is_exchangeable(attention)
        and "output_attentions" in inspect.signature(attention.forward).parameters
    ):
        attention.register_forward_pre_hook(_ask_for_probabilities, with_kwargs=True)
        order = (2, 3, 0, 1) if time_first else (0, 1, 2, 3)
        attention.register_forward_hook(
            lambda _, __, output: _read(output[-1].permute(order), listener)
        )
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
    """Whether the module looks its attention function up in the library's table, whatever else it
    takes.
    """
    names = inspect.unwrap(type(attention).forward).__code__.co_names
    return "ALL_ATTENTION_FUNCTIONS" in names and hasattr(attention, "config")


def _attention_of(block: nn.Module) -> nn.Module:
    """The innermost module of a block whose name says that it attends; `OptionError` unless there
    is exactly one.
    """
    named = [module for module in block.modules() if "Attention" in type(module).__name__]
    innermost = [
        module for module in named if not any(part in named for part in list(module.modules())[1:])
    ]
    if len(innermost) != 1:
        raise UnfitModelError(
            f"{type(block).__name__}: its attention was not found; use a pooler without heads"
        )
    return innermost[0]


def _ask_for_probabilities(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Any]:
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    bound.arguments["output_attentions"] = True
    return bound.args, bound.kwargs


def _read(probabilities: Tensor, listener: Listener) -> None:
    listener(lambda head: probabilities[:, head - 1].diagonal(dim1=1, dim2=2).float())


def _listen_and_attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any = None,
    **kwargs: Any,
) -> Any:
    """The output of the usual attention, after the listener was called; query and key [B, heads, T,
    d].

    Some models give the mask by name.
    """
    listener, usual = module.own_attention_of
    if usual == texts_attention.NAME:
        listener(texts_attention.heads_of_texts(module, query, key, kwargs))
    else:
        listener(partial(_of_head, module, query, key, attention_mask, kwargs))
    eager: Any = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    return ALL_ATTENTION_FUNCTIONS.get_interface(usual, eager)(
        module, query, key, value, attention_mask, **kwargs
    )


def _of_head(
    module: Any, query: Tensor, key: Tensor, mask: Any, said: dict[str, Any], head: int
) -> Tensor:
    """The own attention [B, T] of a head, from 1, by all of its scores."""
    scaling, bias = said.get("scaling") or query.shape[-1] ** -0.5, said.get("position_bias")
    parts = [_added(part, head - 1) for part in (mask, bias) if part is not None]
    parts += (
        [_later_hidden(query.shape[2], query.device)] if _hides_later(module, mask, said) else []
    )
    added = reduce(torch.add, parts) if parts else None
    return own_attention(*texts_attention.of_one_head(query, key, head), scaling, added)


def _hides_later(module: Any, mask: Any, kwargs: Any) -> bool:
    """Whether tokens see none after them although no mask says so: some functions are told so by a
    flag.
    """
    told = kwargs.get("is_causal")
    return mask is None and bool(getattr(module, "is_causal", False) if told is None else told)


def _later_hidden(tokens: int, device: torch.device) -> Tensor:
    return torch.full((tokens, tokens), -torch.inf, device=device).triu(1)


def _added(part: Tensor, head: int) -> Tensor:
    """The addend [B, T, T] to a head's scores of a mask or bias [B, 1 or heads, T, T]; boolean:
    True where seen.
    """
    part = part[:, head if part.shape[1] > 1 else 0]
    if part.dtype != torch.bool:
        return part.float()
    return torch.zeros(part.shape, device=part.device).masked_fill(~part, -torch.inf)
