"""Packed tokens laid out with padding, for what reads a sentence's tokens side by side."""

import torch
from torch import Tensor

from transforms.pooling.transfer import to_device


def padded(values: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Sentences [B, T, H] of packed rows [N, H], zeros behind the shorter ones, and where they have
    rows [B, T] bool.

    `offsets` [B + 1] int64, in main memory, cuts the rows into sentences.
    """
    mask = _mask(offsets)
    laid = values.new_zeros((mask.numel(), values.shape[1])).index_copy_(
        0, _places(mask, values.device), values
    )
    return laid.view(*mask.shape, values.shape[1]), to_device(mask, values.device)


def packed(laid: Tensor, offsets: Tensor) -> Tensor:
    """The rows [N, H] of sentences [B, T, H] that `padded` has laid out, one sentence after the
    other.
    """
    return laid.flatten(0, 1).index_select(0, _places(_mask(offsets), laid.device))


def _mask(offsets: Tensor) -> Tensor:
    lengths = offsets.diff()
    places = torch.arange(int(lengths.max()) if lengths.numel() else 0)
    return places < lengths.unsqueeze(1)


def _places(mask: Tensor, device: torch.device) -> Tensor:
    return to_device(mask.flatten().nonzero().squeeze(1), device)
