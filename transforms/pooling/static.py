"""Averages without context: no block runs."""

from dataclasses import dataclass

from transforms.pooling.counting import count_tokens
from transforms.pooling.needs import Needs
from transforms.pooling.segments import segment_mean
from transforms.pooling.states import Pooled, TokenStates, graded


@dataclass(frozen=True)
class StaticMean:
    """e = sum_t v_t / N, v_t the token's row of the embedding matrix; no position or norm (Ditto, arXiv:2305.10786)."""

    dim: int
    count: str = "all"

    @property
    def needs(self) -> Needs:
        return Needs(raw=True)

    def __call__(self, states: TokenStates) -> Pooled:
        if states.raw is None:
            raise ValueError("static needs TokenStates.raw")
        counted = count_tokens(states, self.count)
        return graded(segment_mean(states.raw, counted), counted.fallback)
