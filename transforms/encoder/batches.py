"""Cut a unit into batches of texts of about equal length, under a token budget."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from sentence_beam.transforms.base.gather import list_places
from sentence_beam.transforms.encoder.tokenize import Tokenized

MOST_TEXTS = 65_535  # texts of a batch are a dimension of FlashAttention's grid, limited by CUDA


@dataclass(frozen=True)
class BatchStats:
    """Counts: tokens without and with padding, batches, and batches halved for lack of memory."""

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
    `fill` texts are copies of the one before them, which give the batch its size.
    """

    rows: np.ndarray
    ids: np.ndarray
    lengths: np.ndarray
    types: np.ndarray | None = None
    masks: np.ndarray | None = None
    fill: int = 0

    @cached_property
    def offsets(self) -> np.ndarray:
        """First token of each text, and the number of tokens, [n + 1] int64."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    @property
    def width(self) -> int:
        """Number of tokens of the longest text."""
        return int(self.lengths[0])

    def stats(self, pads: bool) -> BatchStats:
        """Count this batch for a pass that `pads` texts to the longest, or does not."""
        real = len(self.ids) - self.fill * int(self.lengths[-1])
        run = self.width * len(self.rows) if pads else len(self.ids)
        return BatchStats(real, run, 1)

    def halves(self) -> tuple["Batch", "Batch"]:
        """Split into the first (n + 1) // 2 texts and the others."""
        middle = (len(self.rows) + 1) // 2
        return self.part(slice(0, middle)), self.part(slice(middle, None))

    def part(self, which: slice) -> "Batch":
        """Return the batch of the texts in a slice, at least one of them."""
        start, stop, _ = which.indices(len(self.rows))
        tokens = slice(int(self.offsets[start]), int(self.offsets[stop]))
        fill = max(0, min(stop - start, stop - len(self.rows) + self.fill))
        return Batch(
            rows=self.rows[which],
            ids=self.ids[tokens],
            lengths=self.lengths[which],
            types=_select(self.types, tokens),
            masks=_select(self.masks, which),
            fill=fill,
        )

    def filled(self, texts: int) -> "Batch":
        """Add copies of the last text, up to `texts` in all; the texts must be of one length."""
        count = len(self.rows)
        copied = np.minimum(np.arange(texts), count - 1)
        tokens = np.arange(len(self.ids)).reshape(count, -1)[copied].ravel()
        return Batch(
            rows=self.rows[copied],
            ids=self.ids[tokens],
            lengths=self.lengths[copied],
            types=_select(self.types, tokens),
            masks=_select(self.masks, copied),
            fill=texts - count,
        )


@dataclass(frozen=True)
class UnitBatches:
    """Tokenized texts cut into batches; `rows` is their number."""

    rows: int
    batches: list[Batch]


def plan_batches(tokenized: Tokenized, budget: int, equal: bool = False) -> Iterator[Batch]:
    """Yield batches of at most `budget` tokens, padding included (or one text), and 65,535 texts.

    Longest first, equal lengths in input order: the plan depends only on the texts' lengths. Texts
    without a token are in no batch. `equal`: the texts of a batch are of one length.
    """
    whole = _sort_longest_first(tokenized)
    for start, stop in pairwise(cut_rows(whole.lengths, budget, equal)):
        yield whole.part(slice(start, stop))


def plan_alike(tokenized: Tokenized, budget: int) -> Iterator[Batch]:
    """Yield batches whose shape depends only on the length of their texts.

    All texts of a batch are equally long. There are `budget // length` of them (at least one, at
    most 65,535), with copies of the last if necessary.
    """
    whole = _sort_longest_first(tokenized)
    bounds = [*np.flatnonzero(np.diff(whole.lengths, prepend=-1)), len(whole.lengths)]
    for first, end in pairwise(bounds):
        texts = _count_texts(int(whole.lengths[first]), budget)
        for start in range(first, end, texts):
            yield whole.part(slice(start, min(end, start + texts))).filled(texts)


def _sort_longest_first(tokenized: Tokenized) -> Batch:
    lengths = tokenized.lengths
    shorter = lengths.max(initial=0) - lengths
    # numbers of 16 bits are ordered ten times as fast as those of 64
    smallest = np.min_scalar_type(shorter.max(initial=0))
    order = np.argsort(shorter.astype(smallest), kind="stable")
    order = order[: np.count_nonzero(lengths)]
    tokens = list_places(tokenized.offsets[order], lengths[order])
    types = _select(tokenized.types, tokens)
    if types is not None:
        types = types.astype(np.int64)
    ids = tokenized.ids[tokens].astype(np.int64)
    return Batch(order, ids, lengths[order], types, _select(tokenized.masks, order))


def cut_rows(lengths: np.ndarray, budget: int, equal: bool = False) -> list[int]:
    """Return the first row of each batch, and the number of rows; rows are longest first."""
    changes = (np.flatnonzero(np.diff(lengths)) + 1).tolist() if equal else []
    cuts = [0]
    for end in [*changes, len(lengths)]:
        while cuts[-1] < end:
            start = cuts[-1]
            cuts.append(min(end, start + _count_texts(int(lengths[start]), budget)))
    return cuts


def _count_texts(length: int, budget: int) -> int:
    """Return the number of texts of so many tokens in a batch."""
    return min(MOST_TEXTS, max(1, budget // length))


def _select(values: np.ndarray | None, which: slice | np.ndarray) -> np.ndarray | None:
    return None if values is None else values[which]
