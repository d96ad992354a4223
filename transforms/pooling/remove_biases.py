"""Averages of embedding rows without the tokens that make all sentences alike."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sentence_beam.transforms.pooling.counted_tokens import CountedTokens, count_kept, segment_mean
from sentence_beam.transforms.pooling.pooler import Needs
from sentence_beam.transforms.pooling.states import Pooled, TokenStates, grade_vectors
from sentence_beam.transforms.pooling.transfer import to_device

# The pieces and signs that the authors of PromptBERT remove for BERT. They are the most frequent
# ones of the sentences of the STS test sets, so scores on those sets are flattered; counts of one's
# own corpus do not have this flaw.
REFERENCE_PIECES = frozenset(
    "\" ##s ' , - . : a an and are as at by dog for from i in is it man of on playing s said that "
    "the to two was white with woman you".split()
)
REFERENCE_SIGNS = frozenset(
    "! \" # $ % & ' ( ) * + , - . / : ; < = > ? @ [ \\ ] ^ _ ` { | ~ £ ´ » ¿ – — ‘ ’ ‚ “ ” • … € ™"
    " [UNK]".split()
)
NOTHING_LEFT = "[PAD]"
_WORD_STARTS = ("\u2581", "\u0120")  # SentencePiece, byte-level BPE


def reduce_text(pieces: Sequence[str]) -> str:
    """Return the word pieces that PromptBERT's code keeps, lower-cased, joined by blanks.

    If none is kept, returns the text of the padding token, as that code does (arXiv:2201.04337,
    section 3).
    """
    dropped = REFERENCE_PIECES | REFERENCE_SIGNS
    kept = [piece.lower() for piece in pieces if piece not in dropped and "##" not in piece]
    return " ".join(kept) or NOTHING_LEFT


@dataclass(frozen=True)
class ReferenceRemoveBiases:
    """The mean embedding row over a text already reduced to `reduce_text`.

    `around`: ids of the special tokens around it, which never count; `padding`: the id of
    `NOTHING_LEFT`, which makes a fallback.
    """

    around: frozenset[int]
    padding: int
    dim: int

    @property
    def needs(self) -> Needs:
        return Needs(raw=True)

    def __call__(self, states: TokenStates) -> Pooled:
        around = torch.tensor(sorted(self.around))
        counted = count_kept(states, states.keep & ~torch.isin(states.token_ids, around))
        words = counted.sum_by_sentence((states.token_ids[counted.index] != self.padding).long())
        return _average_rows(states, counted, counted.fallback | (words == 0))


@dataclass(frozen=True, eq=False)
class RemoveBiases:
    """The mean embedding row over the tokens that `dropped` [V] bool does not mark.

    Special tokens never count. `inside` [V] bool marks pieces that continue a word, which are
    dropped too unless they are a text's first token. If no token remains, the mean is over all but
    the special ones, and the row is a fallback.
    """

    dropped: Tensor
    inside: Tensor
    dim: int

    @property
    def needs(self) -> Needs:
        return Needs(raw=True)

    def __call__(self, states: TokenStates) -> Pooled:
        if states.special is None:
            raise ValueError("remove-biases needs TokenStates.special")
        ids = states.token_ids
        plain = states.keep & ~states.special
        keep = plain & ~self.dropped[ids] & ~(self.inside[ids] & ~_mark_first(states, plain))
        removed = count_kept(states, keep).fallback
        lengths = states.offsets.diff()
        counted = count_kept(states, keep | (plain & removed.repeat_interleave(lengths)))
        return _average_rows(states, counted, removed)


def _mark_first(states: TokenStates, plain: Tensor) -> Tensor:
    """A mask [N] bool of the first token of each sentence among the `plain` ones."""
    before = torch.cat([plain.new_zeros(1, dtype=torch.long), plain.long().cumsum(0)])
    start = before[states.offsets[:-1]].repeat_interleave(states.offsets.diff())
    return plain & (before[:-1] == start)


def mark_most_frequent(counts: np.ndarray, top: int) -> np.ndarray:
    """Return a mask [V] bool of the `top` most frequent tokens that occur; ties by lower id."""
    order = np.argsort(-counts, kind="stable")[:top]
    marked = np.zeros(len(counts), dtype=bool)
    marked[order[counts[order] > 0]] = True
    return marked


def is_sign(piece: str) -> bool:
    """Whether a piece holds neither a letter nor a digit.

    >>> is_sign("##."), is_sign("##s"), is_sign("\u0120!")
    (True, False, True)
    """
    return not any(character.isalnum() for character in piece.lstrip("".join(_WORD_STARTS)))


def has_capitals(piece: str) -> bool:
    """Whether a piece holds an upper-case letter."""
    return any(character.isupper() for character in piece.lstrip("".join(_WORD_STARTS)))


def mark_word_insides(pieces: Sequence[str]) -> np.ndarray:
    """Return a mask [V] bool of the pieces that continue a word.

    The vocabulary's own signs tell them; the mask is all False without such signs.
    """
    if any(piece.startswith("##") for piece in pieces):
        return np.array([piece.startswith("##") for piece in pieces], dtype=bool)
    for mark in _WORD_STARTS:
        if any(piece.startswith(mark) for piece in pieces):
            return np.array([not piece.startswith(mark) for piece in pieces], dtype=bool)
    return np.zeros(len(pieces), dtype=bool)


def _average_rows(states: TokenStates, counted: CountedTokens, fallback: Tensor) -> Pooled:
    """Return the mean embedding rows of the counted tokens.

    `counted` and `fallback` [B] bool are in main memory.
    """
    if states.raw is None:
        raise ValueError("remove-biases needs TokenStates.raw")
    device = states.raw.device
    return grade_vectors(segment_mean(states.raw, counted.to(device)), to_device(fallback, device))
