"""The CNN head of CNN-SBERT and CNN-SALBERT: a network over a text's token states, trained with the
model.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transforms.pooling.counting import CountedTokens, count_in_memory
from transforms.pooling.padding import padded
from transforms.pooling.simple import OneLayer
from transforms.pooling.states import TokenStates

# the widest layers take 64 bytes for each component of each of these tokens
_TOKENS_AT_ONCE = {"cpu": 256, "cuda": 8192}


class CnnNetwork(nn.Module):
    """The network of figure 2 of arXiv:2101.10642: five rounds of maximum over tokens, convolution
    over tokens, tanh.

    Each component of the token states goes through it by itself, so that it has 84,481 parameters
    whatever their width. A reconstruction, as no code was published: maxima are of two tokens and
    their windows do not overlap, convolutions read zeros beyond a text's ends, and tokens that do
    not count are kept out of every step.
    """

    def __init__(self) -> None:
        super().__init__()
        sizes = ((1, 32, 1), (32, 64, 5), (64, 128, 3), (128, 128, 3), (128, 1, 1))
        self.convs = nn.ModuleList(
            nn.Conv2d(i, o, (kernel, 1), padding=(kernel // 2, 0)) for i, o, kernel in sizes
        )

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """The vectors [B, H], each component in (-1, 1), of states [B, T, H] where `mask` [B, T]
        bool is True.
        """
        # windows begin at the first token that counts
        first = (~mask).to(torch.uint8).argsort(dim=1, stable=True)
        found = states.gather(1, first.unsqueeze(2).expand_as(states)).unsqueeze(1)
        there = mask.gather(1, first)[:, None, :, None]
        for conv in self.convs:
            found = F.max_pool2d(found.masked_fill(~there, float("-inf")), (2, 1), ceil_mode=True)
            there = F.max_pool2d(there.to(found.dtype), (2, 1), ceil_mode=True) > 0
            found = torch.tanh(conv(found.masked_fill(~there, 0)))
        total = found.masked_fill(~there, 0).sum(dim=(1, 2))
        return total / there.sum(dim=(1, 2)).clamp(min=1)


@dataclass(frozen=True)
class Cnn(OneLayer):
    """The CNN head's vector of the counted tokens' states (CNN-SBERT, arXiv:2101.10642)."""

    network: CnnNetwork = field(kw_only=True, compare=False)

    def reduce(self, states: TokenStates, counted: CountedTokens) -> Tensor:
        offsets = count_in_memory(states, self.count).offsets
        laid, mask = padded(states.hidden[self.layer][counted.index].float(), offsets)
        if not len(mask):
            return laid.sum(1)
        texts = max(1, _TOKENS_AT_ONCE[laid.device.type] // max(1, mask.shape[1]))
        parts = zip(laid.split(texts), mask.split(texts), strict=True)
        return torch.cat([self.network(*part) for part in parts])
