"""Packed tokens laid out with padding, for what reads a sentence's tokens side by side."""

import torch
from torch import Tensor


def padded(values: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Sentences [B, T, H] of packed rows [N, H], zeros behind the shorter ones, and where they have rows [B, T] bool.

    `offsets` [B + 1] int64 cuts the rows into sentences.
    """
    lengths = offsets.diff()
    places = torch.arange(int(lengths.max()) if lengths.numel() else 0, device=values.device)
    mask = places < lengths.unsqueeze(1)
    laid = values.new_zeros((*mask.shape, values.shape[1]))
    laid[mask] = values
    return laid, mask
