"""Several poolers side by side."""

from dataclasses import dataclass

import torch

from transforms.pooling.needs import Needs, union
from transforms.pooling.pooler import Pooler
from transforms.pooling.states import Pooled, Status, TokenStates, graded


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
