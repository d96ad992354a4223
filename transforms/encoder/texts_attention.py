"""Attention among the tokens of each text if all texts of a batch are in one row.

transformers' models look their attention function up by name. Ours passes queries, keys and values
to a kernel for texts of different lengths: torch's on a GPU, or another with the same interface.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sentence_beam.transforms.base.errors import UnfitModelError

NAME = "sentence_beam_texts"
NOTING = "sentence_beam_texts_noted"
# A function of queries, keys and values [N, heads, d] of texts with `bounds` [B + 1], with the
# interface of torch's `varlen_attn`.
Kernel = Callable[..., Any]
# Options that models pass to an attention function: those that are read, and those that have no
# effect here (dropout is for training).
_READ = frozenset(("scaling", "sliding_window", "is_causal"))
_WITHOUT_EFFECT = frozenset(
    ("dropout", "position_ids", "use_cache", "cache_position", "deterministic", "return_dict")
    + ("token_type_ids", "output_attentions", "output_hidden_states", "output_router_logits")
    + ("position_embeddings",)
)


@dataclass(frozen=True)
class Attending:
    """The attention of a block: its window, number of heads of queries and of keys, their width.

    `window`: how many tokens a token sees before and after itself, -1: all.
    """

    window: tuple[int, int]
    heads: int
    key_heads: int
    width: int


class _Row(threading.local):
    """The texts in the row of a thread's pass, and the notes of `note_attention`."""

    bounds: Tensor | None = None
    longest = 0
    kernel: Kernel | None = None
    masks: list[tuple[Tensor, Callable[..., Tensor]]]
    requested: list[Attending]
    furthest = 0


_ROW = _Row()


@contextmanager
def row_of_texts(kernel: Kernel, bounds: Tensor | None, longest: int) -> Iterator[None]:
    """Run this thread's passes in the body over one row of texts.

    `bounds` [B + 1] int32 are on the device. Without them each row of a batch is one text, without
    padding.
    """
    _ROW.kernel = kernel
    _ROW.bounds = bounds
    _ROW.longest = longest
    try:
        yield
    finally:
        _ROW.kernel = None
        _ROW.bounds = None


def note_attention(
    model: Any, kernel: Kernel, inputs: dict[str, Tensor], furthest: int
) -> set[Attending]:
    """Run a pass over one text; return the attention that the model's blocks request.

    Raises `UnfitModelError` if the kernel cannot compute it, or if the model's masks hide other
    tokens, in texts of up to `furthest` tokens, than the options of its attention function do.
    """
    _register()
    model.set_attn_implementation(NOTING)
    _ROW.masks = []
    _ROW.requested = []
    _ROW.furthest = furthest
    try:
        with row_of_texts(kernel, None, 0):
            model(**inputs)
        return set(_ROW.requested)
    finally:
        _ROW.masks = []
        _ROW.requested = []
        model.set_attn_implementation(NAME)


def attend_text_by_text(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, _: Any, __: int, ___: int, *,
    scale: float | None = None, window_size: tuple[int, int] = (-1, -1), enable_gqa: bool = False,
    return_aux: Any = None,
) -> Any:  # fmt: skip
    """Compute the same as torch's kernel, [N, heads, d], on any device, text by text.

    With `return_aux` also the logarithms [heads, N] of the sums of exponentiated scores; heads must
    not share keys then.
    """
    mixed = torch.empty(*query.shape[:2], value.shape[2], dtype=value.dtype, device=value.device)
    totals = torch.empty(query.shape[1], len(query), device=query.device)
    for start, stop in pairwise(bounds.tolist()):
        queries = _cut_text(query, start, stop)
        keys = _cut_text(key, start, stop)
        values = _cut_text(value, start, stop)
        seen = _make_mask(stop - start, window_size, query.device)
        attended = F.scaled_dot_product_attention(
            queries, keys, values, seen, scale=scale, enable_gqa=enable_gqa
        )
        mixed[start:stop] = attended[0].transpose(0, 1)
        if return_aux is not None:
            scores = (queries.float() @ keys.float().mT)[0] * (scale or query.shape[2] ** -0.5)
            if seen is not None:
                scores = scores.masked_fill(~seen, -torch.inf)
            totals[:, start:stop] = scores.logsumexp(2)
    return mixed if return_aux is None else (mixed, totals)


