"""What every pooler offers, what it may need, and several poolers side by side."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch

from transforms.pooling.states import Pooled, Status, TokenStates, graded


@dataclass(frozen=True)
class Needs:
    """Layers (0: embedding output), raw embedding rows, attention heads (1-based block, head), the tanh pooler.

    `mask`: the place of a template's mask; `bare_mask`: its state without a sentence.
    """

    layers: frozenset[int] = frozenset()
    raw: bool = False
    heads: frozenset[tuple[int, int]] = frozenset()
    pooler_head: bool = False
    mask: bool = False
    bare_mask: bool = False

    @property
    def deepest(self) -> int:
        """The last block that has to run whole; 0: none. A head needs no more than what enters its block."""
        return max([0, *self.layers, *(block - 1 for block, _ in self.heads)])


def union(several: Iterable[Needs]) -> Needs:
    """What all of them ask for together."""
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
    """Token states of a batch -> one vector a sentence."""

    @property
    def needs(self) -> Needs:
        """What `states` must hold."""

    @property
    def dim(self) -> int:
        """Width of the vectors."""

    def __call__(self, states: TokenStates) -> Pooled:
        """Vectors [B, dim] float32 and their status."""


@dataclass(frozen=True)
class Concat:
    """The vectors of several poolers joined in the order given; a row is a fallback where it is in any part."""

    parts: tuple[Pooler, ...]
    dim: int

    @property
    def needs(self) -> Needs:
        return union(part.needs for part in self.parts)

    def __call__(self, states: TokenStates) -> Pooled:
        pooled = [part(states) for part in self.parts]
        fallback = torch.stack([one.status == Status.FALLBACK for one in pooled]).any(dim=0)
        return graded(torch.cat([one.vectors for one in pooled], dim=1), fallback)
