"""Which tokens a pooler counts, and float32 reductions over those of each sentence, which read no
other token.

Which tokens count is found out in main memory, so that nobody waits for a GPU to say how many there
are.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from transforms.pooling.states import TokenStates
from transforms.pooling.transfer import to_device


@dataclass(frozen=True)
class CountedTokens:
    """The counted tokens of a batch.

    `index` [M] int64: their rows among the packed tokens, in order; `offsets` [B + 1] int64 cuts it
    into sentences; `fallback` [B] bool: sentences in which nothing was left, so that all their
    tokens are counted. All of them are in one place: in main memory, or with the states.
    """

    index: Tensor
    offsets: Tensor
    fallback: Tensor

    def to(self, device: torch.device) -> "CountedTokens":
        """The same with its tensors on a device."""
        moved = (to_device(each, device) for each in (self.index, self.offsets, self.fallback))
        return self if self.index.device == device else CountedTokens(*moved)

    @cached_property
    def lengths(self) -> Tensor:
        """The number of counted tokens of each sentence, [B] int64."""
        return self.offsets.diff()

    @cached_property
    def sentences(self) -> Tensor:
        """The number of the sentence that each counted token belongs to, [M] int64."""
        numbers = torch.arange(self.lengths.numel(), device=self.index.device)
        return numbers.repeat_interleave(self.lengths, output_size=self.index.numel())

    def totals(self, values: Tensor) -> Tensor:
        """The sums over each sentence [B] of a value for each counted token [M], in the values'
        dtype.

        Each is summed in the tokens' order, also on a GPU, where adding by index would take any
        order.
        """
        if not values.is_floating_point() or not self.lengths.numel():
            return _per_sentence(values, self.offsets)
        return torch.segment_reduce(values, "sum", offsets=self.offsets)


def count_tokens(states: TokenStates, policy: str) -> CountedTokens:
    """The tokens that `policy` (`all`, `no-special`, `drop-last-special`, `no-prompt`) counts,
    where the states are.
    """
    return count_in_memory(states, policy).to(states.device)


def count_in_memory(states: TokenStates, policy: str) -> CountedTokens:
    """The tokens that a policy counts among those kept, in main memory."""
    keep = _POLICIES[policy](states)
    if keep is states.keep and bool(keep.all()):
        index = torch.arange(keep.numel(), device=keep.device)
        return CountedTokens(
            index, states.offsets, torch.zeros_like(states.offsets[1:], dtype=torch.bool)
        )
    return count_kept(states, keep)


def count_kept(states: TokenStates, keep: Tensor) -> CountedTokens:
    """The tokens that `keep` [N] bool names, in main memory; all tokens of a sentence in which it
    names none.
    """
    lengths = states.offsets.diff()
    left = _per_sentence(keep, states.offsets)
    fallback = left == 0
    keep = keep | fallback.repeat_interleave(lengths)
    counts = torch.where(fallback, lengths, left)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return CountedTokens(keep.nonzero().squeeze(1), offsets, fallback)


def _per_sentence(values: Tensor, offsets: Tensor) -> Tensor:
    """The sums over each sentence of whole numbers or flags, [B] int64."""
    running = torch.cat([offsets.new_zeros(1), values.long().cumsum(0)])
    return running[offsets].diff()


def _no_special(states: TokenStates) -> Tensor:
    if states.special is None:
        raise ValueError("count=no-special needs TokenStates.special")
    return states.keep & ~states.special


def _drop_last(states: TokenStates) -> Tensor:
    """Every token but a sentence's last, unless that is its only one (SBERT-WK's code); [N]
    bool.
    """
    keep = states.keep.clone()
    lengths = states.offsets.diff()
    keep[states.offsets[1:][lengths > 1] - 1] = False
    return keep


def _no_prompt(states: TokenStates) -> Tensor:
    if not states.prompt_tokens:
        return states.keep
    lengths = states.offsets.diff()
    position = torch.arange(states.keep.numel(), device=states.keep.device)
    position = position - states.offsets[:-1].repeat_interleave(lengths)
    return states.keep & (position >= states.prompt_tokens)


_POLICIES = {
    "all": lambda states: states.keep,
    "no-special": _no_special,
    "drop-last-special": _drop_last,
    "no-prompt": _no_prompt,
}


def segment_sum(values: Tensor, counted: CountedTokens, weights: Tensor | None = None) -> Tensor:
    """The sum of the counted rows of `values` [N, H], times `weights` [M] where given; [B, H]
    float32.
    """
    if not counted.lengths.numel():
        return values.new_zeros((0, values.shape[1]), dtype=torch.float32)
    return F.embedding_bag(
        counted.index,
        values.float(),
        counted.offsets,
        mode="sum",
        per_sample_weights=None if weights is None else weights.float(),
        include_last_offset=True,
    )


def segment_mean(values: Tensor, counted: CountedTokens) -> Tensor:
    """The mean of the counted rows of `values` [N, H]; [B, H] float32."""
    return segment_sum(values, counted) / counted.lengths.unsqueeze(1)


def segment_max(values: Tensor, counted: CountedTokens) -> Tensor:
    """The componentwise maximum of the counted rows of `values` [N, H]; [B, H] float32."""
    # segment_reduce takes half the time of embedding_bag's maximum
    rows = values.index_select(0, counted.index).float()
    return torch.segment_reduce(rows, "max", offsets=counted.offsets)
