"""A pooler's input and output.

Sizes: `B` sentences, `N` tokens; widths `H` hidden, `E` embedding, `D` output.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import torch
from torch import Tensor

from sentence_beam.transforms.space.identity import SHORTEST


class Status(IntEnum):
    """The state of a row's vector; of two that apply the higher number counts."""

    OK = 0
    FALLBACK = 1  # no token counted or weighed: plain weights were used
    ZERO = 2  # length below `SHORTEST`
    NONFINITE = 3
    EMPTY = 4  # the model sees nothing of the text: its tokens are those of an empty one


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a model that poolers depend on.

    `layers`: its blocks; `hidden`, `embedding`: the widths of a hidden state and of an embedding
    row; `has_pooler_head`: whether the checkpoint has a tanh pooler; `heads`: those of a block,
    None if unknown; `has_cnn_head`: whether a CNN head was trained with the model.
    """

    layers: int
    hidden: int
    embedding: int
    has_pooler_head: bool = False
    heads: int | None = None
    has_cnn_head: bool = False


@dataclass(frozen=True)
class BareMask:
    """The last layer `vectors` [B, H] at the mask of a template without its sentence.

    `lengths` [B] are those of the sentences, in tokens.
    """

    vectors: Tensor
    lengths: Tensor


@dataclass(frozen=True)
class TokenStates:
    """Packed token states of a batch, without padding.

    The tokens of sentence `b` are rows `offsets[b]` to `offsets[b + 1]`.
    `hidden[l]` [N, H] is the output of block `l` (0: the embedding output; the model's last: after
    its final norm); `raw` [N, E] rows of the token-embedding matrix; `token_ids` [N]; `offsets` [B
    + 1] int64; `keep` [N] bool, False for tokens that are never counted; `special` [N] bool marks
    the tokenizer's special tokens; `prompt_tokens` is the number of tokens at the head of every
    sentence that belong to the prompt; `head` maps [B, H] to the tanh pooler's output.
    `own_attention[(block, head)]` [N] float32 is each token's attention to itself, blocks and heads
    from 1; `mask` [B] int64 the row of each sentence's template mask, `bare_mask` the template
    without a sentence. Only what the pooler's `needs` name is there.

    What the model makes is on its device: `hidden`, `raw`, `own_attention`, `bare_mask`. What is
    known before it runs is in main memory: `token_ids`, `offsets`, `keep`, `special`, `mask`.
    """

    hidden: Mapping[int, Tensor]
    token_ids: Tensor
    offsets: Tensor
    keep: Tensor
    raw: Tensor | None = None
    special: Tensor | None = None
    prompt_tokens: int = 0
    head: Callable[[Tensor], Tensor] | None = field(default=None, compare=False)
    own_attention: Mapping[tuple[int, int], Tensor] = field(default_factory=dict)
    mask: Tensor | None = None
    bare_mask: BareMask | None = None

    @property
    def device(self) -> torch.device:
        """The device of what the model makes."""
        for tensor in (*self.hidden.values(), *self.own_attention.values()):
            return tensor.device
        return self.token_ids.device if self.raw is None else self.raw.device


@dataclass(frozen=True)
class Pooled:
    """The pooled `vectors` [B, D] float32 of a batch and their `status` [B] uint8 (`Status`)."""

    vectors: Tensor
    status: Tensor


def grade_vectors(vectors: Tensor, fallback: Tensor) -> Pooled:
    """Return the vectors [B, D] as float32 with their status.

    `fallback` [B] bool marks vectors that were made with plain weights.
    """
    vectors = vectors.float()
    norms = torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float64)
    status = fallback.to(torch.uint8) * int(Status.FALLBACK)
    status = status.masked_fill(norms < SHORTEST, int(Status.ZERO))
    return Pooled(vectors, status.masked_fill(~norms.isfinite(), int(Status.NONFINITE)))
