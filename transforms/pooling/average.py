"""Averages over counted tokens: e = sum_t w_t x_t / Z."""

from dataclasses import dataclass

import torch
from torch import Tensor

from transforms.pooling.counting import Counted, count_tokens
from transforms.pooling.needs import Needs
from transforms.pooling.segments import segment_mean, segment_sum
from transforms.pooling.states import Pooled, TokenStates, graded


@dataclass(frozen=True)
class Mean:
    """e = sum_t x_t / N over the N counted tokens, x the states of one layer (SBERT, arXiv:1908.10084, section 3)."""

    layer: int
    dim: int
    count: str = "all"

    @property
    def needs(self) -> Needs:
        return Needs(layers=frozenset([self.layer]))

    def __call__(self, states: TokenStates) -> Pooled:
        counted = count_tokens(states, self.count)
        return graded(segment_mean(states.hidden[self.layer], counted), counted.fallback)


@dataclass(frozen=True)
class MeanSqrtLen:
    """e = sum_t x_t / sqrt(N): the direction of the mean, its length grown by sqrt(N)."""

    layer: int
    dim: int
    count: str = "all"

    @property
    def needs(self) -> Needs:
        return Needs(layers=frozenset([self.layer]))

    def __call__(self, states: TokenStates) -> Pooled:
        counted = count_tokens(states, self.count)
        total = segment_sum(states.hidden[self.layer], counted)
        return graded(total / counted.lengths.sqrt().unsqueeze(1), counted.fallback)


@dataclass(frozen=True)
class WeightedMean:
    """e = sum_t r_t x_t / sum_t r_t with r_t = 1, 2, ... the rank of token t (SGPT, arXiv:2202.08904, section 4).

    `rank`: among the `counted` tokens, or its position among all `attended` ones.
    """

    layer: int
    dim: int
    count: str = "all"
    rank: str = "counted"

    @property
    def needs(self) -> Needs:
        return Needs(layers=frozenset([self.layer]))

    def __call__(self, states: TokenStates) -> Pooled:
        counted = count_tokens(states, self.count)
        ranks = self._ranks(states, counted)
        total = counted.totals(ranks)
        weighted = segment_sum(states.hidden[self.layer], counted, ranks)
        return graded(weighted / total.unsqueeze(1), counted.fallback)

    def _ranks(self, states: TokenStates, counted: Counted) -> Tensor:
        """Rank of every counted token within its sentence, from 1; [M] int64."""
        if self.rank == "attended":
            return counted.index - states.offsets[:-1][counted.sentences] + 1
        place = torch.arange(counted.index.numel(), device=counted.index.device)
        return place - counted.offsets[:-1][counted.sentences] + 1