def _cut_text(states: Tensor, start: int, stop: int) -> Tensor:
    """Return the part [1, heads, T, d] of a text in states [N, heads, d]."""
    return states[start:stop].transpose(0, 1)[None]


def compute_own_attention_of_texts(
    kernel: Kernel, query: Tensor, key: Tensor, bounds: Tensor, longest: int, **options: Any
) -> Tensor:
    """Return the attention of each token to itself in one head, [N] float32.

    Queries and keys of the head are [N, d]. The kernel, called with `options`, returns the
    logarithm of the sum of the exponentiated scores.
    """
    from torch.nn.attention.varlen import AuxRequest  # it imports torch's compiler

    query = query[:, None]
    key = key[:, None]
    scale = options.get("scale")
    if scale is None:
        scale = query.shape[2] ** -0.5
    _, total = kernel(
        query,
        key,
        key,
        bounds,
        bounds,
        longest,
        longest,
        return_aux=AuxRequest(lse=True),
        **options,
    )
    own = (query.float() * key.float()).sum(dim=2).mul_(scale)
    return (own[:, 0] - total.view(-1)).exp()


def select_head(query: Tensor, key: Tensor, head: int) -> tuple[Tensor, Tensor]:
    """Return the queries and keys [B, T, d] of a head, from 1, out of [B, heads, T, d].

    Heads may share keys.
    """
    return query[:, head - 1], key[:, (head - 1) * key.shape[1] // query.shape[1]]


def read_heads_of_texts(
    module: nn.Module, query: Tensor, key: Tensor, options: dict[str, Any]
) -> Callable[[int], Tensor]:
    """Return a function from a head (from 1) to own attention [B, T].

    Queries and keys [B, heads, T, d] are those of a row of texts.
    """
    _check_known(options)
    bounds, longest, kernel = _find_texts(query)
    scale = options.get("scaling")
    window = find_window(module, options)

    def own_attention(head: int) -> Tensor:
        queries, keys = (part.flatten(0, 1) for part in select_head(query, key, head))
        own = compute_own_attention_of_texts(
            kernel, queries, keys, bounds, longest, scale=scale, window_size=window
        )
        return own.view(query.shape[0], -1)

    return own_attention


def check_kernel(kernel: Kernel, requested: Attending, like: Tensor) -> None:
    """Raise `UnfitModelError` unless the kernel computes the requested attention, within rounding.

    `like` has the device and the dtype. A window is narrowed to three tokens, so that an error of
    one token is larger than rounding.
    """
    lengths = (9, 1, 6)
    tokens = sum(lengths)
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn((tokens, heads, requested.width), generator=generator).to(like)
        for heads in (requested.heads, requested.key_heads, requested.key_heads)
    )
    bounds = torch.tensor([0, *lengths]).cumsum(0).to(like.device, torch.int32)
    window = (min(requested.window[0], 3), min(requested.window[1], 3))
    options: dict[str, Any] = {
        "window_size": window,
        "enable_gqa": requested.heads != requested.key_heads,
    }
    computed = kernel(query, key, value, bounds, bounds, max(lengths), max(lengths), **options)
    expected = attend_text_by_text(
        query.float(), key.float(), value.float(), bounds, bounds, 0, 0, **options
    )
    if not torch.allclose(computed.float(), expected, atol=0.03, rtol=0.03):
        raise UnfitModelError(
            f"the kernel for texts of different lengths fails at windows of {window}"
        )


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend within each text: [B, T, heads, d] from queries, keys and values [B, heads, T, d]."""
    if attention_mask is not None:
        raise UnfitModelError("it makes masks of its own")
    return _mix(module, query, key, value, options), None


def _mix(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]
) -> Tensor:
    _check_known(options)
    batch, heads, tokens, _ = query.shape
    bounds, longest, kernel = _find_texts(query)
    parts = (part.transpose(1, 2).flatten(0, 1).to(value.dtype) for part in (query, key, value))
    mixed = kernel(
        *parts,
        bounds,
        bounds,
        longest,
        longest,
        scale=options.get("scaling"),
        window_size=find_window(module, options),
        enable_gqa=key.shape[1] != heads,
    )
    return mixed.view(batch, tokens, heads, -1)


def _find_texts(query: Tensor) -> tuple[Tensor, int, Kernel]:
    """Return the bounds of the texts of queries [B, heads, T, d], the longest text, the kernel."""
    bounds = _ROW.bounds
    longest = _ROW.longest
    kernel = _ROW.kernel
    assert kernel is not None, "a pass outside of `row_of_texts`"
    if bounds is None:  # each row is a text
        batch, _, longest, _ = query.shape
        bounds = torch.arange(
            0, (batch + 1) * longest, longest, dtype=torch.int32, device=query.device
        )
    return bounds, longest, kernel


def _check_known(options: dict[str, Any]) -> None:
    named = {name for name, value in options.items() if value is not None}
    unknown = named - _READ - _WITHOUT_EFFECT
    if unknown:
        raise UnfitModelError(f"its attention takes {', '.join(sorted(unknown))}")
    if isinstance(options.get("scaling"), Tensor):
        raise UnfitModelError("its attention scales by weights")


def find_window(module: nn.Module, options: dict[str, Any]) -> tuple[int, int]:
    """Return how many tokens a token sees before and after itself, -1: all.

    `sliding_window` counts the token itself too.
    """
    is_causal = options.get("is_causal")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    size = options.get("sliding_window")
    before = -1 if size is None else int(size) - 1
    after = 0 if is_causal else before
    return before, after


def _note_mask(
    *_: Any, mask_function: Callable[..., Tensor], device: Any = "cpu", **__: Any
) -> Tensor:
    """Return a stand-in for a mask, by which `_note` finds the mask's function."""
    stand_in = torch.zeros(1, 1, 1, 1, device=device)
    _ROW.masks.append((stand_in, mask_function))
    return stand_in


