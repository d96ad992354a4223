"""Layers of sentence-transformers between a transformer and its pooling, over the tokens of each text by itself."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transforms.pooling.padding import packed, padded


class Convolutions(nn.Module):
    """sentence-transformers' CNN: convolutions of several odd kernel sizes over tokens, side by side, no activation.

    Beyond a text's ends they read zeros, whatever stands there in a padded batch.
    """

    def __init__(self, sizes: Mapping[str, Any]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(sizes["width"], sizes["channels"], kernel, padding=kernel // 2) for kernel in sizes["kernels"]
        )

    def forward(self, states: Tensor, offsets: Tensor) -> Tensor:
        """States [N, D] of packed states [N, H], cut into sentences by `offsets` [B + 1]."""
        laid = padded(states, offsets)[0].transpose(1, 2)
        return packed(torch.cat([conv(laid) for conv in self.convs], dim=1).transpose(1, 2), offsets)


class Recurrent(nn.Module):
    """sentence-transformers' LSTM over the tokens of a text, to its last one and back."""

    def __init__(self, sizes: Mapping[str, Any]) -> None:
        super().__init__()
        settings = {"num_layers": sizes["depth"], "bidirectional": sizes["both"], "batch_first": True}
        self.encoder = nn.LSTM(sizes["width"], sizes["hidden"], **settings)

    def forward(self, states: Tensor, offsets: Tensor) -> Tensor:
        """States [N, D] of packed states [N, H], cut into sentences by `offsets` [B + 1]."""
        laid, _ = padded(states, offsets)
        steps = pack_padded_sequence(laid, offsets.diff(), batch_first=True, enforce_sorted=False)
        return packed(pad_packed_sequence(self.encoder(steps)[0], batch_first=True)[0], offsets)
