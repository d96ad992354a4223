"""Layers of sentence-transformers between a transformer and its pooling, over the tokens of each
text by itself.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from transforms.pooling.padding import packed, padded
from transforms.pooling.transfer import to_device


class Convolutions(nn.Module):
    """sentence-transformers' CNN: convolutions of several odd kernel sizes over tokens, side by
    side, no activation.

    Beyond a text's ends they read zeros, whatever stands there in a padded batch.
    """

    def __init__(self, sizes: Mapping[str, Any]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(sizes["width"], sizes["channels"], kernel, padding=kernel // 2)
            for kernel in sizes["kernels"]
        )

    def forward(self, states: Tensor, offsets: Tensor) -> Tensor:
        """States [N, D] of packed states [N, H], cut into sentences by `offsets` [B + 1]."""
        laid = padded(states, offsets)[0].transpose(1, 2)
        return packed(
            torch.cat([conv(laid) for conv in self.convs], dim=1).transpose(1, 2), offsets
        )


class Recurrent(nn.Module):
    """sentence-transformers' LSTM over the tokens of a text, to its last one and back."""

    def __init__(self, sizes: Mapping[str, Any]) -> None:
        super().__init__()
        settings = {
            "num_layers": sizes["depth"],
            "bidirectional": sizes["both"],
            "batch_first": True,
        }
        self.encoder = nn.LSTM(sizes["width"], sizes["hidden"], **settings)

    def forward(self, states: Tensor, offsets: Tensor) -> Tensor:
        """States [N, D] of packed states [N, H], cut into sentences by `offsets` [B + 1]."""
        places, counts = _by_step(offsets)
        steps = PackedSequence(states.index_select(0, to_device(places, states.device)), counts)
        return self.encoder(steps)[0].data.index_select(
            0, to_device(places.argsort(), states.device)
        )


def _by_step(offsets: Tensor) -> tuple[Tensor, Tensor]:
    """The places [N] of all texts' first tokens, longest text first, then of the second ones, and
    how many of each.

    Found in main memory: torch's own function for it asks the device.
    """
    lengths, order = offsets.diff().sort(descending=True, stable=True)
    steps = torch.arange(int(lengths[0]) if len(lengths) else 0).unsqueeze(1)
    there = steps < lengths
    return (offsets[:-1][order] + steps)[there], there.sum(dim=1)
