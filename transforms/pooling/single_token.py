"""One token speaks for the sentence."""

from dataclasses import dataclass

from transforms.pooling.counting import count_tokens
from transforms.pooling.needs import Needs
from transforms.pooling.states import Pooled, TokenStates, graded


@dataclass(frozen=True)
class FirstToken:
    """`cls`: the state of the first counted token, before any pooler head."""

    layer: int
    dim: int
    count: str = "all"

    @property
    def needs(self) -> Needs:
        return Needs(layers=frozenset([self.layer]))

    def __call__(self, states: TokenStates) -> Pooled:
        counted = count_tokens(states, self.count)
        return graded(states.hidden[self.layer][counted.index[counted.offsets[:-1]]], counted.fallback)


@dataclass(frozen=True)
class LastToken:
    """`last-token`: the state of the last counted token."""

    layer: int
    dim: int
    count: str = "all"

    @property
    def needs(self) -> Needs:
        return Needs(layers=frozenset([self.layer]))

    def __call__(self, states: TokenStates) -> Pooled:
        counted = count_tokens(states, self.count)
        return graded(states.hidden[self.layer][counted.index[counted.offsets[1:] - 1]], counted.fallback)


@dataclass(frozen=True)
class TanhHead:
    """`cls-tanh`: tanh(W x + b) of the first counted token, W and b the checkpoint's own pooler (BERT)."""

    layer: int
    dim: int
    count: str = "all"

    @property
    def needs(self) -> Needs:
        return Needs(layers=frozenset([self.layer]), pooler_head=True)

    def __call__(self, states: TokenStates) -> Pooled:
        if states.head is None:
            raise ValueError("cls-tanh needs TokenStates.head")
        counted = count_tokens(states, self.count)
        first = states.hidden[self.layer][counted.index[counted.offsets[:-1]]]
        return graded(states.head(first), counted.fallback)
