"""The tokens that a pooler counts, and float32 reductions over those of each sentence.

The choice is made in main memory, so that no thread waits for a GPU to report a number. Reductions
read no other token.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from sentence_beam.transforms.pooling.states import TokenStates
from sentence_beam.transforms.pooling.transfer import to_device


@dataclass(frozen=True)
class CountedTokens:
    """The counted tokens of a batch.

    `index` [M] int64: their rows among the packed tokens, in order; `offsets` [B + 1] int64 cuts it
    into sentences; `fallback` [B] bool: sentences without a counted token, all of whose tokens are
    counted instead. All three are in one place: in main memory, or with the states.
    """

    index: Tensor
    offsets: Tensor
    fallback: Tensor

    def to(self, device: torch.device) -> "CountedTokens":
        """Return the same with its tensors on a device."""
        if self.index.device == device:
            return self
        index, offsets, fallback = (
            to_device(tensor, device) for tensor in (self.index, self.offsets, self.fallback)
        )
        return CountedTokens(index, offsets, fallback)

    @cached_property
    def lengths(self) -> Tensor:
        """The number of counted tokens of each sentence, [B] int64."""
        return self.offsets.diff()

    @cached_property
    def sentences(self) -> Tensor:
        """The number of the sentence that each counted token belongs to, [M] int64."""
        numbers = torch.arange(self.lengths.numel(), device=self.index.device)
        return numbers.repeat_interleave(self.lengths, output_size=self.index.numel())

    def sum_by_sentence(self, values: Tensor) -> Tensor:
        """Return the sums by sentence [B] of values [M] of counted tokens, in their dtype.

        Values are added in the tokens' order, also on a GPU, where adding by index has no order.
        """
        if not values.is_floating_point() or not self.lengths.numel():
            return _sum_by_sentence(values, self.offsets)
        return torch.segment_reduce(values, "sum", offsets=self.offsets)


def count_tokens(states: TokenStates, policy: str) -> CountedTokens:
    """Return the tokens that a policy counts, on the device of the states.

    `policy`: `all`, `no-special`, `drop-last-special` or `no-prompt`.
    """
    return count_in_memory(states, policy).to(states.device)


def count_in_memory(states: TokenStates, policy: str) -> CountedTokens:
    """Return the kept tokens that a policy counts, in main memory."""
    keep = _POLICIES[policy](states)
    if keep is states.keep and bool(keep.all()):
        index = torch.arange(keep.numel(), device=keep.device)
        fallback = torch.zeros_like(states.offsets[1:], dtype=torch.bool)
        return CountedTokens(index, states.offsets, fallback)
    return count_kept(states, keep)


def count_kept(states: TokenStates, keep: Tensor) -> CountedTokens:
    """Return the tokens that `keep` [N] bool marks, in main memory.

    A sentence without a marked token counts all its tokens.
    """
    lengths = states.offsets.diff()
    marked = _sum_by_sentence(keep, states.offsets)
    fallback = marked == 0
    keep = keep | fallback.repeat_interleave(lengths)
    counts = torch.where(fallback, lengths, marked)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return CountedTokens(keep.nonzero().squeeze(1), offsets, fallback)


def _sum_by_sentence(values: Tensor, offsets: Tensor) -> Tensor:
    """The sums over each sentence of whole numbers or flags, [B] int64."""
    running = torch.cat([offsets.new_zeros(1), values.long().cumsum(0)])
    return running[offsets].diff()


def _omit_special(states: TokenStates) -> Tensor:
    if states.special is None:
        raise ValueError("count=no-special needs TokenStates.special")
    return states.keep & ~states.special


def _drop_last(states: TokenStates) -> Tensor:
    """Mark [N] bool every token but a sentence's last, unless it is the only one (SBERT-WK)."""
    keep = states.keep.clone()
    lengths = states.offsets.diff()
    keep[states.offsets[1:][lengths > 1] - 1] = False
    return keep


def _omit_prompt(states: TokenStates) -> Tensor:
    if not states.prompt_tokens:
        return states.keep
    lengths = states.offsets.diff()
    position = torch.arange(states.keep.numel(), device=states.keep.device)
    position = position - states.offsets[:-1].repeat_interleave(lengths)
    return states.keep & (position >= states.prompt_tokens)


_POLICIES = {
    "all": lambda states: states.keep,
    "no-special": _omit_special,
    "drop-last-special": _drop_last,
    "no-prompt": _omit_prompt,
}


def segment_sum(values: Tensor, counted: CountedTokens, weights: Tensor | None = None) -> Tensor:
    """Return the sum [B, H] float32 of the counted rows of `values` [N, H].

    `weights` [M], if given, multiply the rows.
    """
    if weights is not None:
        weights = weights.float()
    if not counted.lengths.numel():
        return values.new_zeros((0, values.shape[1]), dtype=torch.float32)
    return F.embedding_bag(
        counted.index,
        values.float(),
        counted.offsets,
        mode="sum",
        per_sample_weights=weights,
        include_last_offset=True,
    )


def segment_mean(values: Tensor, counted: CountedTokens) -> Tensor:
    """The mean of the counted rows of `values` [N, H]; [B, H] float32."""
    return segment_sum(values, counted) / counted.lengths.unsqueeze(1)


def segment_max(values: Tensor, counted: CountedTokens) -> Tensor:
    """The componentwise maximum of the counted rows of `values` [N, H]; [B, H] float32."""
    # segment_reduce takes half the time of embedding_bag's maximum.
    rows = values.index_select(0, counted.index).float()
    return torch.segment_reduce(rows, "max", offsets=counted.offsets)
