"""Layers of sentence-transformers between a transformer and its pooling."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from sentence_beam.transforms.pooling.padding import pack_sentences, pad_sentences
from sentence_beam.transforms.pooling.transfer import to_device


class Convolutions(nn.Module):
    """sentence-transformers' CNN: convolutions of several odd kernel sizes, without activation.

    Their outputs are concatenated. Beyond a text's ends they read zeros, also in a padded batch.
    """

    def __init__(self, sizes: Mapping[str, Any]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(sizes["width"], sizes["channels"], kernel, padding=kernel // 2)
            for kernel in sizes["kernels"]
        )

    def forward(self, states: Tensor, offsets: Tensor) -> Tensor:
        """States [N, D] of packed states [N, H], cut into sentences by `offsets` [B + 1]."""
        laid = pad_sentences(states, offsets)[0].transpose(1, 2)
        joined = torch.cat([conv(laid) for conv in self.convs], dim=1)
        return pack_sentences(joined.transpose(1, 2), offsets)


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
        places, counts = _order_by_step(offsets)
        steps = PackedSequence(states.index_select(0, to_device(places, states.device)), counts)
        outputs = self.encoder(steps)[0].data
        return outputs.index_select(0, to_device(places.argsort(), states.device))


def _order_by_step(offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places [N] of tokens step by step, and the number of tokens of each step.

    Step t has the t-th token of every text that has one, longest text first. This happens in main
    memory; torch's own function would wait for the device.
    """
    lengths, order = offsets.diff().sort(descending=True, stable=True)
    longest = int(lengths[0]) if len(lengths) else 0
    steps = torch.arange(longest).unsqueeze(1)
    has_token = steps < lengths
    return (offsets[:-1][order] + steps)[has_token], has_token.sum(dim=1)
