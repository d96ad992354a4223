"""What a model makes of several texts at once, found out by short texts when it is loaded.

Padding should change nothing, and in some architectures it does: a convolution or a Fourier
transform reaches into it, or it moves the positions. Such a model gets batches of texts of equal
length, or one text a batch.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice, pairwise
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from transforms.base.errors import UnfitModelError, first_line
from transforms.encoder.batches import Batch
from transforms.encoder.layer_hooks import LayerStates
from transforms.encoder.padded import PaddedRunner
from transforms.space.model_files import ModelFiles

# Between them they reach every branch of the passes without padding: widths below that of a
# register, below and above the length at which attention changes, and a run of two texts of one
# length.
LENGTHS = (50, 20, 5, 5)
_LONGEST_TABLE = 8192  # of learned positions
# How far rounding takes a state, as a part of the text's largest one; a wrong position or branch
# goes ten times as far.
_ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-8}
_ROUNDING_16_BIT = 0.05
_ROUNDING_OF_A_HEAD = 5e-3


class BatchSharing(Enum):
    """Which texts may share a batch: any, without padding or padded to one length; texts of one
    length; none.
    """

    PACKED = "packed"
    PADDED = "padded"
    EQUAL = "equal"
    ALONE = "alone"


class Runner(Protocol):
    """Runs a model's blocks."""

    def run(self, batch: Batch) -> LayerStates:
        """States [N, H] of the layers and own attention [N] of the heads asked for, text after
        text.
        """


class Probe:
    """Texts of a few tokens through a model's own pass, one text at a time.

    `ids`: token ids to make texts of, none of them special.
    """

    def __init__(self, runner: PaddedRunner, ids: np.ndarray, files: ModelFiles) -> None:
        self._runner, self._ids, self._files = runner, ids, files

    @torch.inference_mode()
    def together(self) -> BatchSharing:
        """Which texts the model's own pass may take at once; `UnfitModelError` where it takes
        none.
        """
        mixed, equal = self._batch((50, 5, 2)), self._batch((5, 5))
        alone = self._alone(mixed)
        if self._runner.takes_padding and self._takes(mixed, alone):
            return BatchSharing.PADDED
        if not _alike(alone, self._alone(mixed)):
            raise self._unfit("it gives the same text other vectors from one pass to the next")
        return BatchSharing.EQUAL if self._takes(equal, self._alone(equal)) else BatchSharing.ALONE

    @torch.inference_mode()
    def objection(self, other: Runner, many: bool = False) -> str:
        """What speaks against another pass: that it gives other states than the model's own, or
        fails; empty: nothing.

        Texts of several lengths run together; where they are to be `many`, more tokens than a table
        of positions has.
        """
        limit = self._files.position_limit or 0
        before = -(-limit // LENGTHS[0]) if many and limit <= _LONGEST_TABLE else 0
        batch = self._batch((LENGTHS[0],) * before + LENGTHS)
        few = batch.part(slice(before, None))
        alone = self._alone(few)
        try:
            states = other.run(batch)
        # A model's code may raise any kind for texts in one row, a kernel any kind for its device.
        except Exception as error:
            return first_line(error)
        found = islice(_texts(states, batch), before, None)
        return "" if _alike(found, alone) else "texts together have other states than alone"

    def _takes(self, batch: Batch, alone: Sequence[LayerStates]) -> bool:
        try:
            together = self._runner.run(batch)
        except Exception:  # models raise every kind for an input that they cannot take
            return False
        return _alike(_texts(together, batch), alone)

    def _alone(self, batch: Batch) -> list[LayerStates]:
        """Each text by itself; `UnfitModelError` where the model fails, or gives what is no state
        of this model.
        """
        texts = [batch.part(slice(row, row + 1)) for row in range(len(batch.rows))]
        try:
            found = [self._runner.run(text) for text in texts]
        except Exception as error:
            raise self._unfit(f"it cannot run ({first_line(error)})") from None
        for state in (state for one in found for state in one.layers.values()):
            if state.shape[1] != self._files.hidden:
                raise self._unfit(
                    f"its states have {state.shape[1]} components, not {self._files.hidden}"
                )
            if not bool(torch.isfinite(state).all()):
                raise self._unfit("its states are not finite")
        return found

    def _unfit(self, reason: str) -> UnfitModelError:
        dtype = self._runner.dtype
        mend = (
            "; use another model" if dtype == torch.float32 else f" in {dtype}; say --dtype float32"
        )
        return UnfitModelError(f"{self._files.folder}: {self._files.family}: {reason}{mend}")

    def _batch(self, lengths: Sequence[int]) -> Batch:
        """Texts of these lengths, cut to the model's positions, no two alike."""
        widths = np.minimum(np.array(lengths), self._files.position_limit or max(lengths))
        places = np.arange(int(widths.sum())) % len(self._ids)
        return Batch(np.arange(len(widths)), self._ids[places], widths)


def _texts(states: LayerStates, batch: Batch) -> Iterator[LayerStates]:
    """Each text's part of a batch's states."""
    for start, stop in pairwise(batch.offsets.tolist()):
        layers = {layer: state[start:stop] for layer, state in states.layers.items()}
        yield LayerStates(layers, {head: own[start:stop] for head, own in states.heads.items()})


def _alike(ones: Iterable[LayerStates], others: Iterable[LayerStates]) -> bool:
    return all(_same(one, other) for one, other in zip(ones, others, strict=True))


def _same(one: LayerStates, other: LayerStates) -> bool:
    return all(_close(one.layers[key], other.layers[key]) for key in one.layers) and all(
        torch.allclose(one.heads[key], other.heads[key], rtol=0.05, atol=_ROUNDING_OF_A_HEAD)
        for key in one.heads
    )


def _close(one: Tensor, other: Tensor) -> bool:
    rounding = _ROUNDING.get(one.dtype, _ROUNDING_16_BIT)
    return bool((one - other).abs().max() <= rounding * other.abs().max())
