"""Poolers that read one or two layers: averages of tokens, their maximum, a single token."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sentence_beam.transforms.pooling.counted_tokens import (
    CountedTokens,
    count_tokens,
    segment_max,
    segment_mean,
    segment_sum,
)
from sentence_beam.transforms.pooling.pooler import Needs
from sentence_beam.transforms.pooling.states import Pooled, TokenStates, grade_vectors
from sentence_beam.transforms.pooling.transfer import to_device


@dataclass(frozen=True)
class OneLayer(ABC):
    """A pooler that reads the states x of one layer at the tokens that `count` selects."""

    layer: int
    dim: int
    count: str = "all"

    @property
    def needs(self) -> Needs:
        return Needs(layers=frozenset([self.layer]))

    def __call__(self, states: TokenStates) -> Pooled:
        counted = count_tokens(states, self.count)
        return grade_vectors(self.reduce(states, counted), counted.fallback)

    @abstractmethod
    def reduce(self, states: TokenStates, counted: CountedTokens) -> Tensor:
        """The vectors [B, dim] of the counted tokens."""


class Mean(OneLayer):
    """e = sum_t x_t / N over the N counted tokens (SBERT, arXiv:1908.10084, section 3)."""

    def reduce(self, states: TokenStates, counted: CountedTokens) -> Tensor:
        return segment_mean(states.hidden[self.layer], counted)


class MeanSqrtLen(OneLayer):
    """e = sum_t x_t / sqrt(N): the direction of the mean, its length grown by sqrt(N)."""

    def reduce(self, states: TokenStates, counted: CountedTokens) -> Tensor:
        return segment_sum(states.hidden[self.layer], counted) / counted.lengths.sqrt().unsqueeze(1)


@dataclass(frozen=True)
class WeightedMean(OneLayer):
    """e = sum_t r_t x_t / sum_t r_t with r_t = 1, 2, ... the rank of token t.

    `rank`: among the `counted` tokens, or its position among all `attended` ones. SGPT,
    arXiv:2202.08904, section 4.
    """

    rank: str = "counted"

    def reduce(self, states: TokenStates, counted: CountedTokens) -> Tensor:
        ranks = self._rank_tokens(states, counted)
        sums = segment_sum(states.hidden[self.layer], counted, ranks)
        return sums / counted.sum_by_sentence(ranks).unsqueeze(1)

    def _rank_tokens(self, states: TokenStates, counted: CountedTokens) -> Tensor:
        """The rank of every counted token within its sentence, from 1; [M] int64."""
        if self.rank == "attended":
            starts = to_device(states.offsets[:-1], counted.index.device)
            return counted.index - starts[counted.sentences] + 1
        place = torch.arange(counted.index.numel(), device=counted.index.device)
        return place - counted.offsets[:-1][counted.sentences] + 1


class Max(OneLayer):
    """e_j = max_t x_tj over the counted tokens (SBERT, arXiv:1908.10084, section 3)."""

    def reduce(self, states: TokenStates, counted: CountedTokens) -> Tensor:
        return segment_max(states.hidden[self.layer], counted)


class FirstToken(OneLayer):
    """The state of the first counted token, before any pooler head (`cls`)."""

    def reduce(self, states: TokenStates, counted: CountedTokens) -> Tensor:
        return states.hidden[self.layer][counted.index[counted.offsets[:-1]]]


class LastToken(OneLayer):
    """The state of the last counted token (`last-token`)."""

    def reduce(self, states: TokenStates, counted: CountedTokens) -> Tensor:
        return states.hidden[self.layer][counted.index[counted.offsets[1:] - 1]]


class TanhHead(FirstToken):
    """e = tanh(W x + b), x the first counted token's state (`cls-tanh`; BERT).

    W and b are the checkpoint's own pooler.
    """

    @property
    def needs(self) -> Needs:
        return replace(super().needs, pooler_head=True)

    def reduce(self, states: TokenStates, counted: CountedTokens) -> Tensor:
        if states.head is None:
            raise ValueError("cls-tanh needs TokenStates.head")
        return states.head(super().reduce(states, counted))


@dataclass(frozen=True)
class StaticMean:
    """e = sum_t v_t / N, v_t the token's row of the embedding matrix, without position or norm.

    Ditto, arXiv:2305.10786.
    """

    dim: int
    count: str = "all"

    @property
    def needs(self) -> Needs:
        return Needs(raw=True)

    def __call__(self, states: TokenStates) -> Pooled:
        if states.raw is None:
            raise ValueError("static needs TokenStates.raw")
        counted = count_tokens(states, self.count)
        return grade_vectors(segment_mean(states.raw, counted), counted.fallback)


@dataclass(frozen=True)
class TwoLayerMean:
    """e = sum_t (a_t + b_t) / 2N, a and b the states of two layers.

    `first-last` with `first=embeddings` (layer 0) is Ditto's (arXiv:2305.10786), with
    `first=block1` (layer 1) that of BERT-whitening (arXiv:2103.15316) and of BERT-flow's code;
    `last2` is the average of the last two blocks.
    """

    lower: int
    upper: int
    dim: int
    count: str = "all"

    @property
    def needs(self) -> Needs:
        return Needs(layers=frozenset([self.lower, self.upper]))

    def __call__(self, states: TokenStates) -> Pooled:
        counted = count_tokens(states, self.count)
        lower = segment_mean(states.hidden[self.lower], counted)
        upper = segment_mean(states.hidden[self.upper], counted)
        return grade_vectors((lower + upper) / 2, counted.fallback)


@dataclass(frozen=True)
class Prompt:
    """e = h_m, the last layer at the template's mask token.

    `denoise` subtracts the state of the mask in the template without a sentence, whose later tokens
    keep the positions that they have behind this sentence (section 4.3). A sentence without tokens
    is then the zero vector. PromptBERT, arXiv:2201.04337, section 4.
    """

    layer: int
    dim: int
    denoise: bool = False

    @property
    def needs(self) -> Needs:
        return Needs(layers=frozenset([self.layer]), mask=True, bare_mask=self.denoise)

    def __call__(self, states: TokenStates) -> Pooled:
        if states.mask is None:
            raise ValueError("prompt needs TokenStates.mask")
        states_of_layer = states.hidden[self.layer]
        vectors = states_of_layer[to_device(states.mask, states_of_layer.device)].float()
        if self.denoise:
            if states.bare_mask is None:
                raise ValueError("prompt with denoising needs TokenStates.bare_mask")
            vectors = vectors - states.bare_mask.vectors.float()
            vectors = vectors.masked_fill((states.bare_mask.lengths == 0).unsqueeze(1), 0)
        return grade_vectors(
            vectors, torch.zeros(len(vectors), dtype=torch.bool, device=vectors.device)
        )
