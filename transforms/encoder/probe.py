"""Test with short texts, when a model is loaded, which texts may share a batch.

Padding should change nothing, but in some architectures it does: a convolution or a Fourier
transform reaches into it, or it moves the positions. Such a model gets batches of texts of equal
length, or one text a batch.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice, pairwise
from operator import itemgetter
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from sentence_beam.transforms.base.errors import UnfitModelError, cite, first_line
from sentence_beam.transforms.encoder.batches import Batch
from sentence_beam.transforms.encoder.layer_hooks import LayerStates
from sentence_beam.transforms.encoder.padded import PaddedRunner
from sentence_beam.transforms.space.model_files import ModelFiles

# Together they reach every branch of the passes without padding: widths below that of a register,
# below and above the length at which attention changes, and two texts of one length.
LENGTHS = (50, 20, 5, 5)
_LONGEST_TABLE = 8192  # of learned positions
# Largest error of a state by rounding, as a part of the text's largest one; a wrong position or
# branch causes ten times as much.
_ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-8}
_ROUNDING_16_BIT = 0.05
_ROUNDING_OF_A_HEAD = 5e-3


class BatchSharing(Enum):
    """Which texts may share a batch."""

    PACKED = "packed"  # any, without padding
    PADDED = "padded"  # any, padded to one length
    EQUAL = "equal"  # texts of one length
    ALONE = "alone"  # none


class Runner(Protocol):
    """Runs a model's blocks."""

    def run(self, batch: Batch) -> LayerStates:
        """Run a batch; return states [N, H] of layers, own attention [N] of heads, packed."""


class Probe:
    """Compare passes on short texts with a model's own pass over one text at a time.

    `ids`: token ids to make texts of, none of them special.
    """

    def __init__(self, runner: PaddedRunner, ids: np.ndarray, files: ModelFiles) -> None:
        self._runner = runner
        self._ids = ids
        self._files = files

    @torch.inference_mode()
    def together(self) -> BatchSharing:
        """Return which texts the model's own pass may take at once.

        Raises `UnfitModelError` if the model cannot run, or differs from one pass to the next.
        """
        mixed = self._make_batch((50, 5, 2))
        equal = self._make_batch((5, 5))
        alone = self.pass_alone(mixed)
        if self._runner.takes_padding and self._takes(mixed, alone):
            return BatchSharing.PADDED
        if not are_alike(alone, self.pass_alone(mixed)):
            raise self._make_error("it gives the same text other vectors from one pass to the next")
        if self._takes(equal, self.pass_alone(equal)):
            return BatchSharing.EQUAL
        return BatchSharing.ALONE

    @torch.inference_mode()
    def objection(self, other: Runner, many: bool) -> str:
        """Return why another pass cannot be used: it fails or has other states; "" if it can.

        Texts of several lengths run together. `many`: with more tokens than a table of positions
        has.
        """
        limit = self._files.position_limit or 0
        before = -(-limit // LENGTHS[0]) if many and limit <= _LONGEST_TABLE else 0
        batch = self._make_batch((LENGTHS[0],) * before + LENGTHS)
        few = batch.part(slice(before, None))
        alone = self.pass_alone(few)
        try:
            states = other.run(batch)
        # a model's code may raise any type for texts in one row, a kernel any type for its device
        except Exception as error:
            return first_line(error)
        together = islice(_split_texts(states, batch), before, None)
        return "" if are_alike(together, alone) else "texts together have other states than alone"

    def _takes(self, batch: Batch, alone: Sequence[LayerStates]) -> bool:
        try:
            together = self._runner.run(batch)
        except Exception:  # models raise any type for an input that they cannot take
            return False
        return are_alike(_split_texts(together, batch), alone)

    def pass_alone(self, batch: Batch) -> list[LayerStates]:
        """Run each text by itself.

        Raises `UnfitModelError` if the model fails, or its states are not finite or of another
        width.
        """
        texts = [batch.part(slice(row, row + 1)) for row in range(len(batch.rows))]
        try:
            passes = [self._runner.run(text) for text in texts]
        except Exception as error:
            raise self._make_error(f"it cannot run ({first_line(error)})") from None
        for states in passes:
            for state in states.layers.values():
                self._check(state)
        return passes

    def _check(self, state: Tensor) -> None:
        width = state.shape[1]
        if width != self._files.hidden:
            raise self._make_error(f"its states have {width} components, not {self._files.hidden}")
        if not bool(torch.isfinite(state).all()):
            raise self._make_error("its states are not finite")

    def _make_error(self, reason: str) -> UnfitModelError:
        dtype = self._runner.dtype
        mend = "; use another model"
        if dtype != torch.float32:
            mend = f" in {dtype}; say {cite('dtype')} float32"
        return UnfitModelError(f"{self._files.folder}: {self._files.family}: {reason}{mend}")

    def _make_batch(self, lengths: Sequence[int]) -> Batch:
        """Make different texts of these lengths, cut to the model's positions."""
        widths = np.minimum(np.array(lengths), self._files.position_limit or max(lengths))
        places = np.arange(int(widths.sum())) % len(self._ids)
        return Batch(np.arange(len(widths)), self._ids[places], widths)


def _split_texts(states: LayerStates, batch: Batch) -> Iterator[LayerStates]:
    """Yield each text's part of a batch's states."""
    for start, stop in pairwise(batch.offsets.tolist()):
        yield states.map(itemgetter(slice(start, stop)))


def are_alike(ones: Iterable[LayerStates], others: Iterable[LayerStates]) -> bool:
    """Return whether two passes give the same texts the same states, within the tolerance."""
    return all(_is_same(one, other) for one, other in zip(ones, others, strict=True))


def _is_same(one: LayerStates, other: LayerStates) -> bool:
    for layer, state in one.layers.items():
        if not _is_close(state, other.layers[layer]):
            return False
    for head, own in one.heads.items():
        if not torch.allclose(own, other.heads[head], rtol=0.05, atol=_ROUNDING_OF_A_HEAD):
            return False
    return True


def _is_close(one: Tensor, other: Tensor) -> bool:
    rounding = _ROUNDING.get(one.dtype, _ROUNDING_16_BIT)
    return bool((one - other).abs().max() <= rounding * other.abs().max())
