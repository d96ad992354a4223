"""What a pooler asks of the forward pass: it is given exactly that."""

from collections.abc import Iterable
from dataclasses import dataclass


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
