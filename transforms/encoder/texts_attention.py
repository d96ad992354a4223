"""Attention among the tokens of each text where all texts of a batch lie in one row, for models of
every family.

transformers' models look their attention function up by name. Ours hands queries, keys and values
to a kernel for texts of different lengths: torch's on a GPU, or another that is called as that one
is.
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
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from transforms.base.errors import UnfitModelError

try:
    from torch.nn.attention.varlen import AuxRequest
except ImportError:  # a torch without it: the padded pass serves
    AuxRequest = None  # type: ignore[assignment, misc]

NAME, NOTING = "sentence_beam_texts", "sentence_beam_texts_noted"
# A function of queries, keys and values [N, heads, d] of texts with `bounds` [B + 1], called as
# `varlen_attn` of torch.
Kernel = Callable[..., Any]
# What models hand to an attention function and what makes no difference to us: dropout is for
# training.
_READ = frozenset(("scaling", "sliding_window", "is_causal"))
_WITHOUT_EFFECT = frozenset(
    (
        "dropout",
        "position_ids",
        "use_cache",
        "cache_position",
        "deterministic",
        "return_dict",
        "token_type_ids",
    )
    + ("output_attentions", "output_hidden_states", "output_router_logits", "position_embeddings")
)


@dataclass(frozen=True)
class Attending:
    """What a block asks of its attention: `window`, and the number of heads of queries and of keys,
    and their width.

    `window`: how many tokens a token sees before and after itself, -1: all.
    """

    window: tuple[int, int]
    heads: int
    key_heads: int
    width: int


class _Row(threading.local):
    """The texts of the row that a thread's pass is over, and what is noted of a pass that is only
    watched.
    """

    bounds: Tensor | None = None
    longest = 0
    kernel: Kernel | None = None
    masks: list[tuple[Tensor, Callable[..., Tensor]]]
    asked: list[Attending]
    furthest = 0


_ROW = _Row()


@contextmanager
def row_of_texts(kernel: Kernel, bounds: Tensor | None, longest: int) -> Iterator[None]:
    """A context in which this thread's passes are over one row of texts, `bounds` [B + 1] int32 on
    the device.

    Without `bounds` each row of a batch is a text, without padding.
    """
    _ROW.kernel, _ROW.bounds, _ROW.longest = kernel, bounds, longest
    try:
        yield
    finally:
        _ROW.kernel, _ROW.bounds = None, None


def note_attention(
    model: Any, kernel: Kernel, inputs: dict[str, Tensor], furthest: int
) -> set[Attending]:
    """What the blocks of a model ask of attention, seen in a pass over one text.

    Raises `UnfitModelError` where the kernel cannot compute that, and where the masks that the
    model makes hide other tokens, of texts of up to `furthest` tokens, than its attention function
    is told.
    """
    _register()
    model.set_attn_implementation(NOTING)
    _ROW.masks, _ROW.asked, _ROW.furthest = [], [], furthest
    try:
        with row_of_texts(kernel, None, 0):
            model(**inputs)
        return set(_ROW.asked)
    finally:
        _ROW.masks, _ROW.asked = [], []
        model.set_attn_implementation(NAME)


def text_by_text(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, _: Any, __: int, ___: int, *,
    scale: float | None = None, window_size: tuple[int, int] = (-1, -1), enable_gqa: bool = False,
    return_aux: Any = None,
) -> Any:  # fmt: skip
    """What torch's kernel computes [N, heads, d], on any device: one text after the other.

    With `return_aux` the logarithms [heads, N] of the sums of exponentiated scores too, where no
    heads share keys.
    """
    mixed = torch.empty(*query.shape[:2], value.shape[2], dtype=value.dtype, device=value.device)
    totals = torch.empty(query.shape[1], len(query), device=query.device)
    for start, stop in pairwise(bounds.tolist()):
        queries, keys, values = (
            part[start:stop].transpose(0, 1)[None] for part in (query, key, value)
        )
        seen = _seen(stop - start, window_size, query.device)
        found = F.scaled_dot_product_attention(
            queries, keys, values, seen, scale=scale, enable_gqa=enable_gqa
        )
        mixed[start:stop] = found[0].transpose(0, 1)
        if return_aux is not None:
            scores = (queries.float() @ keys.float().mT)[0] * (scale or query.shape[2] ** -0.5)
            totals[:, start:stop] = (
                scores if seen is None else scores.masked_fill(~seen, -torch.inf)
            ).logsumexp(2)
    return mixed if return_aux is None else (mixed, totals)


def own_attention_of_texts(
    kernel: Kernel, query: Tensor, key: Tensor, bounds: Tensor, longest: int, **said: Any
) -> Tensor:
    """The attention of each token to itself in one head, [N] float32, from that head's queries and
    keys [N, d].

    The kernel, which is told what is `said`, gives the logarithm of the scores' sum.
    """
    query, key, scale = query[:, None], key[:, None], said.get("scale")
    _, total = kernel(
        query, key, key, bounds, bounds, longest, longest, return_aux=AuxRequest(lse=True), **said
    )
    own = (
        (query.float() * key.float())
        .sum(dim=2)
        .mul_(query.shape[2] ** -0.5 if scale is None else scale)
    )
    return (own[:, 0] - total.view(-1)).exp()


def of_one_head(query: Tensor, key: Tensor, head: int) -> tuple[Tensor, Tensor]:
    """The queries and keys [B, T, d] of a head, from 1, of all [B, heads, T, d]; heads may share
    keys.
    """
    return query[:, head - 1], key[:, (head - 1) * key.shape[1] // query.shape[1]]


def heads_of_texts(
    module: nn.Module, query: Tensor, key: Tensor, said: dict[str, Any]
) -> Callable[[int], Tensor]:
    """A function head (from 1) -> own attention [B, T], from queries and keys [B, heads, T, d] of a
    row of texts.
    """
    _check_known(said)
    bounds, longest, kernel = _texts(query)
    options: dict[str, Any] = {"scale": said.get("scaling"), "window_size": _window(module, said)}

    def of_head(head: int) -> Tensor:
        queries, keys = (part.flatten(0, 1) for part in of_one_head(query, key, head))
        return own_attention_of_texts(kernel, queries, keys, bounds, longest, **options).view(
            query.shape[0], -1
        )

    return of_head


def check_kernel(kernel: Kernel, asked: Attending, like: Tensor) -> None:
    """Raise `UnfitModelError` unless the kernel computes what is asked, within rounding; `like`:
    where, in which dtype.

    A window is narrowed to three tokens, so that one token more or less cannot pass for rounding.
    """
    lengths = (9, 1, 6)
    generator = torch.Generator().manual_seed(0)
    shapes = (
        (sum(lengths), heads, asked.width)
        for heads in (asked.heads, asked.key_heads, asked.key_heads)
    )
    query, key, value = (torch.randn(shape, generator=generator).to(like) for shape in shapes)
    bounds = torch.tensor([0, *lengths]).cumsum(0).to(like.device, torch.int32)
    window = (min(asked.window[0], 3), min(asked.window[1], 3))
    said: dict[str, Any] = {"window_size": window, "enable_gqa": asked.heads != asked.key_heads}
    found = kernel(query, key, value, bounds, bounds, max(lengths), max(lengths), **said)
    expected = text_by_text(query.float(), key.float(), value.float(), bounds, bounds, 0, 0, **said)
    if not torch.allclose(found.float(), expected, atol=0.03, rtol=0.03):
        raise UnfitModelError(
            f"the kernel for texts of different lengths fails at windows of {window}"
        )


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **said: Any,
) -> tuple[Tensor, None]:
    """What each token's text gives it, [B, T, heads, d], from queries, keys and values [B, heads,
    T, d].
    """
    if attention_mask is not None:
        raise UnfitModelError("it makes masks of its own")
    return _mixed(module, query, key, value, said), None


def _mixed(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, said: dict[str, Any]
) -> Tensor:
    _check_known(said)
    batch, heads, tokens, _ = query.shape
    bounds, longest, kernel = _texts(query)
    parts = (part.transpose(1, 2).flatten(0, 1).to(value.dtype) for part in (query, key, value))
    options: dict[str, Any] = {"scale": said.get("scaling"), "window_size": _window(module, said)}
    mixed = kernel(
        *parts, bounds, bounds, longest, longest, **options, enable_gqa=key.shape[1] != heads
    )
    return mixed.view(batch, tokens, heads, -1)


def _texts(query: Tensor) -> tuple[Tensor, int, Kernel]:
    """The bounds of the texts of queries [B, heads, T, d], the longest text's tokens, and the
    kernel.
    """
    bounds, longest, kernel = _ROW.bounds, _ROW.longest, _ROW.kernel
    assert kernel is not None, "a pass outside of `row_of_texts`"
    if bounds is None:  # each row is a text
        batch, _, longest, _ = query.shape
        bounds = torch.arange(
            0, (batch + 1) * longest, longest, dtype=torch.int32, device=query.device
        )
    return bounds, longest, kernel


def _check_known(said: dict[str, Any]) -> None:
    unknown = {name for name, value in said.items() if value is not None} - _READ - _WITHOUT_EFFECT
    if unknown:
        raise UnfitModelError(f"its attention takes {', '.join(sorted(unknown))}")
    if isinstance(said.get("scaling"), Tensor):
        raise UnfitModelError("its attention scales by weights")


def _window(module: nn.Module, said: dict[str, Any]) -> tuple[int, int]:
    """How many tokens a token sees before and after itself, -1: all; `sliding_window` counts itself
    too.
    """
    told, size = said.get("is_causal"), said.get("sliding_window")
    causal = getattr(module, "is_causal", True) if told is None else told
    before = -1 if size is None else int(size) - 1
    return before, 0 if causal else before


def _note_mask(
    *_: Any, mask_function: Callable[..., Tensor], device: Any = "cpu", **__: Any
) -> Tensor:
    """A stand-in for a mask, by which `_note` knows again what the mask would hide."""
    stand_in = torch.zeros(1, 1, 1, 1, device=device)
    _ROW.masks.append((stand_in, mask_function))
    return stand_in


def _note(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **said: Any,
) -> tuple[Tensor, None]:
    """As `_attend`, for a text alone; notes what was asked and compares it with the mask."""
    window = _window(module, said)
    hides = next(
        (function for stand_in, function in _ROW.masks if stand_in is attention_mask), None
    )
    if attention_mask is not None and (
        hides is None or not _same_tokens(hides, window, query.device)
    ):
        raise UnfitModelError("its masks hide other tokens than its attention is told")
    if value.shape[3] != query.shape[3]:
        raise UnfitModelError("its values and queries differ in width")
    _ROW.asked.append(Attending(window, query.shape[1], key.shape[1], query.shape[3]))
    return _mixed(module, query, key, value, said), None


def _same_tokens(
    sees: Callable[..., Tensor], window: tuple[int, int], device: torch.device
) -> bool:
    """Whether a model's mask function and a window let the first, the middle and the last token see
    the same ones.
    """
    tokens = _ROW.furthest
    keys = torch.arange(tokens, device=device)
    for token in {0, tokens // 2, tokens - 1}:
        theirs = sees(0, 0, keys[token], keys)
        if not torch.equal(theirs.expand(tokens), _within(token, keys, window)):
            return False
    return True


def _within(token: int | Tensor, keys: Tensor, window: tuple[int, int]) -> Tensor:
    """Which of the places `keys` the token at a place sees."""
    before, after = window
    everywhere = torch.ones_like(keys + token, dtype=torch.bool)
    not_too_early = keys >= token - before if before >= 0 else everywhere
    not_too_late = keys <= token + after if after >= 0 else everywhere
    return not_too_early & not_too_late


def _seen(tokens: int, window: tuple[int, int], device: torch.device) -> Tensor | None:
    if window == (-1, -1):
        return None
    places = torch.arange(tokens, device=device)
    return _within(places[:, None], places, window)


def _register() -> None:
    """Have transformers know both attention functions, and the masks of one, by name."""
    if NAME not in ALL_ATTENTION_FUNCTIONS:
        ALL_ATTENTION_FUNCTIONS.register(NAME, _attend)
        ALL_ATTENTION_FUNCTIONS.register(NOTING, _note)
        ALL_MASK_ATTENTION_FUNCTIONS.register(NOTING, _note_mask)