def _note(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend within one text; note the request and compare it with the mask."""
    window = find_window(module, options)
    if attention_mask is not None and not _agrees(attention_mask, window):
        raise UnfitModelError("its masks hide other tokens than its attention is told")
    if value.shape[3] != query.shape[3]:
        raise UnfitModelError("its values and queries differ in width")
    _ROW.requested.append(Attending(window, query.shape[1], key.shape[1], query.shape[3]))
    return _mix(module, query, key, value, options), None


def _agrees(mask: Tensor, window: tuple[int, int]) -> bool:
    """Return whether a mask is a stand-in of ours whose function sees the tokens of a window."""
    for stand_in, function in _ROW.masks:
        if stand_in is mask:
            return _sees_same_tokens(function, window, mask.device)
    return False


def _sees_same_tokens(
    sees: Callable[..., Tensor], window: tuple[int, int], device: torch.device
) -> bool:
    """Return whether a mask function and a window let tokens see the same ones.

    The first, the middle and the last token are compared.
    """
    tokens = _ROW.furthest
    keys = torch.arange(tokens, device=device)
    for token in {0, tokens // 2, tokens - 1}:
        theirs = sees(0, 0, keys[token], keys)
        if not torch.equal(theirs.expand(tokens), _find_seen(token, keys, window)):
            return False
    return True


def _find_seen(token: int | Tensor, keys: Tensor, window: tuple[int, int]) -> Tensor:
    """Return which of the places `keys` the token at a place sees."""
    before, after = window
    seen = torch.ones_like(keys + token, dtype=torch.bool)
    if before >= 0:
        seen &= keys >= token - before
    if after >= 0:
        seen &= keys <= token + after
    return seen


def _make_mask(tokens: int, window: tuple[int, int], device: torch.device) -> Tensor | None:
    if window == (-1, -1):
        return None
    places = torch.arange(tokens, device=device)
    return _find_seen(places[:, None], places, window)


def _register() -> None:
    """Register both attention functions, and the masks of one, with transformers."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if NAME not in ALL_ATTENTION_FUNCTIONS:
        ALL_ATTENTION_FUNCTIONS.register(NAME, _attend)
        ALL_ATTENTION_FUNCTIONS.register(NOTING, _note)
        ALL_MASK_ATTENTION_FUNCTIONS.register(NOTING, _note_mask)
