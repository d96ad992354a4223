"""Ditto: averages in which a token's weight is its attention to itself."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sentence_beam.transforms.pooling.counted_tokens import CountedTokens, count_tokens, segment_sum
from sentence_beam.transforms.pooling.pooler import Needs
from sentence_beam.transforms.pooling.states import Pooled, TokenStates, grade_vectors


@dataclass(frozen=True)
class Ditto:
    """e = sum_t a_t x_t / Z, a_t the attention of token t to itself in one head.

    `head`: block and head, both from 1. x_t is the mean of the states of `layers`, or the row of
    the embedding matrix if `layers` is empty. `scale` is Z: `none` 1 (as published), `sum` the sum
    of a_t, `count` the number of counted tokens. A sentence whose a_t sum to less than 1e-12 gets
    its tokens' plain mean and counts as a fallback. Ditto, arXiv:2305.10786, section 3.
    """

    head: tuple[int, int]
    layers: tuple[int, ...]
    dim: int
    scale: str = "none"
    count: str = "all"

    @property
    def needs(self) -> Needs:
        heads = frozenset([self.head])
        return Needs(layers=frozenset(self.layers), raw=not self.layers, heads=heads)

    def __call__(self, states: TokenStates) -> Pooled:
        counted = count_tokens(states, self.count)
        attention = states.own_attention[self.head][counted.index].float()
        weights, weak = self._weigh(attention, counted)
        vectors = weighted_sum(states, self.layers, counted, weights)
        return grade_vectors(vectors, counted.fallback | weak)

    def _weigh(self, attention: Tensor, counted: CountedTokens) -> tuple[Tensor, Tensor]:
        """Return the weight of each counted token [M] and the sentences [B] bool that fall back."""
        total = counted.sum_by_sentence(attention)
        sentences = counted.sentences
        divisors = {"none": torch.ones_like(total), "sum": total, "count": counted.lengths.float()}
        weak = total < 1e-12
        weights = attention / divisors[self.scale][sentences]
        return torch.where(weak[sentences], 1 / counted.lengths[sentences], weights), weak


def weighted_sum(
    states: TokenStates, layers: tuple[int, ...], counted: CountedTokens, weights: Tensor
) -> Tensor:
    """Return the sums [B, D] of w_t x_t.

    x_t is the mean over `layers`, or the token's embedding row if `layers` is empty.
    """
    if layers:
        sums = [segment_sum(states.hidden[layer], counted, weights) for layer in layers]
        return torch.stack(sums).mean(dim=0)
    if states.raw is None:
        raise ValueError("static states need TokenStates.raw")
    return segment_sum(states.raw, counted, weights)
