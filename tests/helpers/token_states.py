"""Token states drawn at random, packed as poolers see them."""

from dataclasses import replace

import numpy as np
import torch

from sentence_beam.transforms.pooling import TokenStates

LAYERS, HIDDEN, EMBEDDING, VOCABULARY = 6, 16, 8, 40
FIRST, LAST, PADDING = 1, 2, 0


def states(
    lengths: list[int], seed: int = 1, dtype: torch.dtype = torch.float64, **changes: object
) -> TokenStates:
    """Sentences of these lengths, each between two special tokens; layers 0 to 6, heads of the
    first two blocks.
    """
    generator = torch.Generator().manual_seed(seed)
    total, offsets = sum(lengths), torch.tensor([0, *np.cumsum(lengths)])
    ids = torch.randint(3, VOCABULARY, (total,), generator=generator)
    ids[offsets[:-1]], ids[offsets[1:] - 1] = FIRST, LAST
    table = torch.randn(VOCABULARY, EMBEDDING, generator=generator, dtype=dtype)
    base = torch.randn(total, HIDDEN, generator=generator, dtype=dtype)
    drift = torch.randn(LAYERS + 1, total, HIDDEN, generator=generator, dtype=dtype).cumsum(0)
    drawn = TokenStates(
        hidden={layer: base + 0.3 * step for layer, step in enumerate(drift)},
        token_ids=ids,
        offsets=offsets,
        keep=torch.ones(total, dtype=torch.bool),
        raw=table[ids],
        special=(ids == FIRST) | (ids == LAST),
        own_attention={
            (b, h): torch.rand(total, generator=generator) for b in (1, 2) for h in (1, 2)
        },
    )
    return replace(drawn, **changes)


def alone(drawn: TokenStates, row: int) -> TokenStates:
    """One sentence of a batch, in a batch of its own."""
    part = slice(int(drawn.offsets[row]), int(drawn.offsets[row + 1]))
    return TokenStates(
        hidden={layer: state[part] for layer, state in drawn.hidden.items()},
        token_ids=drawn.token_ids[part],
        offsets=torch.tensor([0, part.stop - part.start]),
        keep=drawn.keep[part],
        raw=drawn.raw[part],
        special=drawn.special[part],
        own_attention={head: own[part] for head, own in drawn.own_attention.items()},
    )
