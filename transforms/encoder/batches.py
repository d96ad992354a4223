"""Cutting a unit into batches of about equal length under a token budget."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from transforms.encoder.tokenize import Tokenized


@dataclass(frozen=True)
class BatchStats:
    """Tokens without and with padding, batches run, and batches halved for want of memory."""

    real: int = 0
    padded: int = 0
    batches: int = 0
    oom_splits: int = 0

    def __add__(self, other: "BatchStats") -> "BatchStats":
        return BatchStats(
            self.real + other.real,
            self.padded + other.padded,
            self.batches + other.batches,
            self.oom_splits + other.oom_splits,
        )


@dataclass(frozen=True)
class Batch:
    """Texts that go through the model together, longest first.

    `rows` [n] their places in the unit; `ids` [sum of lengths] int64 packed, `lengths` [n] int64,
    `types` as `ids`; `masks` [n] int64 the place of the template's mask in each text. The last
    `fill` texts are copies of the one before them, there to give the batch its size.
    """

    rows: np.ndarray
    ids: np.ndarray
    lengths: np.ndarray
    types: np.ndarray | None = None
    masks: np.ndarray | None = None
    fill: int = 0

    @cached_property
    def offsets(self) -> np.ndarray:
        """Where each text's tokens begin, and where the last one's end, [n + 1] int64."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    @property
    def width(self) -> int:
        """Number of tokens of the longest text."""
        return int(self.lengths[0])

    def stats(self, pads: bool) -> BatchStats:
        """The counts of a run of this batch, by a pass that `pads` texts to the longest or by one
        that does not.
        """
        run, real = len(self.ids), len(self.ids) - self.fill * int(self.lengths[-1])
        return BatchStats(real, self.width * len(self.rows) if pads else run, 1)

    def halves(self) -> tuple["Batch", "Batch"]:
        """Two batches: the first (n + 1) // 2 texts, and the others."""
        middle = (len(self.rows) + 1) // 2
        return self.part(slice(0, middle)), self.part(slice(middle, None))

    def part(self, which: slice) -> "Batch":
        """The batch of the texts that a slice names, at least one of them."""
        start, stop, _ = which.indices(len(self.rows))
        tokens = slice(int(self.offsets[start]), int(self.offsets[stop]))
        types = None if self.types is None else self.types[tokens]
        masks = None if self.masks is None else self.masks[which]
        fill = max(0, min(stop - start, stop - len(self.rows) + self.fill))
        return Batch(self.rows[which], self.ids[tokens], self.lengths[which], types, masks, fill)

    def filled(self, texts: int) -> "Batch":
        """The batch with copies of its last text after it, `texts` in all; its texts must be of one
        length.
        """
        count = len(self.rows)
        places = np.minimum(np.arange(texts), count - 1)
        ids = self.ids.reshape(count, -1)[places].ravel()
        types = None if self.types is None else self.types.reshape(count, -1)[places].ravel()
        masks = None if self.masks is None else self.masks[places]
        return Batch(self.rows[places], ids, self.lengths[places], types, masks, texts - count)


@dataclass(frozen=True)
class UnitBatches:
    """Tokenized texts cut into batches; `rows` is their number."""

    rows: int
    batches: list[Batch]


def plan_batches(tokenized: Tokenized, budget: int, equal: bool = False) -> Iterator[Batch]:
    """Batches of at most `budget` tokens, padding included (or one text), over all texts that have
    a token.

    Longest first, equal lengths in input order: the plan depends on the texts' lengths alone.
    `equal`: texts of a batch are of one length.
    """
    whole = _longest_first(tokenized)
    for start, stop in pairwise(cut_rows(whole.lengths, budget, equal)):
        yield whole.part(slice(start, stop))


def plan_alike(tokenized: Tokenized, budget: int) -> Iterator[Batch]:
    """Batches whose shape depends on the length of their texts alone, whatever other texts there
    are.

    All texts of a batch are equally long, and there are `budget // length` of them (at least one),
    copies of the last making up the number.
    """
    whole = _longest_first(tokenized)
    bounds = [*np.flatnonzero(np.diff(whole.lengths, prepend=-1)), len(whole.lengths)]
    for first, end in pairwise(bounds):
        texts = max(1, budget // int(whole.lengths[first]))
        for start in range(first, end, texts):
            yield whole.part(slice(start, min(end, start + texts))).filled(texts)


def _longest_first(tokenized: Tokenized) -> Batch:
    lengths = tokenized.lengths
    order = np.argsort(-lengths, kind="stable")
    order = order[: np.count_nonzero(lengths)]
    tokens = _gather(tokenized.offsets[order], lengths[order])
    types = None if tokenized.types is None else tokenized.types[tokens].astype(np.int64)
    masks = None if tokenized.masks is None else tokenized.masks[order]
    return Batch(order, tokenized.ids[tokens].astype(np.int64), lengths[order], types, masks)


def cut_rows(lengths: np.ndarray, budget: int, equal: bool = False) -> list[int]:
    """Bounds of batches of rows sorted longest first: the first row of every batch, and the number
    of rows.
    """
    ends = (
        np.append(np.flatnonzero(np.diff(lengths)) + 1, len(lengths)) if equal else [len(lengths)]
    )
    cuts = [0]
    for end in ends:
        while cuts[-1] < end:
            start = cuts[-1]
            cuts.append(min(int(end), start + max(1, budget // int(lengths[start]))))
    return cuts


def _gather(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The places start, start + 1, ... of every row's tokens, one row after the other; int64."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
