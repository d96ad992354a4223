"""Componentwise maximum."""

from dataclasses import dataclass

from transforms.pooling.counting import count_tokens
from transforms.pooling.needs import Needs
from transforms.pooling.segments import segment_max
from transforms.pooling.states import Pooled, TokenStates, graded


@dataclass(frozen=True)
class Max:
    """e_j = max_t x_tj over the counted tokens (SBERT, arXiv:1908.10084, section 3)."""

    layer: int
    dim: int
    count: str = "all"

    @property
    def needs(self) -> Needs:
        return Needs(layers=frozenset([self.layer]))

    def __call__(self, states: TokenStates) -> Pooled:
        counted = count_tokens(states, self.count)
        return graded(segment_max(states.hidden[self.layer], counted), counted.fallback)
