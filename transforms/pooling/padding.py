"""Padding of packed tokens, for layers that read a sentence's tokens side by side."""

import torch
from torch import Tensor

from sentence_beam.transforms.pooling.transfer import to_device


def pad_sentences(values: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Return packed rows [N, H] as sentences [B, T, H], and a mask [B, T] bool of their rows.

    Shorter sentences end with zeros. `offsets` [B + 1] int64, in main memory, cuts the rows into
    sentences.
    """
    mask = _mark_rows(offsets)
    rows = values.new_zeros((mask.numel(), values.shape[1]))
    rows.index_copy_(0, _find_rows(mask, values.device), values)
    return rows.view(*mask.shape, values.shape[1]), to_device(mask, values.device)


def pack_sentences(laid: Tensor, offsets: Tensor) -> Tensor:
    """Return the packed rows [N, H] of the sentences [B, T, H] that `pad_sentences` made."""
    return laid.flatten(0, 1).index_select(0, _find_rows(_mark_rows(offsets), laid.device))


def _mark_rows(offsets: Tensor) -> Tensor:
    lengths = offsets.diff()
    longest = int(lengths.max()) if lengths.numel() else 0
    return torch.arange(longest) < lengths.unsqueeze(1)


def _find_rows(mask: Tensor, device: torch.device) -> Tensor:
    return to_device(mask.flatten().nonzero().squeeze(1), device)
