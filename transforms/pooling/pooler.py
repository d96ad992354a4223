"""The interface of poolers, the states that they may need, and several poolers side by side."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from sentence_beam.transforms.pooling.states import Pooled, Status, TokenStates, grade_vectors
from sentence_beam.transforms.pooling.transfer import to_device


@dataclass(frozen=True)
class Needs:
    """The token states that a pooler reads; a forward pass computes no others.

    `layers` by number (0: embedding output); `raw` rows of the embedding matrix; `heads` (block,
    head), both from 1; `pooler_head` the model's tanh pooler; `mask` the place of a template's
    mask; `bare_mask` the state of that mask in the template without a sentence.
    """

    layers: frozenset[int] = frozenset()
    raw: bool = False
    heads: frozenset[tuple[int, int]] = frozenset()
    pooler_head: bool = False
    mask: bool = False
    bare_mask: bool = False

    @property
    def deepest(self) -> int:
        """The number of the last block that has to run; 0 for none.

        A head needs only the input of its block.
        """
        return max([0, *self.layers, *(block - 1 for block, _ in self.heads)])


def _join_needs(several: Iterable[Needs]) -> Needs:
    """The needs of several poolers together."""
    needs = list(several)
    return Needs(
        layers=frozenset().union(*(need.layers for need in needs)),
        raw=any(need.raw for need in needs),
        heads=frozenset().union(*(need.heads for need in needs)),
        pooler_head=any(need.pooler_head for need in needs),
        mask=any(need.mask for need in needs),
        bare_mask=any(need.bare_mask for need in needs),
    )


class Pooler(Protocol):
    """A function of a batch's token states that gives one vector a sentence."""

    @property
    def needs(self) -> Needs:
        """The states that the pooler reads."""

    @property
    def dim(self) -> int:
        """The width of the vectors."""

    def __call__(self, states: TokenStates) -> Pooled:
        """The vectors [B, dim] float32 and their status."""


@dataclass(frozen=True)
class Concat:
    """The vectors of several poolers side by side, in order.

    A row is a fallback if it is one in any part.
    """

    parts: tuple[Pooler, ...]
    dim: int

    @property
    def needs(self) -> Needs:
        return _join_needs(part.needs for part in self.parts)

    def __call__(self, states: TokenStates) -> Pooled:
        pooled = [part(states) for part in self.parts]
        fallback = torch.stack([each.status == Status.FALLBACK for each in pooled]).any(dim=0)
        return grade_vectors(torch.cat([each.vectors for each in pooled], dim=1), fallback)


@dataclass(frozen=True)
class MixedLayers:
    """A pooler of the weighted average of the layers `first` to `last`, computed in float32.

    x_t = sum_l w_l x_tl / sum_l w_l (sentence-transformers' WeightedLayerPooling).
    """

    pooler: Pooler
    first: int
    last: int
    weights: tuple[float, ...]

    @property
    def dim(self) -> int:
        return self.pooler.dim

    @property
    def needs(self) -> Needs:
        mixed = Needs(layers=frozenset(range(self.first, self.last + 1)))
        return _join_needs([self.pooler.needs, mixed])

    def __call__(self, states: TokenStates) -> Pooled:
        layers = [states.hidden[layer].float() for layer in range(self.first, self.last + 1)]
        weights = to_device(torch.tensor(self.weights), layers[0].device)
        mixed = torch.tensordot(weights / weights.sum(), torch.stack(layers), dims=1)
        return self.pooler(replace(states, hidden={**states.hidden, self.last: mixed}))


@dataclass(frozen=True)
class OverTokenLayers:
    """A pooler of the last layer's states after further `layers`.

    `layers` maps packed states [N, H] and offsets [B + 1], in main memory, to states [N, D].
    """

    pooler: Pooler
    last: int
    layers: Callable[[Tensor, Tensor], Tensor]

    @property
    def dim(self) -> int:
        return self.pooler.dim

    @property
    def needs(self) -> Needs:
        return self.pooler.needs

    def __call__(self, states: TokenStates) -> Pooled:
        changed = self.layers(states.hidden[self.last].float(), states.offsets)
        return self.pooler(replace(states, hidden={**states.hidden, self.last: changed}))
