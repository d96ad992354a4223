"""Averages over two layers and the counted tokens: e = sum_t (a_t + b_t) / 2N."""

from dataclasses import dataclass

from transforms.pooling.counting import count_tokens
from transforms.pooling.needs import Needs
from transforms.pooling.segments import segment_mean
from transforms.pooling.states import Pooled, TokenStates, graded


@dataclass(frozen=True)
class TwoLayerMean:
    """The mean over tokens of the average of two layers' states.

    `first-last` with `first=embeddings` (layer 0) is Ditto's (arXiv:2305.10786), with `first=block1` (layer 1) that of
    BERT-whitening (arXiv:2103.15316) and of BERT-flow's code; `last2` is the average of the last two blocks.
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
        return graded((lower + upper) / 2, counted.fallback)
