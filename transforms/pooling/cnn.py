"""The CNN head of CNN-SBERT and CNN-SALBERT: a network over token states."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sentence_beam.transforms.pooling.counted_tokens import CountedTokens, count_in_memory
from sentence_beam.transforms.pooling.padding import pad_sentences
from sentence_beam.transforms.pooling.simple import OneLayer
from sentence_beam.transforms.pooling.states import TokenStates

# The widest layers take 64 bytes for each component of each of these tokens.
_TOKENS_AT_ONCE = {"cpu": 256, "cuda": 8192}


class CnnNetwork(nn.Module):
    """Five rounds of maximum over tokens, convolution over tokens, tanh (arXiv:2101.10642, fig. 2).

    Each component of the token states passes through it alone, so that it has 84,481 parameters
    whatever their width. It is a reconstruction, because no code was published: maxima are of two
    tokens with windows that do not overlap, convolutions read zeros beyond a text's ends, and every
    step ignores tokens that do not count.
    """

    def __init__(self) -> None:
        super().__init__()
        sizes = ((1, 32, 1), (32, 64, 5), (64, 128, 3), (128, 128, 3), (128, 1, 1))
        self.convs = nn.ModuleList(
            nn.Conv2d(i, o, (kernel, 1), padding=(kernel // 2, 0)) for i, o, kernel in sizes
        )

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return vectors [B, H] in (-1, 1) of the states [B, T, H] that `mask` [B, T] marks."""
        # Windows begin at the first token that counts.
        order = (~mask).to(torch.uint8).argsort(dim=1, stable=True)
        values = states.gather(1, order.unsqueeze(2).expand_as(states)).unsqueeze(1)
        valid = mask.gather(1, order)[:, None, :, None]
        for conv in self.convs:
            values = F.max_pool2d(values.masked_fill(~valid, float("-inf")), (2, 1), ceil_mode=True)
            valid = F.max_pool2d(valid.to(values.dtype), (2, 1), ceil_mode=True) > 0
            values = torch.tanh(conv(values.masked_fill(~valid, 0)))
        total = values.masked_fill(~valid, 0).sum(dim=(1, 2))
        return total / valid.sum(dim=(1, 2)).clamp(min=1)


@dataclass(frozen=True)
class Cnn(OneLayer):
    """The CNN head's vector of the counted tokens' states (CNN-SBERT, arXiv:2101.10642)."""

    network: CnnNetwork = field(kw_only=True, compare=False)

    def reduce(self, states: TokenStates, counted: CountedTokens) -> Tensor:
        """Pad and reduce a few texts at a time, so that memory stays bounded."""
        offsets = count_in_memory(states, self.count).offsets
        laid, mask = pad_sentences(states.hidden[self.layer][counted.index].float(), offsets)
        if not len(mask):
            return laid.sum(1)
        texts = max(1, _TOKENS_AT_ONCE[laid.device.type] // max(1, mask.shape[1]))
        parts = zip(laid.split(texts), mask.split(texts), strict=True)
        return torch.cat([self.network(*part) for part in parts])
