"""What every pooler offers."""

from typing import Protocol

from transforms.pooling.needs import Needs
from transforms.pooling.states import Pooled, TokenStates


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
