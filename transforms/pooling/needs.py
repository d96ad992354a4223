"""What a pooler asks of the forward pass: it is given exactly that."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Needs:
    """Layers (0: embedding output), raw embedding rows, attention heads (1-based block, head), the tanh pooler."""

    layers: frozenset[int] = frozenset()
    raw: bool = False
    heads: frozenset[tuple[int, int]] = frozenset()
    pooler_head: bool = False

    @property
    def deepest(self) -> int | None:
        """The last block that has to run; 0: the embeddings alone; None: nothing runs."""
        blocks = self.layers | {block for block, _ in self.heads}
        return max(blocks) if blocks else None


def union(several: Iterable[Needs]) -> Needs:
    """What all of them ask for together."""
    needs = list(several)
    return Needs(
        layers=frozenset().union(*(need.layers for need in needs)),
        raw=any(need.raw for need in needs),
        heads=frozenset().union(*(need.heads for need in needs)),
        pooler_head=any(need.pooler_head for need in needs),
    )
